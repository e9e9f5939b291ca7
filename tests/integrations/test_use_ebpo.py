"""The snippets of docs/use-ebpo.md, as they stand on the page."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from exported_run import problems

from ebpo import EBPOState, ebpo_advantages
from ebpo.problems.record import write_problems
from ebpo.prompts import write_prompts


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "use-ebpo.md").read_text(encoding="utf-8")


def blocks(page: str, heading: str, language: str) -> list[str]:
    """The code blocks under a second-level heading."""
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)
    return [code for tag, code in fenced if tag == language]


def executed(source: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """The names that a snippet defines."""
    torch.set_num_threads(1)
    found = dict(names or {})
    exec(compile(source, "docs/use-ebpo.md", "exec"), found)
    return found


@pytest.fixture
def own_loop(page: str) -> dict[str, Any]:
    return executed(blocks(page, "Your own loop", "python")[0])


def test_the_own_loop_learns_and_restores_its_prior(own_loop: dict[str, Any]) -> None:
    curve = own_loop["curve"]
    assert sum(curve[:5]) / 5 < 0.4
    assert sum(curve[-5:]) / 5 > 0.9
    assert own_loop["resumed"].state == own_loop["baseline"].state
    assert set(own_loop["baseline"].metrics) >= {"mu_glob", "sigma2", "tau2", "shrinkage"}


def test_the_functional_form_follows_the_loop(page: str, own_loop: dict[str, Any]) -> None:
    found = executed(blocks(page, "Your own loop", "python")[1], own_loop)
    expected, state, _ = ebpo_advantages(own_loop["rewards"], own_loop["questions"], half_life=512)
    assert torch.equal(found["advantages"], expected)
    assert found["state"] == state


@pytest.mark.slow
def test_the_trl_recipe_trains_and_saves_its_prior(
    page: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("trl", reason="trl is the extra `trl`, and not in verl's environment")
    (tmp_path / "config").symlink_to(repository / "config")
    monkeypatch.chdir(tmp_path)
    (source,) = blocks(page, "TRL", "python")
    trainer = executed(source)["trainer"]
    saved = json.loads((tmp_path / "out" / "checkpoint-2" / "ebpo_state.json").read_text())
    assert EBPOState.from_dict(saved["prior"]) == trainer.ebpo_state
    assert trainer.ebpo_state.priors["global"].group_means.count == pytest.approx(4 * 2 ** (-4 / 512) + 4)
    named = re.findall(r"`(ebpo/[a-z_0-9]+)`", page)
    assert {"ebpo/mu_glob", "ebpo/unscorable"} <= set(named) <= set(trainer.state.log_history[0])


@pytest.mark.parametrize("line", [0, 1])
def test_the_two_lines_of_the_trl_recipe_import_the_same_names(page: str, line: int) -> None:
    pytest.importorskip("trl", reason="trl is the extra `trl`, and not in verl's environment")
    (change,) = blocks(page, "TRL", "diff")
    statement = change.splitlines()[line]
    assert statement[0] == "-+"[line]
    assert {"GRPOConfig", "GRPOTrainer"} <= set(executed(statement[1:]))


@pytest.mark.verl
def test_the_verl_recipe_gives_the_advantages_that_it_prints(page: str) -> None:
    pytest.importorskip("verl", reason="verl has its own environment: make test-verl")
    from ebpo.integrations.verl import Driver, driver

    driver.__dict__.update(Driver().__dict__)
    (source,) = blocks(page, "verl", "python")
    found = executed(source)["data"].batch["advantages"][:, 0]
    printed = [float(number) for number in source.splitlines()[-1].split("#")[1].split(",")]
    assert found.tolist() == pytest.approx(printed, abs=5e-4)


@pytest.mark.verl
def test_verl_takes_the_settings_of_the_recipe(page: str, tmp_path: Path) -> None:
    verl = pytest.importorskip("verl", reason="verl has its own environment: make test-verl")
    from hydra import compose, initialize_config_dir
    from verl.trainer.ppo.checkpoint_callback import build_checkpoint_callback
    from verl.trainer.ppo.reward import get_custom_reward_fn

    from ebpo.integrations.verl import PriorCheckpoint

    settings = [
        line for block in blocks(page, "verl", "") for line in block.splitlines() if re.match(r"\+?\w+\.", line)
    ]
    option = re.search(r"`(\+algorithm\.ebpo\.\S+)`", page)
    assert option is not None
    folder = os.path.join(os.path.dirname(verl.__file__), "trainer", "config")
    with initialize_config_dir(folder, version_base=None):
        config = compose("ppo_trainer", [*settings, option[1], f"trainer.default_local_dir={tmp_path}"])
    assert isinstance(build_checkpoint_callback(config), PriorCheckpoint)
    assert config.algorithm.ebpo.half_life == 512
    reward = get_custom_reward_fn(config)
    assert reward is not None
    assert reward("any", r"\boxed{4}", "4")["score"] == 1.0


def test_the_command_of_the_verl_recipe_writes_a_run(page: str, repository: Path, tmp_path: Path) -> None:
    for folder in ("config", "scripts"):
        (tmp_path / folder).symlink_to(repository / folder)
    results = tmp_path / "results" / "paper"
    known = problems()
    write_problems(results / "data" / "train.parquet", known)
    write_problems(results / "data" / "validation.parquet", known[:2])
    write_prompts(results / "base" / "qwen3-8b" / "prompts" / "train.parquet", {problem.id: [1] for problem in known})
    (results / "clusters").mkdir()
    topics = pd.DataFrame({"id": [problem.id for problem in known], "topic": "sums"})
    topics.to_parquet(results / "clusters" / "topics.parquet")
    (block,) = (text for text in blocks(page, "verl", "") if text.startswith("python scripts/to_verl.py"))
    write, start = block.replace("\\\n", " ").splitlines()
    words = [sys.executable, *shlex.split(write)[1:]]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == start
    assert {path.name for path in (tmp_path / "verl" / "ebpo").iterdir()} == {
        "run.sh",
        "train.parquet",
        "validation.parquet",
    }

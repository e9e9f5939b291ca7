"""What a run for verl contains. Whether verl accepts it is tested where verl is installed, in test_verl.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from exported_run import REPOSITORY, export, problems, settings_of

from ebpo.clustering.curriculum import epoch_order
from ebpo.integrations.verl_export import command


def test_the_batch_is_the_papers() -> None:
    values = settings_of("ebpo")
    actor = "actor_rollout_ref.actor"
    assert values["data.train_batch_size"] * values["actor_rollout_ref.rollout.n"] == 512
    assert values[f"{actor}.ppo_mini_batch_size"] * values["actor_rollout_ref.rollout.n"] == 128
    assert values[f"{actor}.optim.lr"] == 1e-6
    assert (values[f"{actor}.use_kl_loss"], values[f"{actor}.kl_loss_coef"]) == (True, 0.001)
    assert values["trainer.total_training_steps"] == 1000


def test_a_curriculum_run_has_one_epoch() -> None:
    assert settings_of("ebpo", order="difficulty")["trainer.total_training_steps"] == 134


def test_gpus_that_do_not_divide_an_update_are_refused() -> None:
    with pytest.raises(ValueError, match=r"12 GPUs must divide training\.completions_per_update 128"):
        settings_of("grpo", gpus=12)


def test_the_command_finds_its_files_wherever_it_lies() -> None:
    lines = command({"data.train_files": "$here/train.parquet", "trainer.logger": ["console"], "a": "b c"}).splitlines()
    assert lines[5:] == [
        '  data.train_files="$here/train.parquet" \\',
        "  trainer.logger='[console]' \\",
        "  a='b c' \\",
        '  "$@"',
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of an exported run."""
    folder = tmp_path_factory.mktemp("export") / "run"
    done = export(folder, "grpo")
    assert done.returncode == 0, done.stderr
    return folder


def test_the_table_holds_the_prompts_of_our_own_run_in_order(run: Path) -> None:
    rows = pq.read_table(run / "train.parquet", columns=["extra_info"]).to_pylist()
    topics = pd.read_parquet(run.parent / "tables" / "topics.parquet").set_index("id")["topic"].to_dict()
    ids = [p.id for p in problems()]
    first, second = (epoch_order(ids, "topic", 0, epoch, topics) for epoch in (0, 1))
    assert len(rows) == 1000 * 128
    assert [row["extra_info"]["id"] for row in rows[:12]] == first + second


def test_rows_have_verls_schema(run: Path) -> None:
    rows = pq.read_table(run / "validation.parquet").to_pylist()
    assert rows[1] == {
        "data_source": "sums",
        "prompt": [{"role": "user", "content": "What is 1 plus 1?\n\nPut your final answer within \\boxed{}."}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "2"},
        "extra_info": {
            "split": "validation",
            "index": 1,
            "id": "q1",
            "required_answers": [],
            "answer_type": None,
            "tolerance": None,
        },
    }


@pytest.mark.parametrize(
    ("method", "change", "message"),
    [
        ("ebpo", {"algorithm": "ebpo", "scope": "cluster"}, "scope: 'cluster' cannot be had in verl"),
        ("grpo", {"algorithm": "grpo", "std_epsilon": 1e-4}, "std_epsilon: 0.0001 cannot be had in verl"),
    ],
)
def test_what_verl_cannot_express_is_refused_in_one_line(
    tmp_path: Path, method: str, change: dict[str, Any], message: str
) -> None:
    raw = yaml.safe_load((REPOSITORY / "config" / "paper.yaml").read_text(encoding="utf-8"))
    raw["methods"][method] = change
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(raw), encoding="utf-8")
    done = export(tmp_path / "run", method, config=config)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_template_without_chat_is_refused(tmp_path: Path) -> None:
    raw = yaml.safe_load((REPOSITORY / "config" / "paper.yaml").read_text(encoding="utf-8"))
    raw["models"]["qwen3-8b"]["template"] = "plain"
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(raw), encoding="utf-8")
    done = export(tmp_path / "run", "grpo", config=config)
    assert "error: template: 'plain' is no chat" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "gpt2"), "--model: 'gpt2' is not in"),
        (("--group-size", "3"), "group_sizes: 3 must divide training.completions_per_update 128"),
    ],
)
def test_a_run_that_the_experiment_does_not_allow_is_named(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    done = export(tmp_path / "run", "grpo", *options)
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1

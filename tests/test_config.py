"""Wrong configuration stops with one line that names the key, the value and what is allowed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from ebpo.config import ConfigError, RunConfig, comparison_runs, dump_yaml, job_sections, parse_config, read_config

WRONG = [
    ("trian", 1, ["trian", "unknown key", "training"]),
    ("training.lr", 1e-4, ["training.lr", "unknown key", "learning_rate"]),
    ("training.learning_rate", -1.0, ["training.learning_rate", "-1.0", "greater than 0"]),
    ("training.learning_rate", "fast", ["training.learning_rate", "'fast'", "valid number"]),
    ("training.learning_rate", float("nan"), ["training.learning_rate", "nan"]),
    ("training.completions_per_update", 50, ["completions_per_update", "50", "divide", "128"]),
    ("comparisons.main.methods", [], ["comparisons.main.methods", "[]", "at least 1"]),
    ("comparisons.main.methods", ["ppo"], ["comparisons.main.methods", "'ppo'", "grpo"]),
    ("comparisons.main.orders", ["random"], ["comparisons.main.orders", "'random'", "'shuffle'"]),
    ("comparisons.main.group_sizes", [1], ["comparisons.main.group_sizes", "1", "grpo", "at least 2"]),
    ("comparisons.main.group_sizes", [3], ["comparisons.main.group_sizes", "3", "divide", "64"]),
    ("comparisons.report", {"models": ["demo"], "methods": ["grpo"], "orders": ["topic"]}, ["comparisons.report"]),
    ("evaluation.benchmarks", ["aime24"], ["evaluation.benchmarks", "'aime24'", "no source", "algebra"]),
    ("methods.ebpo.half_lif", 3, ["methods.ebpo.half_lif", "unknown key", "half_life"]),
    ("methods.ebpo.half_life", -3, ["methods.ebpo.half_life", "-3", "greater than 0"]),
    ("methods.ebpo.within", "some", ["methods.ebpo.within", "'some'", "'total' or 'pooled'"]),
    ("methods.ebpo.algorithm", "sgd", ["methods.ebpo", "'sgd'", "'ebpo'"]),
    ("data.source", "web", ["data", "'web'", "'reasoning_gym'"]),
    ("data.benchmarks.algebra.topics", ["music"], ["data.benchmarks.algebra.topics", "music", "arithmetic"]),
    ("models.demo.recipe.slip", {}, ["models.demo.recipe.slip", "missing", "gcd_20"]),
]


@pytest.fixture(scope="module")
def demo(repository) -> dict[str, Any]:
    return yaml.safe_load((repository / "config" / "config.yaml").read_text())


def _with(raw: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(raw)
    node = changed
    *parents, last = path.split(".")
    for key in parents:
        node = node[key]
    node[last] = value
    return changed


@pytest.mark.parametrize(("path", "value", "expected"), WRONG, ids=[f"{p}={v!r:.20}" for p, v, _ in WRONG])
def test_a_wrong_value_is_one_line_with_key_value_and_allowed(demo, path, value, expected):
    with pytest.raises(ConfigError) as caught:
        parse_config(_with(demo, path, value))
    message = str(caught.value)
    assert "\n" not in message
    for part in expected:
        assert part in message


def test_kl_cov_with_one_update_per_step_is_refused(demo):
    raw = _with(demo, "methods.entropy_mech.variant", "kl_cov")
    raw["training"]["completions_per_update"] = raw["training"]["completions_per_step"]
    with pytest.raises(ConfigError, match="kl_cov does nothing with one update"):
        parse_config(raw)


@pytest.mark.parametrize("name", ["config.yaml", "paper.yaml", "single_gpu.yaml", "smollm2.yaml"])
def test_shipped_configurations_are_valid(repository, name):
    config = read_config(repository / "config" / name)
    assert len(config.runs()) == len({run.folder for run in config.runs()})


def test_the_demo_compares_methods_orders_and_curricula(repository):
    config = read_config(repository / "config" / "config.yaml")
    found = {f"{run.method}-{run.order}" for run in config.runs()}
    main = {f"{m}-topic" for m in ("grpo", "dr_grpo", "dapo", "entropy_mech", "ebpo")}
    assert found == main | {"ebpo-shuffle", "ebpo-difficulty", "grpo-difficulty"}


def test_paper_has_three_models_and_four_group_sizes(repository):
    config = read_config(repository / "config" / "paper.yaml")
    assert {run.model for run in config.runs()} == {"qwen3-8b", "qwen3-14b", "llama3.1-8b"}
    assert {run.group_size for run in config.runs()} == {4, 8, 16, 32}


def test_a_run_config_survives_its_file(demo):
    config = parse_config(demo)
    for run in config.runs():
        resolved = config.run_config(run)
        assert RunConfig.model_validate(yaml.safe_load(dump_yaml(resolved))) == resolved


def test_an_ebpo_option_changes_the_ebpo_runs_alone(demo):
    before = parse_config(demo)
    after = parse_config(_with(demo, "methods.ebpo.half_life", 512))
    changed = {r.method for r in before.runs() if before.run_config(r) != after.run_config(r)}
    assert changed == {"ebpo"}


def test_difficulty_order_may_have_its_own_number_of_steps(demo):
    config = parse_config(_with(demo, "training.curriculum_steps", 7))
    assert {config.run_config(r).training.steps for r in config.runs() if r.order == "difficulty"} == {7}
    assert {config.run_config(r).training.steps for r in config.runs() if r.order != "difficulty"} == {100}


def test_comparison_runs_are_the_full_product(demo):
    config = parse_config(_with(demo, "comparisons.main.seeds", [0, 1]))
    assert len(list(comparison_runs(config.comparisons["main"]))) == 10


def test_job_sections_show_a_job_its_own_part_alone(demo):
    before = job_sections(parse_config(demo))
    after = job_sections(parse_config(_with(demo, "training.learning_rate", 1e-4)))
    assert before == after  # no data, clustering or evaluation job depends on the learning rate


def test_rebuild_policy_is_understood_as_snakemake_passes_it(demo):
    section = job_sections(parse_config(_with(demo, "rebuild_policy", "true")))["policy-demo"]
    assert section.build is not None

"""Verdicts by the stated rule, on rates and curves whose truth is known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from synthetic_experiment import REPOSITORY, Experiment

from ebpo.config import ExperimentConfig, parse_config
from ebpo.reporting.claim import Claim, verdict_of
from ebpo.reporting.claims import all_claims, claims_frame, claims_table
from ebpo.reporting.claims_methods import accuracy_claims, curve_claims
from ebpo.reporting.claims_theory import penalty_claims, theorem_claims
from ebpo.reporting.paper import read_paper
from ebpo.reporting.rates import experiment_policies
from ebpo.reporting.runs import Run
from ebpo.reporting.scores import Policy
from ebpo.reporting.table import read_markdown, to_markdown
from ebpo.reporting.theory_figures import read_theorems

PAPER = read_paper(REPOSITORY / "config/paper_results.csv")


def configuration(seeds: list[int], sizes: list[int]) -> ExperimentConfig:
    raw = yaml.safe_load((REPOSITORY / "config/config.yaml").read_text(encoding="utf-8"))
    for comparison in raw["comparisons"].values():
        comparison |= {"seeds": seeds, "group_sizes": sizes}
    return parse_config(raw)


def rates(config: ExperimentConfig, gains: dict[Policy, float]) -> pd.DataFrame:
    """Rates of every policy on 40 problems a benchmark: the problem's own, a gain, and noise of run and problem."""
    rng = np.random.default_rng(0)
    hard = {name: rng.uniform(0.2, 0.6, 40) for name in config.evaluation.benchmarks}
    frames = []
    for policy in experiment_policies(config):
        gain = gains.get(policy._replace(seeds=(), checkpoint="final"), 0.0)
        for seed in policy.seeds or (None,):
            run = rng.normal(0, 0.002)
            for name, own in hard.items():
                values = own + gain + run + rng.normal(0, 0.05, len(own))
                frames.append(
                    pd.DataFrame({"benchmark": name, "problem_id": [f"{name}{i}" for i in range(40)], "rate": values})
                    .assign(model=policy.model, method=policy.method, order=policy.order)
                    .assign(group_size=pd.array([policy.group_size] * 40, dtype="Int64"))
                    .assign(seed=pd.array([seed] * 40, dtype="Int64"), checkpoint=policy.checkpoint)
                )
    return pd.concat(frames, ignore_index=True)


def by_name(claims: list[Claim]) -> dict[str, Claim]:
    return {claim.claim: claim for claim in claims}


EBPO = Policy("demo", "ebpo", "topic", 4)


@pytest.mark.parametrize(
    ("effect", "p", "seeds", "high", "verdict"),
    [
        (3.0, 0.05, 3, 5.0, "supported"),
        (3.0, 0.051, 3, 5.0, "undecided"),
        (-3.0, 0.05, 3, -1.0, "not supported"),
        (0.2, 0.5, 3, 0.99, "not supported"),
        (0.2, 0.5, 3, 1.0, "undecided"),
        (0.2, 0.5, 3, None, "undecided"),
        (0.5, 0.01, 3, 0.8, "supported"),
        (9.0, 0.0, 2, 10.0, "undecided"),
        (-9.0, 0.0, 1, -8.0, "undecided"),
    ],
)
def test_the_rule(effect, p, seeds, high, verdict):
    assert verdict_of(effect, p, seeds, high)[0] == verdict


def test_a_clear_gain_is_supported_and_a_clear_loss_is_not():
    config = configuration([0, 1, 2], [4])
    found = by_name(
        accuracy_claims(
            config,
            "demo",
            rates(config, {EBPO: 0.05, EBPO._replace(method="dapo"): 0.10}),
            PAPER,
        )
    )
    gain = found["better_than_grpo"]
    assert gain.measured == pytest.approx(5, abs=1.0)
    assert gain.low is not None
    assert 2 < gain.low < gain.measured < (gain.high or 0) < 8
    assert (gain.verdict, gain.seeds, gain.n) == ("supported", 3, 200)
    assert gain.paper == "+5.67 points (Qwen3-8B, average)"
    assert (found["better_than_dapo"].verdict, found["topic_over_shuffled"].verdict) == ("not supported", "supported")
    # Two equal methods: the interval of their difference is far from one point.
    assert found["curriculum_over_grpo"].verdict == "not supported"
    assert "below 1 point" in found["curriculum_over_grpo"].reason


def test_one_seed_leaves_every_claim_about_methods_undecided():
    config = configuration([0], [4])
    claims = accuracy_claims(config, "demo", rates(config, {EBPO: 0.3}), PAPER)
    assert {claim.verdict for claim in claims} == {"undecided"}
    assert "1 training seed" in by_name(claims)["better_than_grpo"].reason


def test_p_values_are_adjusted_within_the_model():
    config = configuration([0, 1, 2], [4])
    claims = accuracy_claims(config, "demo", rates(config, {}), PAPER)
    tested = [c for c in claims if c.p is not None]
    assert len(tested) == 6
    smallest = min(tested, key=lambda c: c.p or 0)
    assert smallest.p_holm == pytest.approx(min(1, 6 * (smallest.p or 0)))


def test_the_gain_in_small_groups_is_a_difference_of_differences():
    config = configuration([0, 1, 2], [4, 8])
    claim = by_name(accuracy_claims(config, "demo", rates(config, {EBPO: 0.06}), PAPER))["gain_in_small_groups"]
    assert claim.measured == pytest.approx(6, abs=1.5)
    assert (claim.verdict, claim.setting) == ("supported", "demo, G = 4 against 8, best checkpoint")
    assert "G = 8: +11.28 points" in claim.paper


def test_a_missing_evaluation_is_named():
    config = configuration([0, 1, 2], [4])
    frame = rates(config, {})
    lost = (frame["method"] == "dapo") & (frame["seed"] == 1) & (frame["benchmark"] == "algebra")
    with pytest.raises(ValueError, match=r"runs/demo/dapo-topic/G4: 2 of 3 evaluations on benchmark 'algebra'"):
        accuracy_claims(config, "demo", frame[~lost.fillna(False).astype(bool)], PAPER)


def curve_runs(config: ExperimentConfig, ratio: float) -> list[Run]:
    """Runs of ten steps; EBPO's curves are `ratio` times as high as GRPO's, up to noise of the run."""
    rng = np.random.default_rng(1)
    runs = []
    for identity in config.runs():
        level = (ratio if identity.method == "ebpo" else 1.0) * np.exp(rng.normal(0, 0.01))
        metrics = pd.DataFrame({key: level * np.ones(10) for key in ("grad_norm", "kl_step", "entropy")})
        runs.append(Run(identity, 10, metrics, {}))
    return runs


def test_curves_are_compared_by_run_as_a_ratio():
    config = configuration([0, 1, 2], [4])
    found = by_name(curve_claims(config, "demo", curve_runs(config, 0.5)))
    assert found["gradient_norm"].measured == pytest.approx(0.5, rel=0.03)
    assert (found["gradient_norm"].seeds, found["gradient_norm"].n) == (3, 30)
    verdicts = {name: claim.verdict for name, claim in found.items()}
    assert verdicts == {"gradient_norm": "supported", "step_kl": "supported", "entropy": "not supported"}


def test_one_run_per_method_has_a_ratio_and_no_interval():
    config = configuration([0], [4])
    claim = by_name(curve_claims(config, "demo", curve_runs(config, 0.5)))["gradient_norm"]
    assert claim.measured == pytest.approx(0.5, rel=0.05)
    assert (claim.low, claim.p, claim.verdict) == (None, None, "undecided")


def penalty_run(config: ExperimentConfig, raw: list[float]) -> Run:
    metrics = pd.DataFrame({"ebpo/raw_advantage_all_0_groups": raw, "ebpo/mu_glob": [0.0] + [0.5] * (len(raw) - 1)})
    return Run(config.runs()[0], len(raw), metrics, {})


def test_one_step_without_penalty_decides_against_non_vanishing():
    config = configuration([0], [4])
    # The first step is before any success: no penalty is due.
    (claim,) = penalty_claims([penalty_run(config, [0.0, -0.1, -0.2])])
    assert (claim.verdict, claim.n, claim.measured) == ("supported", 2, pytest.approx(-0.15))
    (claim,) = penalty_claims([penalty_run(config, [0.0, -0.1, 0.0])])
    assert claim.verdict == "not supported"
    (claim,) = penalty_claims([])
    assert claim.verdict == "undecided"


def theorem_rows(folder: Path) -> Path:
    path = folder / "theorems.csv"
    head = "theorem,quantity,setting,analytic,simulated,low,high,agree,claim\n"
    path.write_text(
        head + "T1,q,s,1,1.0,0.9,1.1,yes,holds\nT2,q,s,1,1.0,0.9,1.1,yes,fails: larger\n"
        "T2,q,s,1,1.0,0.9,1.1,yes,the reference\nT4,q,s,1,2.0,1.9,2.1,no,holds\n"
    )
    return folder


def test_theorems_get_the_simulations_word(tmp_path):
    claims = theorem_claims(read_theorems(theorem_rows(tmp_path)))
    assert [(c.claim, c.verdict) for c in claims] == [
        ("T1", "supported"),
        ("T2", "not supported"),
        ("T4", "undecided"),
    ]


def test_without_simulations_the_theorems_are_undecided():
    claims = theorem_claims(None)
    assert [c.claim for c in claims] == ["T1", "T2", "T3", "T4", "T5"]
    assert {c.verdict for c in claims} == {"undecided"}


def test_an_unknown_theorem_is_refused(tmp_path):
    with pytest.raises(ValueError, match="theorem 'T9' is unknown"):
        theorem_claims(read_theorems(theorem_rows(tmp_path)).replace("T4", "T9"))


def test_the_table_comes_back_from_markdown(tmp_path):
    config = configuration([0, 1, 2], [4])
    claims = all_claims(config, rates(config, {EBPO: 0.05}), curve_runs(config, 0.5), PAPER)
    assert len(claims_frame(claims)) == len(claims) == 5 + 1 + 7 + 3
    (tmp_path / "claims.md").write_text(to_markdown(claims_table(claims)))
    table = read_markdown(tmp_path / "claims.md")
    verdicts = {row[0].text: row[2].text for row in table.rows}
    assert (verdicts["better_than_grpo"], verdicts["gain_in_small_groups"]) == ("supported", "undecided")
    assert any("Holm" in note for note in table.notes)


def program(experiment: Experiment, *more: object) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable, REPOSITORY / "scripts/claims.py", "--config", experiment.config_path,
        "--runs", *experiment.runs, "--scores", *experiment.scores, "--paper", REPOSITORY / "config/paper_results.csv",
        "--out", experiment.root / "claims", *more,
    ]  # fmt: skip
    return subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=REPOSITORY, check=False)


@pytest.mark.slow
def test_the_program_writes_all_files(experiment, tmp_path):
    result = program(experiment, "--theory", theorem_rows(tmp_path))
    assert result.returncode == 0, result.stderr
    names = {path.name for path in (experiment.root / "claims").iterdir()}
    tables = ["claims", "averages", "differences", "efficiency", "efficiency_targets", "validation"]
    readable = {"claims.md", "efficiency_targets.md", "validation.md"}
    assert names == {*readable, *(f"{name}.csv" for name in tables)}


def test_a_missing_file_is_named(experiment):
    gone = experiment.scores[3].with_name("per_problem.csv")
    gone.unlink()
    result = program(experiment)
    assert result.returncode == 1
    assert f"error: {gone} is missing" in result.stderr


def test_claims_do_not_import_torch():
    code = "import sys; from ebpo.reporting import claims, differences, efficiency; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False).returncode == 0

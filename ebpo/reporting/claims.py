"""The paper's claims beside what this experiment measured, as one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import pandas as pd

from ebpo.config import ExperimentConfig
from ebpo.reporting.claim import METHOD_RULE, Claim, in_points
from ebpo.reporting.claims_methods import accuracy_claims, curve_claims
from ebpo.reporting.claims_theory import penalty_claims, theorem_claims
from ebpo.reporting.runs import Run
from ebpo.reporting.table import Cell, Column, Table


def all_claims(
    config: ExperimentConfig,
    rates: pd.DataFrame,
    runs: Sequence[Run],
    paper: pd.DataFrame,
    theorems: pd.DataFrame | None = None,
) -> list[Claim]:
    """Every claim, those about methods first.

    Args:
        config: the experiment.
        rates: from `ebpo.reporting.scores.read_rates`.
        runs: all runs.
        paper: from `ebpo.reporting.paper.read_paper`.
        theorems: from `ebpo.reporting.theory_figures.read_theorems`; None if the simulations were not run.

    Raises:
        ValueError: rates of a run of the configuration are missing.
    """
    claims: list[Claim] = []
    for model in config.models:
        claims += accuracy_claims(config, model, rates, paper)
        claims += curve_claims(config, model, runs)
    return [*claims, *penalty_claims(runs), *theorem_claims(theorems)]


def claims_frame(claims: Sequence[Claim]) -> pd.DataFrame:
    """One row per claim, the fields of `Claim` as columns."""
    return pd.DataFrame([asdict(claim) for claim in claims])


def claims_table(claims: Sequence[Claim]) -> Table:
    """The claims for readers; `to_markdown` writes it, the report reads it back."""
    columns = [("claim", "Claim"), ("statement", "The paper says"), ("verdict", "Verdict")]
    columns += [("measured", "Measured [95 % interval]"), ("paper", "Paper"), ("seeds", "Seeds"), ("n", "n")]
    columns += [("p_holm", "p (Holm)"), ("evidence", "Measured on"), ("reason", "Why"), ("also", "Not decisive")]
    numeric = {"seeds", "n", "p_holm"}
    rows = tuple(
        (
            Cell(text=claim.claim),
            Cell(text=claim.statement),
            Cell(text=claim.verdict, bold=claim.verdict != "undecided"),
            Cell(text=_measured(claim)),
            Cell(text=claim.paper),
            Cell(text="" if claim.seeds is None else str(claim.seeds)),
            Cell(text="" if claim.n is None else f"{claim.n:,}"),
            Cell(text=_p(claim.p_holm)),
            Cell(text=", ".join(part for part in (claim.evidence, claim.setting) if part)),
            Cell(text=claim.reason),
            Cell(text=claim.also),
        )
        for claim in claims
    )
    notes = (
        METHOD_RULE,
        "Accuracy: of the checkpoint that the paper evaluates (best by validation; final for easy-to-hard runs), the "
        "other one is in the last column; paired over problems and training seeds, macro-average of the benchmarks, "
        "Student's t; n is the number of problems. Training curves: mean over the steps of a run, EBPO / GRPO, paired "
        "by seed; n is the number of steps. Holm's correction is over the accuracy claims, and over the curve claims, "
        "of one model.",
        "Theorems: supported or not as the simulation, checked against the closed form, says for that quantity. "
        "On training steps T1 holds if it holds at every step.",
    )
    headers = tuple(Column(key, header, numeric=key in numeric) for key, header in columns)
    return Table("claims", headers, rows, "The paper's claims, and what this experiment says of them.", notes)


def _p(value: float | None) -> str:
    if value is None:
        return ""
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _measured(claim: Claim) -> str:
    if claim.measured is None:
        return ""
    if claim.unit == "points":
        return f"{in_points(claim.measured, claim.low, claim.high)} points"

    def show(value: float) -> str:
        return f"{value:.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:.2e}"

    interval = "" if claim.low is None or claim.high is None else f" [{show(claim.low)}, {show(claim.high)}]"
    return f"{show(claim.measured)}{interval}{f' {claim.unit}' if claim.unit else ''}"

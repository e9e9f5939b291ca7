"""The paper's theorems: as the simulations found them, and as far as training steps show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from ebpo.reporting.claim import Claim, Verdict
from ebpo.reporting.runs import Run

_THEOREMS = {
    "T1": "a group without success has a negative raw advantage, where GRPO's is 0",
    "T2": "the shrunk baseline has a smaller mean squared error than the group mean",
    "T3": "the penalty of a group without success grows with the global mean",
    "T4": "entropy decays more slowly than with GRPO",
    "T5": "a prior per topic removes the variance between topics",
}


def penalty_claims(runs: Sequence[Run]) -> list[Claim]:
    """T1 on the training steps themselves: the raw advantage of groups without success, once anything has succeeded.

    It follows from the algorithm, so any step at which it does not hold decides against it, and no seeds are needed.
    """
    key, values, count = "ebpo/raw_advantage_all_0_groups", [], 0
    for run in runs:
        if run.series(key).empty:
            continue
        steps = run.metrics[[key, "ebpo/mu_glob"]].dropna().astype("float64")
        values += steps.loc[steps["ebpo/mu_glob"] > 0, key].tolist()
        count += 1
    claim = Claim("T1", _sentence(_THEOREMS["T1"]), "", "training steps", f"{count} EBPO runs", "raw advantage")
    if not values:
        return [replace(claim, reason="no step of an EBPO run had a group without success after a first success")]
    failed = sum(value >= 0 for value in values)
    span = f"from {min(values):.3f} to {max(values):.3f}"
    reason = f"negative at {len(values) - failed} of {len(values)} steps, {span}; measured is the mean"
    return [
        replace(
            claim, measured=float(np.mean(values)), n=len(values),
            verdict="not supported" if failed else "supported", reason=reason,
        )
    ]  # fmt: skip


def theorem_claims(theorems: pd.DataFrame | None) -> list[Claim]:
    """T1 to T5 by simulation: a row for each quantity of which the simulation says whether the paper's claim holds.

    Supported where the claim holds and the simulation agrees with the closed form (or there is none), not supported
    where it fails; where the simulation contradicts the closed form neither is trusted: undecided.

    Args:
        theorems: from `ebpo.reporting.theory_figures.read_theorems`; None if the simulations were not run.

    Raises:
        ValueError: a row is of an unknown theorem.
    """
    if theorems is None:
        reason = "the simulations were not given"
        return [Claim(name, _sentence(text), "", "simulation", "", reason=reason) for name, text in _THEOREMS.items()]
    unknown = sorted(set(theorems["theorem"]) - set(_THEOREMS))
    if unknown:
        raise ValueError(f"theorem {unknown[0]!r} is unknown; allowed: {sorted(_THEOREMS)}")
    claims = []
    for row in theorems.to_dict("records"):
        says = str(row["claim"])
        outcome: Verdict | None = (
            "supported" if says.startswith("holds") else "not supported" if says.startswith("fails") else None
        )
        if outcome is None:
            continue  # a row of reference
        if row["agree"] == "no":
            outcome, says = "undecided", "the simulation contradicts the closed form"
        claims.append(
            Claim(
                str(row["theorem"]), _sentence(_THEOREMS[str(row["theorem"])]), "", "simulation",
                f"{row['quantity']}; {row['setting']}", measured=float(row["simulated"]), low=float(row["low"]),
                high=float(row["high"]), verdict=outcome, reason=says,
            )
        )  # fmt: skip
    return claims


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]

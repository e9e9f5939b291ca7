"""What validation during training says of each run: its best step, and what it gains over the last one."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ebpo.reporting.runs import Run


def validation_summary(runs: Sequence[Run], samples: int) -> pd.DataFrame:
    """The best and the last validation of each run.

    Args:
        runs: all runs.
        samples: n, completions per validation problem.

    Returns:
        Rows of model, method, order, group_size, seed; best_step: the first after step 0 (the base policy) with the
        largest maj@n, whose weights the run keeps as its best checkpoint; final_step; and for each of them maj_at_n,
        pass_at_n and pass_at_1 of the validation problems in [0, 1], as best_maj_at_n, final_maj_at_n, ...

    Raises:
        ValueError: a run recorded no validation.
    """
    metrics = {f"maj_at_{samples}": f"maj@{samples}", f"pass_at_{samples}": f"pass@{samples}", "pass_at_1": "pass@1"}
    rows = []
    for run in runs:
        votes = run.series(f"validation/maj@{samples}")
        votes = votes[votes.index > 0]
        if votes.empty:
            raise ValueError(f"{run.id.folder}: metrics.jsonl has no validation/maj@{samples}")
        validated = votes.index.to_list()
        steps = {"best": validated[int(votes.argmax())], "final": validated[-1]}
        values = {
            f"{name}_{column}": float(run.series(f"validation/{key}").loc[step])
            for name, step in steps.items()
            for column, key in metrics.items()
        }
        rows.append({**run.id.model_dump(), "best_step": steps["best"], "final_step": steps["final"], **values})
    return pd.DataFrame(rows)

"""The numbers that the paper reports, for the columns beside ours."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ebpo.reporting.scores import Policy

BENCHMARKS = {
    "math500": "MATH-500",
    "aime24": "AIME24",
    "aime25": "AIME25",
    "amc23": "AMC23",
    "olympiad": "Olympiad",
    "average": "Average",
}
FALLBACK = "Qwen3-8B"
COLUMNS = ["table", "model", "method", "order", "group_size", "benchmark", "quantity", "pass_at_1"]


def read_paper(path: Path) -> pd.DataFrame:
    """Reads the paper's numbers (percent; NaN where one is not available).

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: the file is empty or lacks a column.
    """
    if not path.is_file():
        raise FileNotFoundError(f"file of the paper's results {path} is missing")
    try:
        frame = pd.read_csv(path, dtype={"group_size": "Int64"})
    except ValueError as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from None
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise ValueError(f"{path}: columns {missing} are missing")
    return frame


def paper_model(paper: pd.DataFrame, model: str) -> str:
    """The paper's model that a row stands beside: the same one if the paper has it, else Qwen3-8B."""
    names = {str(name).lower(): str(name) for name in paper["model"]}
    return names.get(model.lower(), FALLBACK)


def paper_value(paper: pd.DataFrame, policy: Policy, benchmark: str, quantity: str = "pass_at_1") -> float | None:
    """A number of the paper in percent, or None where it is not reported or not available.

    The group size must be the same; a gain is looked up without it, since the paper states it without.
    """
    rows = paper[
        (paper["model"] == paper_model(paper, policy.model))
        & (paper["method"] == policy.method)
        & (paper["order"] == policy.order)
        & (paper["benchmark"] == benchmark)
        & (paper["quantity"] == quantity)
        & paper["pass_at_1"].notna()
    ]
    if policy.group_size is None:
        return None
    same = (rows["group_size"] == policy.group_size).fillna(quantity == "gain_over_grpo").astype(bool)
    values = rows.loc[same, "pass_at_1"]
    return None if values.empty else float(values.iloc[0])

"""The tables of an experiment: main comparison, clustering ablation, curriculum comparison, or any other comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from ebpo.config import ExperimentConfig
from ebpo.reporting.labels import method_label, order_label
from ebpo.reporting.paper import BENCHMARKS, FALLBACK, paper_model, paper_value
from ebpo.reporting.scores import (
    AVERAGE,
    Policy,
    Score,
    check_comparable,
    comparison_policies,
    difference,
    policy_scores,
    summarise,
)
from ebpo.reporting.table import DASH, Cell, Column, Table

OURS, PAPER = "This replication", "Paper"
TITLES = {
    "main": "Main comparison",
    "clustering": "Clustering ablation: EBPO with problems ordered by topic, and shuffled",
    "curriculum": "Curriculum comparison: problems ordered from easy to hard",
}


def build_table(
    config: ExperimentConfig, name: str, scores: pd.DataFrame, paper: pd.DataFrame, rates: pd.DataFrame | None = None
) -> Table:
    """The table of a comparison.

    Args:
        config: the experiment.
        name: a comparison of it. `clustering` gets rows with the difference topic minus shuffled, `curriculum` with
            EBPO minus GRPO; any other name gives the plain table of its runs.
        scores: from `read_scores`.
        paper: from `read_paper`.
        rates: from `read_rates`; differences are paired over problems if given.

    Raises:
        ValueError: the comparison is unknown, a score is missing, or the scores were measured differently.
    """
    if name not in config.comparisons:
        raise ValueError(f"comparison {name!r} is not defined; allowed: {sorted(config.comparisons)}")
    comparison, benchmarks = config.comparisons[name], config.evaluation.benchmarks
    policies = comparison_policies(comparison)
    used = pd.concat([policy_scores(scores, policy, benchmarks) for policy in policies])
    check_comparable(used)
    values = {policy: summarise(scores, policy, benchmarks) for policy in policies}
    best = marked(values)
    pairs = _differences(name, policies)

    candidates: list[Policy | tuple[Policy, Policy]] = [*policies, *pairs]
    shown = [b for b in BENCHMARKS if any(_reported(paper, row, b) is not None for row in candidates)]
    rows: list[tuple[Cell, ...]] = []
    for model in comparison.models:
        for policy in (p for p in policies if p.model == model):
            cells = [
                Cell(score.mean, score.se, bold=(policy, column) in best) for column, score in values[policy].items()
            ]
            seeds = str(len(policy.seeds)) if policy.seeds else ""
            label = (
                Cell(text=method_label(policy.method), key=policy.method),
                Cell(text=order_label(policy.order), key=policy.order),
            )
            rows.append(_row(policy, label, seeds, cells, paper, shown, policy))
        for a, b in (pair for pair in pairs if pair[0].model == model):
            delta = difference(scores, rates, a, b, benchmarks)
            cells = [Cell(score.mean, score.se, signed=True) for score in delta.values()]
            label = _difference_label(a, b)
            rows.append(_row(a, label, str(len(a.seeds)), cells, paper, shown, (a, b)))

    samples = int(used["samples"].iloc[0])
    title = TITLES.get(name, f"Comparison {name}")
    caption = (
        f"{title}. Pass@1 in percent ± standard error; pass@1 = avg@{samples}, the mean over {samples} sampled "
        + ("completions per problem." if samples > 1 else "completion per problem.")
    )
    notes = _notes(used, benchmarks, policies, bool(pairs), rates is not None)
    return Table(
        name, _columns(benchmarks, shown), tuple(rows), caption, (*notes, *_paper_notes(paper, policies, shown))
    )


def marked(values: Mapping[Policy, Mapping[str, Score]]) -> set[tuple[Policy, str]]:
    """Which cells are bold: in each column the best, with all whose difference from it is within 2 standard errors.

    The contest is among the rows of one model and group size; a base policy takes part in each of its model's, and
    is bold if it is so in all. A contest without a second row marks nothing.
    """
    contests: dict[tuple[str, int], list[Policy]] = {}
    for policy in values:
        if policy.group_size is not None:
            contests.setdefault((policy.model, policy.group_size), []).append(policy)
    bold: set[tuple[Policy, str]] = set()
    lost: set[tuple[Policy, str]] = set()
    for (model, _), rows in contests.items():
        entrants = [p for p in values if p.model == model and p.group_size is None] + rows
        if len(entrants) < 2:
            continue
        for column in values[entrants[0]]:
            top = max((values[p][column] for p in entrants), key=lambda score: score.mean)
            for p in entrants:
                score = values[p][column]
                near = top.mean - score.mean <= 2 * math.hypot(top.se, score.se)
                (bold if near else lost).add((p, column))
    return bold - lost


def _differences(name: str, policies: Sequence[Policy]) -> list[tuple[Policy, Policy]]:
    """Pairs (a, b) whose difference a - b the table shows."""
    if name == "clustering":
        pairs = [(a, a._replace(order="shuffle")) for a in policies if a.order == "topic"]
    elif name == "curriculum":
        pairs = [(a, a._replace(method="grpo")) for a in policies if a.method == "ebpo"]
    else:
        pairs = []
    return [(a, b) for a, b in pairs if b in policies]


def _difference_label(a: Policy, b: Policy) -> tuple[Cell, Cell]:
    if a.method == b.method:
        orders = f"{order_label(a.order)} − {order_label(b.order)}"
        return Cell(text=method_label(a.method), key=a.method), Cell(text=orders, key=f"{a.order}-{b.order}")
    methods = f"{method_label(a.method)} − {method_label(b.method)}"
    return Cell(text=methods, key=f"{a.method}-{b.method}"), Cell(text=order_label(a.order), key=a.order)


def _reported(paper: pd.DataFrame, row: Policy | tuple[Policy, Policy], benchmark: str) -> float | None:
    """The paper's number for a row; for a difference its reported gain, or else the difference of its two numbers."""
    if isinstance(row, Policy):
        return paper_value(paper, row, benchmark)
    a, b = row
    if b.method == "grpo" and (gain := paper_value(paper, a, benchmark, "gain_over_grpo")) is not None:
        return gain
    of_a, of_b = paper_value(paper, a, benchmark), paper_value(paper, b, benchmark)
    return None if of_a is None or of_b is None else of_a - of_b


def _columns(benchmarks: Sequence[str], shown: Sequence[str]) -> tuple[Column, ...]:
    keys = [("model", "Model"), ("method", "Method"), ("order", "Order")]
    columns = [Column(key, header, numeric=False) for key, header in keys]
    columns += [Column("group_size", "G"), Column("seeds", "Seeds")]
    columns += [Column(name, BENCHMARKS.get(name, name), OURS) for name in (*benchmarks, AVERAGE)]
    if shown:
        columns.append(Column("paper_model", "Paper: model", PAPER, numeric=False))
    return (*columns, *(Column(f"paper_{name}", f"Paper: {BENCHMARKS[name]}", PAPER) for name in shown))


def _row(
    policy: Policy,
    label: tuple[Cell, Cell],
    seeds: str,
    cells: Sequence[Cell],
    paper: pd.DataFrame,
    shown: Sequence[str],
    reported: Policy | tuple[Policy, Policy],
) -> tuple[Cell, ...]:
    size = "" if policy.group_size is None else str(policy.group_size)
    head = [Cell(text=policy.model), *label, Cell(text=size), Cell(text=seeds)]
    signed = not isinstance(reported, Policy)
    theirs = [Cell(_reported(paper, reported, name), signed=signed) for name in shown]
    known = any(cell.value is not None for cell in theirs)
    source = [Cell(text=paper_model(paper, policy.model) if known else "")] if shown else []
    return (*head, *cells, *source, *theirs)


def _notes(
    used: pd.DataFrame, benchmarks: Sequence[str], policies: Sequence[Policy], differences: bool, paired: bool
) -> list[str]:
    sizes = ", ".join(
        f"{BENCHMARKS.get(name, name)} {low}" if low == high else f"{BENCHMARKS.get(name, name)} {low} to {high}"
        for name in benchmarks
        for counts in [used.loc[used["benchmark"] == name, "problems"]]
        for low, high in [(int(counts.min()), int(counts.max()))]
    )
    notes = [
        f"Standard errors are over problems, all completions of a problem being one cluster. Problems scored: {sizes}.",
        "Average is the mean of the benchmark means; its standard error takes the benchmarks as independent.",
        "Bold: the best of a column among the rows of one model and group size, and every row whose difference from it "
        "is within 2 standard errors of the difference (errors taken as independent, so the rule is cautious).",
    ]
    if any(len(p.seeds) > 1 for p in policies):
        notes.append(
            "Rows over several seeds show the mean of the seeds; se² = mean of the seeds' se² + variance of the seeds' "
            "means / seeds, since the seeds share the problems."
        )
    else:
        notes.append("One training seed per row: the errors do not contain the spread between training runs.")
    if differences:
        notes.append(
            "Difference rows (−): paired over problems, in percentage points."
            if paired
            else "Difference rows (−): in percentage points, the errors of the two rows taken as independent."
        )
    protocols = ", ".join(dict.fromkeys(used["protocol"]))
    return [*notes, f"Evaluation protocol: {protocols}."]


def _paper_notes(paper: pd.DataFrame, policies: Sequence[Policy], shown: Sequence[str]) -> list[str]:
    if not shown:
        return ["The paper reports no number for these runs."]
    notes = [
        "Columns headed Paper are the numbers that the paper reports (arXiv 2602.05165) for the same method, "
        f"order and group size; {DASH} means not reported or not available."
    ]
    foreign = [m for m in dict.fromkeys(p.model for p in policies) if paper_model(paper, m).lower() != m.lower()]
    if foreign:
        notes.append(
            f"The paper has no model {', '.join(foreign)}: its {FALLBACK} stands beside it, "
            "trained on other data and at another scale."
        )
    return notes

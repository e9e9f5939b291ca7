"""The tables of an experiment: main comparison, clustering ablation, curriculum comparison, or any other comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from ebpo.config import ExperimentConfig
from ebpo.evaluation.intervals import Interval, t_interval
from ebpo.reporting.labels import method_label, order_label
from ebpo.reporting.paper import BENCHMARKS, FALLBACK, paper_model, paper_value
from ebpo.reporting.rates import difference_intervals, paired_strata, policy_intervals, with_average
from ebpo.reporting.scores import (
    AVERAGE,
    Policy,
    check_comparable,
    comparison_policies,
    paper_checkpoint,
    policy_scores,
)
from ebpo.reporting.table import DASH, Cell, Column, Table

OURS, PAPER = "This replication", "Paper"
TITLES = {
    "main": "Main comparison",
    "clustering": "Clustering ablation: EBPO with problems ordered by topic, and shuffled",
    "curriculum": "Curriculum comparison: problems ordered from easy to hard",
}


def build_table(
    config: ExperimentConfig, name: str, scores: pd.DataFrame, rates: pd.DataFrame, paper: pd.DataFrame
) -> Table:
    """The table of a comparison: pass@1 with its 95 % interval in every cell, best and final checkpoints.

    Args:
        config: the experiment.
        name: a comparison of it. `clustering` gets rows with the difference topic minus shuffled, `curriculum` with
            EBPO minus GRPO; any other name gives the plain table of its runs.
        scores: from `read_scores`.
        rates: from `read_rates`.
        paper: from `read_paper`.

    Raises:
        ValueError: the comparison is unknown, a score is missing, or the scores were measured differently.
    """
    if name not in config.comparisons:
        raise ValueError(f"comparison {name!r} is not defined; allowed: {sorted(config.comparisons)}")
    comparison, benchmarks = config.comparisons[name], config.evaluation.benchmarks
    policies = comparison_policies(comparison)
    used = pd.concat([policy_scores(scores, policy, benchmarks) for policy in policies])
    check_comparable(used)
    values = {policy: policy_intervals(rates, policy, benchmarks) for policy in policies}
    best = marked(values, rates, benchmarks)
    pairs = _differences(name, policies)

    candidates: list[Policy | tuple[Policy, Policy]] = [*policies, *pairs]
    shown = [b for b in BENCHMARKS if any(_reported(paper, row, b) is not None for row in candidates)]
    rows: list[tuple[Cell, ...]] = []
    for model in comparison.models:
        for policy in (p for p in policies if p.model == model):
            cells = [_cell(score, bold=(policy, column) in best) for column, score in values[policy].items()]
            seeds = str(len(policy.seeds)) if policy.seeds else ""
            label = (
                Cell(text=method_label(policy.method), key=policy.method),
                Cell(text=order_label(policy.order), key=policy.order),
            )
            rows.append(_row(policy, label, seeds, cells, paper, shown, policy))
        for a, b in (pair for pair in pairs if pair[0].model == model):
            delta = difference_intervals(rates, a, b, benchmarks)
            cells = [_cell(score, signed=True) for score in delta.values()]
            label = _difference_label(a, b)
            rows.append(_row(a, label, str(len(a.seeds)), cells, paper, shown, (a, b)))

    samples = int(used["samples"].iloc[0])
    title = TITLES.get(name, f"Comparison {name}")
    caption = (
        f"{title}. Pass@1 in percent [95 % interval]; pass@1 = avg@{samples}, the mean over {samples} sampled "
        + ("completions per problem." if samples > 1 else "completion per problem.")
    )
    gains = any(a.method != b.method for a, b in pairs)
    notes = _notes(used, benchmarks, policies, bool(pairs)) + _paper_notes(paper, policies, shown, gains)
    return Table(name, _columns(benchmarks, shown), tuple(rows), caption, tuple(notes))


def _cell(score: Interval, bold: bool = False, signed: bool = False) -> Cell:
    return Cell(100 * score.mean, 100 * score.low, 100 * score.high, bold=bold, signed=signed)


def marked(
    values: Mapping[Policy, Mapping[str, Interval]], rates: pd.DataFrame, benchmarks: Sequence[str]
) -> set[tuple[Policy, str]]:
    """Which cells are bold: in each column the best, with all whose paired difference from it has 0 in its interval.

    The contest is among the rows of one model, group size and checkpoint; a base policy takes part in each of its
    model's, and is bold if it is so in all. A contest without a second row marks nothing.
    """
    contests: dict[tuple[str, int, str], list[Policy]] = {}
    for policy in values:
        if policy.group_size is not None:
            contests.setdefault((policy.model, policy.group_size, policy.checkpoint), []).append(policy)
    bold: set[tuple[Policy, str]] = set()
    lost: set[tuple[Policy, str]] = set()
    for (model, _, _), rows in contests.items():
        entrants = [p for p in values if p.model == model and p.group_size is None] + rows
        if len(entrants) < 2:
            continue
        rivals = dict(zip(entrants, map(with_average, paired_strata(rates, entrants, benchmarks)), strict=True))
        for column in values[entrants[0]]:
            top = max(entrants, key=lambda p: values[p][column].mean)
            for p in entrants:
                behind = t_interval([x - y for x, y in zip(rivals[p][column], rivals[top][column], strict=True)])
                (bold if p == top or behind.low <= 0 <= behind.high else lost).add((p, column))
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
    """The paper's number for a row; for a difference its reported gain, or else the difference of its two numbers.

    None for a checkpoint that the paper does not evaluate.
    """
    first = row if isinstance(row, Policy) else row[0]
    if first.checkpoint != paper_checkpoint(first.order):
        return None
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
    columns += [Column("checkpoint", "Checkpoint", numeric=False)]
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
    checkpoint = Cell(text=policy.checkpoint if size else "")
    head = [Cell(text=policy.model), *label, checkpoint, Cell(text=size), Cell(text=seeds)]
    signed = not isinstance(reported, Policy)
    theirs = [Cell(_reported(paper, reported, name), signed=signed) for name in shown]
    known = any(cell.value is not None for cell in theirs)
    source = [Cell(text=paper_model(paper, policy.model) if known else "")] if shown else []
    return (*head, *cells, *source, *theirs)


def _notes(used: pd.DataFrame, benchmarks: Sequence[str], policies: Sequence[Policy], differences: bool) -> list[str]:
    sizes = ", ".join(
        f"{BENCHMARKS.get(name, name)} {low}" if low == high else f"{BENCHMARKS.get(name, name)} {low} to {high}"
        for name in benchmarks
        for counts in [used.loc[used["benchmark"] == name, "problems"]]
        for low, high in [(int(counts.min()), int(counts.max()))]
    )
    one_seed = (
        "One seed: BCa bootstrap over problems, all completions of a problem being one cluster; the spread between "
        "training runs is not in it."
    )
    several = "Several seeds: Student's t over problems and training runs."
    counts = {len(p.seeds) for p in policies if p.seeds}
    intervals = " ".join(text for text, shown in ((one_seed, 1 in counts), (several, max(counts) > 1)) if shown)
    notes = [
        f"Intervals are 95 %. {intervals} Problems scored: {sizes}.",
        "Average is the mean of the benchmark means.",
        "Checkpoint: best by maj@n on the validation problems during training, and final. The paper evaluates the best "
        "one, and of easy-to-hard runs the final one.",
        "Bold: the best of a column among the rows of one model, group size and checkpoint, and every row whose "
        "difference from it, paired over problems, has 0 in its 95 % interval.",
    ]
    if differences:
        notes.append("Difference rows (−): paired over problems and seeds, Student's t, in percentage points.")
    protocols = ", ".join(dict.fromkeys(used["protocol"]))
    return [*notes, f"Evaluation protocol: {protocols}."]


def _paper_notes(paper: pd.DataFrame, policies: Sequence[Policy], shown: Sequence[str], gains: bool) -> list[str]:
    if not shown:
        return ["The paper reports no number for these runs."]
    notes = [
        "Columns headed Paper are the numbers that the paper reports (arXiv 2602.05165) for the same method, "
        f"order, group size and checkpoint; {DASH} means not reported or not available."
    ]
    if gains:
        notes.append(
            "The paper does not say at which group size it gained over GRPO: its gain stands beside each of ours."
        )
    foreign = [m for m in dict.fromkeys(p.model for p in policies) if paper_model(paper, m).lower() != m.lower()]
    if foreign:
        notes.append(
            f"The paper has no model {', '.join(foreign)}: its {FALLBACK} stands beside it, "
            "trained on other data and at another scale."
        )
    return notes

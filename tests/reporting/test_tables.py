"""Cells against hand computation, the bold rule, refusals, and the three forms of a table."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic_experiment import REPOSITORY, Experiment

from ebpo.config import Comparison
from ebpo.evaluation.intervals import bootstrap_interval, t_interval
from ebpo.reporting.paper import paper_value, read_paper
from ebpo.reporting.rates import difference_intervals, policy_intervals
from ebpo.reporting.scores import (
    Policy,
    check_comparable,
    comparison_policies,
    policy_scores,
    read_rates,
    read_scores,
)
from ebpo.reporting.table import Cell, Column, Table, latex_escape, read_markdown, to_csv, to_latex, to_markdown
from ebpo.reporting.tables import build_table, marked

PAPER = REPOSITORY / "config/paper_results.csv"
RUN = Policy("m", "ebpo", "topic", 4, (0, 1))
BASE = Policy("m", "base")


def rates_of(policy: Policy, values: dict[tuple[int, str], list[float]]) -> pd.DataFrame:
    """Rates of a policy by seed and benchmark, of the problems 0, 1, ..."""
    frames = [
        pd.DataFrame({"seed": seed, "benchmark": name, "problem_id": [str(i) for i in range(len(own))], "rate": own})
        for (seed, name), own in values.items()
    ]
    frame = pd.concat(frames, ignore_index=True).assign(model=policy.model, method=policy.method, order=policy.order)
    size = pd.array([policy.group_size] * len(frame), dtype="Int64")
    seeds = frame["seed"].astype("Int64").where(frame["seed"] >= 0)
    return frame.assign(group_size=size, seed=seeds, checkpoint=policy.checkpoint)


def test_one_seed_has_the_bootstrap_and_several_have_students_t() -> None:
    first, second = [0.1, 0.5, 0.9, 0.3], [0.2, 0.4, 0.8, 0.2]
    one = policy_intervals(rates_of(RUN, {(0, "a"): first}), RUN._replace(seeds=(0,)), ["a"])
    assert one["a"] == bootstrap_interval(np.array(first))
    two = policy_intervals(rates_of(RUN, {(0, "a"): first, (1, "a"): second}), RUN, ["a"])
    expected = t_interval(np.array([first, second]))
    # Student's t knows no limits; a pass rate does.
    assert (two["a"].mean, two["a"].se) == (expected.mean, expected.se)
    assert expected.low < 0 == two["a"].low


def test_average_is_the_mean_of_the_benchmarks_means() -> None:
    rates = rates_of(RUN, {(0, "a"): [0.0, 0.2], (0, "b"): [0.5, 0.5, 0.8]})
    assert policy_intervals(rates, RUN._replace(seeds=(0,)), ["a", "b"])["average"].mean == pytest.approx(0.35)


def test_a_checkpoint_is_never_taken_for_the_other() -> None:
    best, final = RUN._replace(seeds=(0,), checkpoint="best"), RUN._replace(seeds=(0,))
    rates = pd.concat([rates_of(best, {(0, "a"): [0.6, 0.8]}), rates_of(final, {(0, "a"): [0.1, 0.3]})])
    found = [policy_intervals(rates, policy, ["a"])["a"].mean for policy in (best, final)]
    assert found == pytest.approx([0.7, 0.2])


def test_differences_are_paired_by_problem() -> None:
    a, b = RUN._replace(seeds=(0,)), RUN._replace(method="grpo", seeds=(0,))
    rates = pd.concat([rates_of(a, {(0, "a"): [1.0, 0.5]}), rates_of(b, {(0, "a"): [0.5, 0.25, 1.0]})])
    result = difference_intervals(rates, a, b, ["a"])["a"]
    # Differences 0.5 and 0.25: mean 0.375, sd 0.1768, over sqrt(2) 0.125; the third problem is not in both.
    assert (result.mean, result.se) == pytest.approx((0.375, 0.125))


def test_runs_without_a_common_seed_are_refused() -> None:
    with pytest.raises(ValueError, match="no seed in common"):
        difference_intervals(pd.DataFrame(), RUN._replace(seeds=(0,)), RUN._replace(seeds=(1,)), ["a"])


def score_rows(rows: list[tuple[int, str]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["seed", "benchmark"])
    identity = {"model": "m", "method": "ebpo", "order": "topic", "group_size": 4, "checkpoint": "final"}
    return frame.assign(**identity, source="f")


def test_missing_benchmark_names_run_and_benchmark() -> None:
    with pytest.raises(ValueError, match=r"runs/m/ebpo-topic/G4/seed1, final checkpoint: .* benchmark 'a'"):
        policy_scores(score_rows([(0, "a")]), RUN, ["a"])


def test_a_score_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="2 scores on benchmark 'a'"):
        policy_scores(score_rows([(0, "a"), (0, "a"), (1, "a")]), RUN, ["a"])


def marks(rows: dict[Policy, list[float]]) -> set[tuple[Policy, str]]:
    rates = pd.concat([rates_of(policy, {(0 if policy.seeds else -1, "a"): values}) for policy, values in rows.items()])
    found = marked({policy: policy_intervals(rates, policy, ["a"]) for policy in rows}, rates, ["a"])
    return {mark for mark in found if mark[1] == "a"}


def test_bold_is_the_best_with_all_whose_paired_difference_may_be_0() -> None:
    x, y, z = (Policy("m", k, "topic", 4, (0,)) for k in ("x", "y", "z"))
    top = [0.4, 0.5, 0.6, 0.7]
    # y differs from the top by 0.1 on one problem and -0.2 on another; z loses about 0.1 on every one.
    rows = {BASE: [0.0] * 4, x: top, y: [0.5, 0.3, 0.6, 0.7], z: [0.3, 0.41, 0.5, 0.59]}
    assert marks(rows) == {(x, "a"), (y, "a")}


def test_bold_contest_stays_within_model_group_size_and_checkpoint() -> None:
    small, large = Policy("m", "x", "topic", 4, (0,)), Policy("m", "x", "topic", 8, (0,))
    best = large._replace(checkpoint="best")
    rows = {BASE: [0.3, 0.31, 0.3], small: [0.2, 0.2, 0.21], large: [0.4, 0.41, 0.4], best: [0.9, 0.9, 0.91]}
    assert marks(rows) == {(large, "a"), (best, "a")}  # the base policy wins at 4 and loses at 8


def test_rows_begin_with_the_checkpoint_that_the_paper_evaluates() -> None:
    for order, checkpoints in (("topic", ["best", "final"]), ("difficulty", ["final", "best"])):
        policies = comparison_policies(Comparison(models=["m"], methods=["ebpo"], orders=[order]))
        assert [p.method for p in policies] == ["base", "ebpo", "ebpo"]
        assert [p.checkpoint for p in policies[1:]] == checkpoints


def test_mixed_protocols_name_both() -> None:
    mixed = pd.DataFrame({"model": "m", "protocol": ["p1", "p2"], "samples": 8, "source": ["f1", "f2"]})
    with pytest.raises(ValueError, match=r"protocol p1 \(f1\) and protocol p2 \(f2\) are mixed"):
        check_comparable(mixed)


def test_mixed_samples_are_refused_across_models() -> None:
    mixed = pd.DataFrame({"model": ["m", "n"], "protocol": ["p1", "p2"], "samples": [8, 16], "source": ["f1", "f2"]})
    with pytest.raises(ValueError, match=r"samples 8 \(f1\) and samples 16 \(f2\)"):
        check_comparable(mixed)


@pytest.mark.parametrize(
    ("model", "method", "order", "size", "benchmark", "value"),
    [
        ("qwen3-8b", "grpo", "topic", 4, "math500", 65.60),
        ("qwen3-8b", "ebpo", "topic", 4, "average", 64.39),
        ("qwen3-8b", "entropy_mech", "topic", 4, "amc23", 79.99),
        ("llama3.1-8b", "grpo", "topic", 4, "aime25", 0.00),
        ("llama3.1-8b", "ebpo", "topic", 4, "math500", None),
        ("qwen3-14b", "dapo", "topic", 4, "aime24", 57.29),
        ("qwen3-14b", "ebpo", "shuffle", 4, "olympiad", 48.41),
        ("qwen3-8b", "grpo", "topic", 8, "average", 54.26),
        ("qwen3-8b", "ebpo", "topic", 8, "average", 65.54),
        ("qwen3-8b", "ebpo", "topic", 16, "average", None),
        ("qwen3-8b", "dapo", "topic", 32, "math500", 72.71),
        ("qwen3-8b", "ebpo", "shuffle", 4, "math500", 68.58),
        ("demo", "ebpo", "shuffle", 4, "amc23", 87.34),  # a model of ours stands beside Qwen3-8B
        ("demo", "ebpo", "shuffle", 2, "amc23", None),
    ],
)
def test_paper_numbers(model: str, method: str, order: str, size: int, benchmark: str, value: float | None) -> None:
    assert paper_value(read_paper(PAPER), Policy(model, method, order, size), benchmark) == value


def test_paper_curriculum_gains() -> None:
    paper, policy = read_paper(PAPER), Policy("qwen3-8b", "ebpo", "difficulty", 4)
    assert paper_value(paper, policy, "aime24", "gain_over_grpo") == 3.95
    assert paper_value(paper, policy, "aime25", "gain_over_grpo") == 6.04
    assert paper_value(paper, policy, "aime24") is None


def test_latex_escaping() -> None:
    assert latex_escape("a_b & 5% {x} ~ \\") == r"a\_b \& 5\% \{x\} \textasciitilde{} \textbackslash{}"


def small() -> Table:
    columns = (Column("name", "Name", numeric=False), Column("a_b", "a_b", "Ours"))
    rows = (
        (Cell(text="x|y_*", key="x"), Cell(12.345678, 10.86, 13.84, bold=True)),
        (Cell(), Cell(-3.0, -3.25, 0.5, signed=True)),
        (Cell(text="none"), Cell()),
    )
    return Table("small", columns, rows, "Caption 100%", ("Note_1",))


def test_csv_has_identifiers_and_the_ends_of_intervals() -> None:
    assert to_csv(small()) == "name,a_b,a_b_low,a_b_high\nx,12.3457,10.8600,13.8400\n,-3.0000,-3.2500,0.5000\nnone,,,\n"


def test_markdown_comes_back(tmp_path) -> None:
    (tmp_path / "small.md").write_text(to_markdown(small()), encoding="utf-8")
    table = read_markdown(tmp_path / "small.md")
    texts = [[cell.text for cell in row] for row in table.rows]
    assert texts == [["x|y_*", "12.35 [10.9, 13.8]"], ["–", "-3.00 [-3.2, +0.5]"], ["none", "–"]]
    assert [c.header for c in table.columns] == ["Name", "a_b"]
    assert (table.rows[0][1].bold, table.rows[1][1].bold) == (True, False)
    assert (table.name, table.caption, table.notes) == ("small", "Caption 100%", ("Note_1",))


def test_latex_form() -> None:
    text = to_latex(small())
    assert r"\caption{Caption 100\%}" in text
    assert r"x|y\_* & \textbf{12.35} {\scriptsize [10.9, 13.8]} \\" in text
    assert r"-- & $-$3.00 {\scriptsize [$-$3.2, +0.5]} \\" in text
    assert r"\multicolumn{1}{c}{Ours}" in text


def test_latex_is_balanced_and_escaped(experiment: Experiment) -> None:
    """What LaTeX would stop at: columns that do not add up, open braces or environments, bare special characters."""
    text = to_latex(table_of(experiment, "main"))
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    specification = re.search(r"\\begin\{tabular\}\{([lr]+)\}", body)
    assert specification is not None
    rows = re.search(r"\\toprule(.*)\\bottomrule", body, re.DOTALL)
    assert rows is not None
    for row in filter(None, (line.strip().removesuffix(r"\\") for line in rows[1].splitlines())):
        if not row.startswith((r"\midrule", r"\cmidrule")):
            spans = [int(n) for n in re.findall(r"\\multicolumn\{(\d+)\}", row)]
            cells = len(re.findall(r"(?<!\\)&", row)) + 1
            assert cells - len(spans) + sum(spans) == len(specification[1])
    # A % that ends a line hides its line break, on purpose.
    bare = re.sub(r"\\[\\%&#$_{}]|%$", "", body, flags=re.MULTILINE)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert not set("%#_~^") & set(bare.replace(r"\label{tab:main}", ""))
    begun, ended = (re.findall(rf"\\{word}\{{(\w+)\}}", body) for word in ("begin", "end"))
    assert begun == ended[::-1]
    assert body.isascii()


def table_of(experiment: Experiment, name: str) -> Table:
    scores, rates = read_scores(experiment.scores), read_rates(experiment.scores)
    return build_table(experiment.config, name, scores, rates, read_paper(PAPER))


def test_main_table(experiment: Experiment) -> None:
    table = table_of(experiment, "main")
    methods = ["grpo", "dr_grpo", "dapo", "entropy_mech", "ebpo"]
    assert [row[1].key for row in table.rows] == ["base", *methods, *methods]
    keys = [column.key for column in table.columns]
    at = keys.index("checkpoint")
    assert [row[at].text for row in table.rows] == ["", *["best"] * 5, *["final"] * 5]
    assert "avg@4" in table.caption
    # The paper's numbers stand beside the checkpoint that it evaluated, and nowhere else.
    theirs = [row[keys.index("paper_math500")].value for row in table.rows if row[1].key == "ebpo"]
    assert theirs == [76.80, None]
    for row, folder in ((5, "evaluation_best"), (10, "evaluation")):
        scores = pd.read_csv(experiment.root / f"runs/demo/ebpo-topic/G4/seed0/{folder}/scores.csv")
        assert table.rows[row][keys.index("average")].value == pytest.approx(100 * scores["pass_at_1"].mean())


def test_every_score_has_an_interval(experiment: Experiment) -> None:
    for name in experiment.config.comparisons:
        table = table_of(experiment, name)
        ours = [i for i, column in enumerate(table.columns) if column.group == "This replication"]
        assert len(ours) == 6
        for row in table.rows:
            for cell in (row[i] for i in ours):
                assert cell.low is not None
                assert cell.low <= (cell.value or 0) <= (cell.high or 0)


def test_difference_rows(experiment: Experiment) -> None:
    clustering = table_of(experiment, "clustering")
    keys = [column.key for column in clustering.columns]
    best = [row for row in clustering.rows if row[keys.index("checkpoint")].text == "best"]
    topic, shuffled, gap = (dict(zip(keys, [c.value for c in row], strict=True)) for row in best)
    assert gap["algebra"] == pytest.approx(topic["algebra"] - shuffled["algebra"])
    assert gap["paper_aime24"] == pytest.approx(56.04 - 53.75)
    curriculum = table_of(experiment, "curriculum")
    rows = [{c.key: x for c, x in zip(curriculum.columns, row, strict=True)} for row in curriculum.rows]
    final, best_gap = (row for row in rows if row["method"].key == "ebpo-grpo")
    assert (final["paper_aime24"].value, final["paper_aime25"].value) == (3.95, 6.04)
    assert (best_gap["checkpoint"].text, best_gap["paper_aime24"].value) == ("best", None)
    said = ["does not say at which group size" in " ".join(table.notes) for table in (clustering, curriculum)]
    assert said == [False, True]


def test_unknown_comparison_is_refused(experiment: Experiment) -> None:
    with pytest.raises(ValueError, match="comparison 'nope' is not defined; allowed"):
        table_of(experiment, "nope")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex with booktabs and graphicx")
def test_latex_compiles(experiment: Experiment, tmp_path: Path) -> None:
    table = to_latex(table_of(experiment, "main"))
    document = (
        r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}"
        + "\n"
        + table
        + "\n"
        + r"\end{document}"
    )
    (tmp_path / "page.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-2000:]
    assert (tmp_path / "page.pdf").exists()

"""Cells against hand computation, the bold rule, refusals, and the three forms of a table."""

import math

import pandas as pd
import pytest
from synthetic_experiment import REPOSITORY, Experiment

from ebpo.reporting.paper import paper_value, read_paper
from ebpo.reporting.scores import Policy, Score, average, check_comparable, difference, read_scores, summarise
from ebpo.reporting.table import Cell, Column, Table, latex_escape, read_markdown, to_csv, to_latex, to_markdown
from ebpo.reporting.tables import build_table, marked

PAPER = REPOSITORY / "config/paper_results.csv"
RUN = Policy("m", "ebpo", "topic", 4, (0, 1))


def frame(rows: list[tuple[int, str, float, float]]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=["seed", "benchmark", "pass_at_1", "se"])
    return table.assign(model="m", method="ebpo", order="topic", group_size=4, source="f")


def test_average_is_the_mean_of_means_with_independent_errors() -> None:
    assert average([Score(10, 3), Score(20, 4)]) == Score(15, 2.5)


def test_two_seeds_add_their_spread_to_the_error() -> None:
    scores = frame([(0, "a", 0.10, 0.03), (1, "a", 0.14, 0.03), (0, "b", 0.2, 0.0), (1, "b", 0.2, 0.0)])
    result = summarise(scores, RUN, ["a", "b"])
    # var of 10 and 14 is 8; 9 + 8 / 2 = 13.
    assert result["a"] == pytest.approx(Score(12, math.sqrt(13)))
    assert result["b"] == pytest.approx(Score(20, 0))
    # Averages 15 and 17 with se 1.5: 2.25 + 2 / 2.
    assert result["average"] == pytest.approx(Score(16, math.sqrt(3.25)))


def test_missing_benchmark_names_run_and_benchmark() -> None:
    with pytest.raises(ValueError, match=r"runs/m/ebpo-topic/G4/seed1: .* benchmark 'a'"):
        summarise(frame([(0, "a", 0.1, 0.03)]), RUN, ["a"])


def test_a_score_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="2 scores on benchmark 'a'"):
        summarise(frame([(0, "a", 0.1, 0.0), (0, "a", 0.1, 0.0), (1, "a", 0.1, 0.0)]), RUN, ["a"])


def test_paired_difference() -> None:
    a, b = RUN._replace(seeds=(0,)), RUN._replace(method="grpo", seeds=(0,))
    rows = [("ebpo", "p", 1.0), ("ebpo", "q", 0.5), ("grpo", "p", 0.5), ("grpo", "q", 0.25), ("grpo", "only", 1.0)]
    rates = pd.DataFrame(rows, columns=["method", "problem_id", "rate"])
    rates = rates.assign(model="m", order="topic", group_size=4, seed=0, benchmark="a")
    result = difference(pd.DataFrame(), rates, a, b, ["a"])
    # Differences 50 and 25: mean 37.5, sd 17.678, over sqrt(2) 12.5.
    assert result["a"] == pytest.approx(Score(37.5, 12.5))


def test_unpaired_difference_adds_the_errors_in_quadrature() -> None:
    a, b = RUN._replace(seeds=(0,)), RUN._replace(seeds=(1,))
    result = difference(frame([(0, "a", 0.5, 0.03), (1, "a", 0.4, 0.04)]), None, a, b, ["a"])
    assert result["a"] == pytest.approx(Score(10, 5))


def test_bold_is_the_best_with_all_within_two_errors_of_the_difference() -> None:
    base, x, y, z = Policy("m", "base"), *(Policy("m", k, "topic", 4, (0,)) for k in ("x", "y", "z"))
    scores = {base: Score(0, 3), x: Score(50, 3), y: Score(40, 4), z: Score(39.9, 4)}
    bold = marked({policy: {"a": score} for policy, score in scores.items()})
    # The error of a difference is 5: 40 is within 10 of 50, 39.9 is not.
    assert bold == {(x, "a"), (y, "a")}


def test_bold_contest_stays_within_model_and_group_size() -> None:
    x, y = Policy("m", "x", "topic", 4, (0,)), Policy("m", "x", "topic", 8, (0,))
    base = Policy("m", "base")
    bold = marked({base: {"a": Score(30, 0)}, x: {"a": Score(20, 0)}, y: {"a": Score(40, 0)}})
    assert bold == {(y, "a")}  # the base policy wins at 4 and loses at 8


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
        (Cell(text="x|y_*", key="x"), Cell(12.345678, 1.5, bold=True)),
        (Cell(), Cell(-3.0, 0.25, signed=True)),
        (Cell(text="none"), Cell()),
    )
    return Table("small", columns, rows, "Caption 100%", ("Note_1",))


def test_csv_has_identifiers_and_separate_errors() -> None:
    assert to_csv(small()) == "name,a_b,a_b_se\nx,12.3457,1.5000\n,-3.0000,0.2500\nnone,,\n"


def test_markdown_comes_back(tmp_path) -> None:
    (tmp_path / "small.md").write_text(to_markdown(small()), encoding="utf-8")
    table = read_markdown(tmp_path / "small.md")
    texts = [[cell.text for cell in row] for row in table.rows]
    assert texts == [["x|y_*", "12.35 ± 1.50"], ["–", "-3.00 ± 0.25"], ["none", "–"]]
    assert [c.header for c in table.columns] == ["Name", "a_b"]
    assert (table.rows[0][1].bold, table.rows[1][1].bold) == (True, False)
    assert (table.name, table.caption, table.notes) == ("small", "Caption 100%", ("Note_1",))


def test_latex_form() -> None:
    text = to_latex(small())
    assert r"\caption{Caption 100\%}" in text
    assert r"x|y\_* & \textbf{12.35 $\pm$ 1.50} \\" in text
    assert r"-- & $-$3.00 $\pm$ 0.25 \\" in text
    assert r"\multicolumn{1}{c}{Ours}" in text


def test_main_table(experiment: Experiment) -> None:
    table = build_table(experiment.config, "main", read_scores(experiment.scores), read_paper(PAPER))
    assert [row[1].key for row in table.rows] == ["base", "grpo", "dr_grpo", "dapo", "entropy_mech", "ebpo"]
    assert "avg@4" in table.caption
    keys = [column.key for column in table.columns]
    assert table.rows[-1][keys.index("paper_math500")].value == 76.80
    scores = pd.read_csv(experiment.root / "runs/demo/ebpo-topic/G4/seed0/evaluation/scores.csv")
    cell = table.rows[-1][keys.index("average")]
    assert cell.value == pytest.approx(100 * scores["pass_at_1"].mean())
    assert cell.se == pytest.approx(100 * math.sqrt((scores["se"] ** 2).sum()) / 5)


def test_difference_rows(experiment: Experiment) -> None:
    scores, paper = read_scores(experiment.scores), read_paper(PAPER)
    clustering = build_table(experiment.config, "clustering", scores, paper)
    keys = [column.key for column in clustering.columns]
    topic, shuffled, gap = (dict(zip(keys, [c.value for c in row], strict=True)) for row in clustering.rows[1:])
    assert gap["algebra"] == pytest.approx(topic["algebra"] - shuffled["algebra"])
    assert gap["paper_aime24"] == pytest.approx(56.04 - 53.75)
    curriculum = build_table(experiment.config, "curriculum", scores, paper)
    last = {c.key: x for c, x in zip(curriculum.columns, curriculum.rows[-1], strict=True)}
    assert last["method"].key == "ebpo-grpo"
    assert (last["paper_aime24"].value, last["paper_aime25"].value) == (3.95, 6.04)


def test_unknown_comparison_is_refused(experiment: Experiment) -> None:
    with pytest.raises(ValueError, match="comparison 'nope' is not defined; allowed"):
        build_table(experiment.config, "nope", read_scores(experiment.scores), read_paper(PAPER))

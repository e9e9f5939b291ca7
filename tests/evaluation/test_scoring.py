from __future__ import annotations

import pandas as pd
import pytest

from ebpo.evaluation.scoring import grade_frame, per_problem, protocol_hash, scores
from ebpo.problems.record import Problem


def completions(texts: dict[str, list[str]]) -> pd.DataFrame:
    rows = [("b", i, n, t, 3, "stop") for i, ts in texts.items() for n, t in enumerate(ts)]
    return pd.DataFrame(rows, columns=["benchmark", "problem_id", "sample", "completion", "tokens", "finish_reason"])


PROBLEMS = {i: Problem(i, i, "7", "s", "t", 1.0) for i in ("p", "q")}
TEXTS = {"p": ["\\boxed{7}", "\\boxed{8}", "\\boxed{7}", "seven"], "q": ["\\boxed{1}"] * 4}


def test_scores_by_hand():
    # Rates 1/2 and 0: mean 1/4, sd sqrt(2 * (1/4)^2) = 0.35355, se = sd / sqrt(2) = 1/4.
    counts = per_problem(grade_frame(completions(TEXTS), PROBLEMS), 4)
    row = scores(counts, ["b"], {"method": "grpo"}, "x").iloc[0]
    assert row["pass_at_1"] == pytest.approx(0.25)
    assert row["se"] == pytest.approx(0.25)
    assert row["no_answer"] == pytest.approx(1 / 8)
    assert (row["problems"], row["samples"]) == (2, 4)


def test_a_missing_completion_is_refused():
    graded = grade_frame(completions({**TEXTS, "q": ["\\boxed{1}"] * 3}), PROBLEMS)
    with pytest.raises(ValueError, match="b/q: 3 completions, 4 are required"):
        per_problem(graded, 4)


def test_a_completion_of_an_unknown_problem_is_refused():
    with pytest.raises(ValueError, match="the first is r"):
        grade_frame(completions({"r": ["\\boxed{7}"]}), PROBLEMS)


def test_an_oracle_scores_one_and_a_fool_zero():
    for text, expected in (("\\boxed{7}", 1.0), ("\\boxed{6}", 0.0)):
        counts = per_problem(grade_frame(completions({"p": [text] * 2, "q": [text] * 2}), PROBLEMS), 2)
        assert scores(counts, ["b"], {}, "x").iloc[0]["pass_at_1"] == expected


def test_the_protocol_hash_sees_every_part():
    assert protocol_hash({"temperature": 1.0}) != protocol_hash({"temperature": 0.9})

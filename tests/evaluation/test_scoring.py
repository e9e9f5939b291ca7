from __future__ import annotations

import pandas as pd
import pytest

from ebpo.evaluation.estimators import Tally, majority_at_k, pass_at_k
from ebpo.evaluation.intervals import bootstrap_interval
from ebpo.evaluation.protocol import Protocol
from ebpo.evaluation.scoring import grade_frame, per_problem, record, scores
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
    assert (row["problems"], row["samples"], row["complete_problems"]) == (2, 4, 2)
    # p: pass@2 of 2 in 4 is 5/6; q: 0.
    assert row["pass_at_2"] == pytest.approx(5 / 12)
    assert row["pass_at_4"] == 0.5
    assert row["maj_at_4"] == 0.5
    assert (row["low"], row["high"]) == bootstrap_interval([[0.5, 0.0]])[2:4]
    # Within p: sqrt(1/4 / 3) / 2 problems.
    assert row["sampling_se"] == pytest.approx((1 / 12) ** 0.5 / 2)


def test_per_problem_by_hand():
    texts = {"p": ["\\boxed{7}", "\\boxed{1/2}", "\\boxed{0.5}", "none"], "q": ["\\boxed{7.0}"] * 4}
    table = per_problem(grade_frame(completions(texts), PROBLEMS), 4).set_index("problem_id")
    p = table.loc["p"]
    assert (p["correct"], p["wrong"], p["no_answer"], p["votes"]) == (1, 3, 1, "2")
    assert (p["majority_answer"], p["majority_share"]) == ("0.5", 0.5)
    assert p["maj_at_2"] == pytest.approx(majority_at_k(Tally(1, (2,), 1), 2))
    assert p["maj_at_4"] == 0
    assert (table.loc["q", "maj_at_4"], table.loc["q", "majority_answer"], table.loc["q", "votes"]) == (1, "7.0", "")


def test_the_order_of_samples_changes_nothing():
    frame = completions({"p": ["\\boxed{7}", "\\boxed{8}", "\\boxed{8.0}", "\\boxed{9}"], "q": TEXTS["q"]})
    turned = frame.assign(sample=3 - frame["sample"]).iloc[::-1].reset_index(drop=True)
    first, second = (per_problem(grade_frame(f, PROBLEMS), 4) for f in (frame, turned))
    pd.testing.assert_frame_equal(first, second)


def test_unscorable_completions_leave_the_estimates():
    graded = grade_frame(completions({"p": ["\\boxed{7}"] * 4, "q": ["\\boxed{1}"] * 4}), PROBLEMS)
    lost = graded["problem_id"].eq("p") & graded["sample"].lt(2)
    graded.loc[lost, "verdict"] = "unscorable"
    graded.loc[lost, "answer_class"] = pd.NA
    counts = per_problem(graded, 4)
    assert counts["maj_at_4"].isna().tolist() == [True, False]
    row = scores(counts, ["b"], {}, "x").iloc[0]
    assert (row["pass_at_1"], row["pass_at_2"], row["complete_problems"]) == (0.5, 0.5, 1)
    assert row["unscorable"] == pytest.approx(2 / 8)
    assert pd.isna(row["pass_at_4"])


def test_pass_at_k_matches_the_estimator():
    counts = per_problem(grade_frame(completions(TEXTS), PROBLEMS), 4)
    assert scores(counts, ["b"], {}, "x").iloc[0]["pass_at_2"] == pytest.approx(pass_at_k([2, 0], 4, 2).mean())


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
        row = scores(counts, ["b"], {}, "x").iloc[0]
        assert [row[name] for name in ("pass_at_1", "pass_at_2", "maj_at_2")] == [expected] * 3


def test_record_counts_reasons_and_lengths():
    protocol = Protocol(
        samples=4, temperature=1.0, top_p=1.0, max_new_tokens=8, seed=0, template="plain", max_prompt_tokens=8,
        dtype="float32", device="cpu", engine="e", problems={}, prompts={},
    )  # fmt: skip
    found = record(grade_frame(completions(TEXTS), PROBLEMS), protocol)
    assert found["protocol"]["digest"] == protocol.digest
    (own,) = found["benchmarks"].values()
    assert own["reasons"] == {"different": 5, "exact": 2, "no_answer": 1}
    assert (own["problems"], own["completions"], own["distinct_completions"]) == (2, 8, 4)
    assert own["tokens"]["correct"]["median"] == 3

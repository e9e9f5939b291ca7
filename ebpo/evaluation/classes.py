"""Classes of equivalent answers among the completions of a problem, for majority votes. Nothing here imports torch.

Answers are equivalent as the grader sees it: all correct ones are one class, by their verdict; wrong ones are compared
with each other. Exact numbers and equal texts are compared by a canonical key, at once; any other pair is one class if
the grader accepts either as an answer to the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from ebpo.evaluation.estimators import Tally, majority_at_k
from ebpo.grading import GradeItem, Grader, Verdict
from ebpo.grading.normalize import UnbalancedError, canonical, key
from ebpo.grading.structure import Scalar, TooComplexError, parse

CORRECT = 0  # class of the correct answers; wrong ones count from 1, the one with the most frequent notation first
MAX_COMPARED = 32

_Key = Fraction | str


class Voter(NamedTuple):
    """What one completion contributes to a vote.

    Attributes:
        verdict: the grader's outcome: correct, wrong or unscorable.
        answer: the extracted answer; None where there is none.
    """

    verdict: str
    answer: str | None


def answer_classes(
    problems: Sequence[Sequence[Voter]], grader: Grader, max_compared: int = MAX_COMPARED
) -> list[list[int | None]]:
    """The class of every completion's answer, for several problems at once.

    Args:
        problems: the completions of each problem, in any number.
        grader: decides whether two answers are equivalent.
        max_compared: of each problem, so many distinct keys of wrong answers, the most frequent ones, are compared by
            the grader; rarer ones are classes by their key alone, so that two notations of a rare answer that only
            symbolic comparison would join stay two classes. At most max_compared (max_compared - 1) comparisons.

    Returns:
        Per problem, in the order of its completions: `CORRECT`, or 1, 2, ... for classes of wrong answers, or None for
        a completion that does not vote (no answer, or unscorable). The numbering does not depend on the order of the
        completions.
    """
    numbered = _merged([_wrong_keys(voters) for voters in problems], grader, max_compared)
    classes: list[list[int | None]] = []
    for voters, numbers in zip(problems, numbered, strict=True):
        classes.append([_class_of(voter, numbers) for voter in voters])
    return classes


def tally(verdicts: Sequence[str], classes: Sequence[int | None]) -> Tally:
    """The votes of one problem, from its completions' verdicts and classes; unscorable ones are left out."""
    sizes = Counter(number for number in classes if number is not None)
    correct = sizes.pop(CORRECT, 0)
    scorable = sum(verdict != "unscorable" for verdict in verdicts)
    return Tally(correct, tuple(sorted(sizes.values(), reverse=True)), scorable - correct - sum(sizes.values()))


def majority_credits(problems: Sequence[Sequence[Verdict]], grader: Grader) -> list[float]:
    """maj@n of each problem: the credit in [0, 1] of the vote of all its scorable completions.

    Ties share the credit; completions without an answer do not vote; if nobody votes, or nothing could be graded, the
    credit is 0.
    """
    voters = [[Voter(v.verdict, v.extracted) for v in verdicts] for verdicts in problems]
    classes = answer_classes(voters, grader)
    tallies = [tally([v.verdict for v in own], numbers) for own, numbers in zip(problems, classes, strict=True)]
    return [majority_at_k(votes, votes.samples) if votes.samples else 0.0 for votes in tallies]


def _wrong_keys(voters: Iterable[Voter]) -> dict[_Key, str]:
    """Key -> a text of it, for the distinct wrong answers: the most frequent first, then by text."""
    votes: Counter[_Key] = Counter()
    texts: dict[_Key, str] = {}
    for voter in voters:
        if voter.verdict == "wrong" and voter.answer:
            name = _key(voter.answer)
            votes[name] += 1
            texts[name] = min(texts.get(name, voter.answer), voter.answer)
    return {name: texts[name] for name in sorted(votes, key=lambda name: (-votes[name], texts[name]))}


def _class_of(voter: Voter, numbers: dict[_Key, int]) -> int | None:
    if voter.verdict == "correct":
        return CORRECT
    if voter.verdict == "wrong" and voter.answer:
        return numbers[_key(voter.answer)]
    return None


def _key(answer: str) -> _Key:
    """A number's exact value, else canonical text; equal keys are equivalent answers.

    Numbers with a percent sign or a unit keep their text: what they equal is for the grader to say.
    """
    try:
        text = canonical(answer)
        node = parse(text)
    except (UnbalancedError, TooComplexError):
        return answer.strip()
    if isinstance(node, Scalar) and node.value is not None and not node.percent and node.unit is None:
        return node.value
    return key(text)


def _merged(problems: Sequence[dict[_Key, str]], grader: Grader, max_compared: int) -> list[dict[_Key, int]]:
    """The class number of each key, for every problem.

    Round i compares key i of every problem with the first key of each of its classes, all problems in one batch, since
    the grader's workers then share the load.
    """
    founders: list[list[_Key]] = [[] for _ in problems]
    found: list[dict[_Key, int]] = [{} for _ in problems]
    for place in range(max((len(texts) for texts in problems), default=0)):
        items: list[GradeItem] = []
        asked: list[tuple[int, int]] = []  # problem, and the class that the next two items ask about
        for number, texts in enumerate(problems):
            if place >= min(len(texts), max_compared):
                continue
            name = list(texts)[place]
            for other, founder in enumerate(founders[number], start=1):
                if isinstance(name, Fraction) and isinstance(founder, Fraction):
                    continue
                a, b = texts[name], texts[founder]
                items += [GradeItem(gold=b, completion=_boxed(a)), GradeItem(gold=a, completion=_boxed(b))]
                asked.append((number, other))
        verdicts = grader.grade_batch(items)
        joined: dict[int, int] = {}
        for i, (number, other) in enumerate(asked):
            if any(v.verdict == "correct" for v in verdicts[2 * i : 2 * i + 2]):
                joined.setdefault(number, other)
        for number, texts in enumerate(problems):
            if place < len(texts):
                name = list(texts)[place]
                if number not in joined:
                    founders[number].append(name)
                found[number][name] = joined.get(number, len(founders[number]))
    return found


def _boxed(answer: str) -> str:
    return f"\\boxed{{{answer}}}"

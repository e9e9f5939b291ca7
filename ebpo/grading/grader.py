"""The public entry: graders with their caches and workers, and the shared one behind `grade`."""

from __future__ import annotations

import atexit
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from fractions import Fraction
from types import TracebackType
from typing import Any, NamedTuple, Self

from ebpo.grading.compare import AnswerType
from ebpo.grading.decide import (
    Alternatives,
    BadGoldError,
    Gold,
    alternatives_of,
    answer_type_of,
    check,
    decide,
    tolerance_of,
)
from ebpo.grading.extract import extract_answer
from ebpo.grading.pool import WorkerPool
from ebpo.grading.verdict import OUTCOME_OF_REASON, Reason, Verdict, make_verdict

MAX_ANSWER_CHARS = 400
MAX_COMPLETION_CHARS = 262_144
CACHE_SIZE = 65_536


class GradeItem(NamedTuple):
    """One completion to grade; the fields are the arguments of `grade`."""

    gold: Gold
    completion: str
    answer_type: str | None = None
    tolerance: float | str | None = None


class _Question(NamedTuple):
    """What a verdict depends on: the key of the cache and the content of a worker's request."""

    gold: Alternatives
    answer: str | None  # None asks whether the gold can be graded against
    answer_type: AnswerType | None
    tolerance: Fraction | None

    def request(self) -> dict[str, Any]:
        tolerance = str(self.tolerance) if self.tolerance is not None else None
        return {
            "gold": self.gold,
            "answer": self.answer,
            "answer_type": self.answer_type,
            "tolerance": tolerance,
        }


class Grader:
    """Grades completions; safe to use from any thread.

    Extraction and the exact stages run in the caller's process, since they take bounded time. Only answers that need
    SymPy go to worker processes, which are started when the first such answer comes.

    Args:
        workers: number of worker processes at most.
        timeout_s: hard limit of wall-clock time for one answer in a worker.
        max_answer_chars: a longer extracted answer is wrong ("too_long"), unless it is within four times its gold.
        max_completion_chars: only so many characters at the end of a completion are looked at.
        answer_line: whether `Answer: ...` counts where there is no box.
    """

    def __init__(
        self,
        workers: int = 1,
        timeout_s: float = 5.0,
        max_answer_chars: int = MAX_ANSWER_CHARS,
        max_completion_chars: int = MAX_COMPLETION_CHARS,
        *,
        answer_line: bool = True,
    ) -> None:
        for name, value in (
            ("workers", workers),
            ("timeout_s", timeout_s),
            ("max_answer_chars", max_answer_chars),
            ("max_completion_chars", max_completion_chars),
        ):
            if not value > 0:
                raise ValueError(f"{name}: {value!r} must be larger than 0")
        self._size = workers
        self._timeout_s = timeout_s
        self._max_answer_chars = max_answer_chars
        self._max_completion_chars = max_completion_chars
        self._answer_line = answer_line
        self._reset()

    def _reset(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.RLock()
        self._pool = WorkerPool(self._size, self._timeout_s)
        self._cache: OrderedDict[_Question, Reason] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the living workers; empty as long as none was needed."""
        return self._pool.pids

    def close(self) -> None:
        """Ends the workers. A closed grader may be used again."""
        with self._lock:
            self._pool.close()

    def grade(
        self,
        *,
        gold: Gold,
        completion: str,
        answer_type: str | None = None,
        tolerance: float | str | None = None,
    ) -> Verdict:
        """Grades one completion; see the function `grade`."""
        return self.grade_batch([GradeItem(gold, completion, answer_type, tolerance)])[0]

    def grade_batch(self, items: Sequence[GradeItem]) -> list[Verdict]:
        """Verdicts in the order of the items. One item that hangs or kills its worker does not affect the others.

        Raises:
            TypeError: a completion is no string, or a gold neither a string nor a list of strings.
            ValueError: an answer type or a tolerance is unknown.
            WorkerStartError: workers cannot be started.
        """
        questions = [self._question(item) for item in items]
        reasons = self._answers(dict.fromkeys(q for q in questions if isinstance(q, _Question)))
        return [make_verdict(reasons[q], q.answer) if isinstance(q, _Question) else q for q in questions]

    def check_gold(self, gold: Gold, answer_type: str | None = None, tolerance: float | str | None = None) -> Verdict:
        """Grades a gold against itself; see the function `check_gold`."""
        try:
            alternatives = alternatives_of(gold)
        except BadGoldError:
            return make_verdict("bad_gold")
        question = _Question(alternatives, None, answer_type_of(answer_type), None)
        reason = self._answers({question: None})[question]
        verdict = make_verdict(reason, ", ".join(alternatives[0]))
        for required in alternatives:
            if verdict.verdict != "correct":
                break
            boxed = f"\\boxed{{{', '.join(required)}}}"
            verdict = self.grade(gold=[required], completion=boxed, answer_type=answer_type, tolerance=tolerance)
        return verdict

    def _answers(self, questions: dict[_Question, None]) -> dict[_Question, Reason]:
        """The reason of each question, from the cache, the exact stages or a worker."""
        if os.getpid() != self._owner:
            self._reset()  # in a forked child: the pipes belong to the parent
        reasons: dict[_Question, Reason] = {}
        with self._lock:
            pending = []
            for question in questions:
                reason = self._cached(question) or self._exact(question)
                if reason is None:
                    pending.append(question)
                else:
                    reasons[question] = reason
            if pending:
                answered = self._pool.run([q.request() for q in pending])
                reasons.update(zip(pending, answered, strict=True))
            for question, reason in reasons.items():
                self._remember(question, reason)
        return reasons

    def _question(self, item: GradeItem) -> _Question | Verdict:
        """What is left to decide about an item, or its verdict."""
        if not isinstance(item.completion, str):
            raise TypeError(f"completion must be a string, not {type(item.completion).__name__}")
        answer_type, tolerance = answer_type_of(item.answer_type), tolerance_of(item.tolerance)
        try:
            gold = alternatives_of(item.gold)
        except BadGoldError:
            return make_verdict("bad_gold")
        answer = extract_answer(item.completion, max_chars=self._max_completion_chars, answer_line=self._answer_line)
        if answer is None:
            return make_verdict("no_answer")
        longest = max(sum(map(len, required)) for required in gold)
        if len(answer) > max(self._max_answer_chars, 4 * longest):
            return make_verdict("too_long", answer)
        return _Question(gold, answer, answer_type, tolerance)

    def _cached(self, question: _Question) -> Reason | None:
        reason = self._cache.get(question)
        if reason is not None:
            self._cache.move_to_end(question)
        return reason

    def _exact(self, question: _Question) -> Reason | None:
        try:
            if question.answer is None:
                return check(question.gold, answer_type=question.answer_type)
            return decide(
                question.gold, question.answer, answer_type=question.answer_type, tolerance=question.tolerance
            )
        except BadGoldError:
            return "bad_gold"

    def _remember(self, question: _Question, reason: Reason) -> None:
        if OUTCOME_OF_REASON[reason] == "unscorable" and reason != "bad_gold":
            return  # a timeout on a busy machine must not last
        self._cache[question] = reason
        if len(self._cache) > CACHE_SIZE:
            self._cache.popitem(last=False)


_shared: Grader | None = None
_shared_lock = threading.Lock()


def shared_grader() -> Grader:
    """The grader behind `grade`, made at first use and closed at exit."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = Grader()
            atexit.register(_shared.close)
        return _shared


def _forget_shared() -> None:
    """After a fork: locks may be held by threads that do not exist here, and the workers are the parent's."""
    global _shared, _shared_lock
    _shared, _shared_lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_shared)


def grade(
    *, gold: Gold, completion: str, answer_type: str | None = None, tolerance: float | str | None = None
) -> Verdict:
    """Grades one completion. Works in any thread.

    Args:
        gold: the right answer; or a list of accepted alternatives, of which each is a string, or a list of strings
            that are all required, in any order. Several required answers may also be one string with commas, as in
            OlympiadBench.
        completion: what the policy wrote, without the prompt.
        answer_type: "integer" (the answer must evaluate to this integer, nothing symbolic), "text" (words only),
            "interval" or "tuple" (say what `(a, b)` is); "numerical", "expression", "equation" and None leave it to
            the gold's form.
        tolerance: allowed absolute difference of numbers (OlympiadBench's `error`); None compares exactly.

    Returns:
        The verdict: correct, wrong or unscorable, with a reason code and the extracted answer.

    Raises:
        TypeError: the completion is no string, or the gold neither a string nor a list of strings.
        ValueError: the answer type or the tolerance is unknown.
    """
    return shared_grader().grade(gold=gold, completion=completion, answer_type=answer_type, tolerance=tolerance)


def check_gold(gold: Gold, answer_type: str | None = None, tolerance: float | str | None = None) -> Verdict:
    """Grades a gold against itself, to be done when data is built: only golds with a "correct" verdict are of use.

    Args:
        gold: as in `grade`; of a list, every alternative is checked.
        answer_type: as in `grade`.
        tolerance: as in `grade`.

    Returns:
        "correct" if every alternative equals itself in a box and all of its mathematics can be parsed; "unscorable"
        with reason "bad_gold" if it is empty, malformed, unreadable or not of its declared type; else the verdict of
        the comparison with itself.
    """
    return shared_grader().check_gold(gold, answer_type, tolerance)

"""A grading worker: `python -m ebpo.grading.worker [FD]`, requests on stdin, replies on a file descriptor.

It grades in its main thread, one answer at a time, and ends when its parent does: at the end of stdin, when its parent
process changes, or, stuck inside a computation, by a processor-time alarm that the kernel enforces.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import select
import signal
import sys
from fractions import Fraction
from typing import Any

from ebpo.grading.decide import BadGoldError, answer_type_of, check, decide
from ebpo.grading.protocol import read_message, write_message

MEMORY_LIMIT_BYTES = 4 * 1024**3
PARENT_CHECK_S = 2.0

log = logging.getLogger("ebpo.grading.worker")


class BudgetExceeded(BaseException):
    """The answer took too long. A BaseException, because math-verify and SymPy catch every Exception."""


def _on_budget(signum: int, frame: object) -> None:
    raise BudgetExceeded


def main() -> None:
    """Serves requests until stdin ends."""
    replies = os.fdopen(int(sys.argv[1]) if len(sys.argv) > 1 else 1, "wb")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    signal.signal(signal.SIGPROF, _on_budget)
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)  # ends the process, also inside one long C call
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="grading worker: %(message)s")
    for noisy in ("math_verify", "latex2sympy2_extended"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    _limit_memory()

    from ebpo.grading.symbolic import SympyOracle

    oracle = SympyOracle()
    _warm_up(oracle)
    write_message(replies, {"ready": True})
    parent = os.getppid()
    while _wait_for_request(parent):
        request = read_message(sys.stdin.buffer)
        if request is None:
            return
        write_message(replies, _reply(request, oracle))


def _limit_memory() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY_LIMIT_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_LIMIT_BYTES, hard)
    with contextlib.suppress(ValueError, OSError):  # not allowed everywhere; a time limit remains
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _warm_up(oracle: Any) -> None:
    """Parses one expression of every common shape.

    The parser builds its tables when it first meets a shape, at 20 to 100 ms each: not part of an answer's time.
    """
    for text in (
        r"\frac{\sqrt{3}}{2}",
        r"2\pi+x^{2}",
        r"\sin(x)+\log_{2}(8)",
        r"6-5i",
        r"\binom{5}{2}+\lfloor x\rfloor",
        r"\frac{12}{7}\sqrt{5}+\frac{1}{10}",
        r"3x^2-4x+5",
        r"5+x(3x-4)",
        r"\frac{2\pi}{3}",
        r"7\cdot\frac{\sqrt{5}}{3}",
        r"n\cdot 2^{n-1}+\log_{2}3",
        r"-(a+b)^{2}",
        r"\sqrt[3]{7}-e^{x}",
        r"\frac{n(n+1)}{2}",
        r"2\cos 3x",
        r"|x|+1/3",
    ):
        oracle.scalars(text, text + "+1", None)


def _wait_for_request(parent: int) -> bool:
    """Waits for input; False once the parent has died (a fork of it may keep the pipe open)."""
    while not select.select([sys.stdin], [], [], PARENT_CHECK_S)[0]:
        if os.getppid() != parent:
            return False
    return True


def _reply(request: dict[str, Any], oracle: Any) -> dict[str, Any]:
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, float(request["kill_s"]))
        signal.setitimer(signal.ITIMER_PROF, float(request["budget_s"]))
        reason = _decide(request, oracle)
        signal.setitimer(signal.ITIMER_PROF, 0)
    except BudgetExceeded:
        reason = "timeout"
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return {"reason": reason}


def _decide(request: dict[str, Any], oracle: Any) -> str:
    from math_verify.errors import TimeoutException

    gold = tuple(tuple(required) for required in request["gold"])
    answer_type = answer_type_of(request["answer_type"])
    try:
        if request["answer"] is None:
            reason = check(gold, answer_type=answer_type, oracle=oracle)
        else:
            reason = decide(
                gold,
                request["answer"],
                answer_type=answer_type,
                tolerance=Fraction(request["tolerance"]) if request["tolerance"] is not None else None,
                oracle=oracle,
            )
    except BadGoldError:
        return "bad_gold"
    except TimeoutException:
        return "timeout"
    except Exception as error:  # noqa: BLE001 - SymPy raises anything; a counted outcome, and only its class is printed
        log.warning("%s while grading %.100r", type(error).__name__, request["answer"])
        return "error"
    return reason or "different"


if __name__ == "__main__":
    main()

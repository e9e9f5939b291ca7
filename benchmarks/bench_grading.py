"""Throughput of the grader: `python benchmarks/bench_grading.py [--workers 2] [--answers 2000]`.

Integer answers never leave the caller's process. LaTeX answers are of ten kinds that MATH and OlympiadBench have; no
(gold, answer) pair occurs twice, so none comes from the cache. Each gold has eight answers: three are right, in other
forms than the gold's, and five are wrong. "cold" is the first batch after the start of the workers, whose parser still
builds its tables; "warm" is a second batch with other golds.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections import Counter
from collections.abc import Callable

import psutil

from ebpo.grading import GradeItem, Grader

PROSE = "We first compute the sum, then we simplify $\\frac{a}{b}$ and {check} the result once more. " * 20
INTEGER_FORMS = (
    "\\boxed{%d}",
    "$\\boxed{%d}$.",
    "\\boxed{ %d }",
    "\\boxed{%d.}",
    "\\boxed{%d\\text{ units}}",
    "Answer: %d",
    "\\boxed{%03d}",
)
WRONG_PER_GOLD = 5

# A gold, its three other forms, and a wrong answer for every k >= 1.
Kind = tuple[str, tuple[str, str, str], Callable[[int], str]]


def kinds(a: int, b: int, c: int) -> list[Kind]:
    """One gold of every kind, for three integers >= 2."""
    return [
        (
            f"\\frac{{{a}\\sqrt{{{b}}}}}{{{c}}}",
            (f"\\frac{{{a}}}{{{c}}}\\sqrt{{{b}}}", f"{a}\\cdot\\frac{{\\sqrt{{{b}}}}}{{{c}}}", f"{a}\\sqrt{{{b}}}/{c}"),
            lambda k: f"\\frac{{{a + k}\\sqrt{{{b}}}}}{{{c}}}",
        ),
        (f"{a}+{b}\\pi", (f"{b}\\pi+{a}", f"{a} + {b}π + 0", f"\\pi\\cdot{b}+{a}"), lambda k: f"{a}+{b + k}\\pi"),
        (
            f"{a}x^2-{b}x+{c}",
            (f"{c}-{b}x+{a}x^{{2}}", f"x({a}x-{b})+{c}", f"{a}x^2+{c}-{b}x"),
            lambda k: f"{a}x^2-{b}x+{c + k}",
        ),
        (
            f"\\left({a}, \\frac{{{b}\\pi}}{{{c}}}\\right)",
            (f"({a}, \\frac{{{b}}}{{{c}}}\\pi)", f"({a},{b}\\pi/{c})", f"x={a}, y=\\frac{{\\pi\\cdot {b}}}{{{c}}}"),
            lambda k: f"({a}, \\frac{{{b + k}\\pi}}{{{c}}})",
        ),
        (
            f"[{a}, \\sqrt{{{a * a + b}}}]",
            (
                f"{a} \\le x \\le \\sqrt{{{b} + {a * a}}}",
                f"\\left[{a},\\sqrt{{{a}^2+{b}}}\\right]",
                f"x\\in[{a},({a * a + b})^{{1/2}}]",
            ),
            lambda k: f"[{a}, \\sqrt{{{a * a + b + k}}}]",
        ),
        (
            f"{a} \\pm \\sqrt{{{b}}}",
            (
                f"{a}+\\sqrt{{{b}}}, {a}-\\sqrt{{{b}}}",
                f"\\{{\\sqrt{{{b}}}+{a}, -\\sqrt{{{b}}}+{a}\\}}",
                f"x=\\frac{{{2 * a}\\pm\\sqrt{{{4 * b}}}}}{{2}}",
            ),
            lambda k: f"{a + k} \\pm \\sqrt{{{b}}}",
        ),
        (
            f"{a}^{{n}}+\\log_{{2}} {b}",
            (
                f"\\log_2({b})+{a}^n",
                f"{a}\\cdot {a}^{{n-1}}+\\log_{{2}}{b}",
                f"{a}^n+\\frac{{\\ln {b}}}{{\\ln 2}}",
            ),
            lambda k: f"{a}^n+\\log_2({b + k})",
        ),
        (
            f"\\frac{{{a}}}{{{b}}}",
            (f"\\dfrac{{{2 * a}}}{{{2 * b}}}", f"{a}/{b}", f"x = \\frac{{-{a}}}{{-{b}}}"),
            lambda k: f"\\frac{{{a + k}}}{{{b}}}",
        ),
        (
            f"\\begin{{pmatrix}} {a} \\\\ {b}/{c} \\end{{pmatrix}}",
            (
                f"\\begin{{bmatrix}}{a}\\\\\\frac{{{b}}}{{{c}}}\\end{{bmatrix}}",
                f"({a}, \\tfrac{{{b}}}{{{c}}})",
                f"\\left(\\begin{{array}}{{c}}{a} \\\\ {b}/{c}\\end{{array}}\\right)",
            ),
            lambda k: f"\\begin{{pmatrix}} {a} \\\\ {b + k}/{c} \\end{{pmatrix}}",
        ),
        (f"{a}-{b}i", (f"-{b}i+{a}", f"{a} - i\\cdot {b}", f"{a}+(-{b})i"), lambda k: f"{a}-{b + k}i"),
    ]


def integer_items(count: int, generator: random.Random) -> list[GradeItem]:
    """AIME-like answers in the forms that models write, half of them right."""
    items = []
    for i in range(count):
        gold = generator.randrange(1000)
        answer = gold if i % 2 else generator.randrange(1000)
        items.append(GradeItem(str(gold), PROSE + generator.choice(INTEGER_FORMS) % answer))
    return items


def latex_items(count: int, generator: random.Random) -> list[GradeItem]:
    """Distinct pairs of golds and answers, in an order that mixes the kinds."""
    items: dict[tuple[str, str], GradeItem] = {}
    while len(items) < count:
        for gold, right, wrong in kinds(*(generator.randint(2, 60) for _ in range(3))):
            for answer in (*right, *(wrong(k) for k in range(1, WRONG_PER_GOLD + 1))):
                items[gold, answer] = GradeItem(gold, PROSE + f"Hence $\\boxed{{{answer}}}$.")
    return list(items.values())[:count]


def measure(name: str, grader: Grader, items: list[GradeItem]) -> None:
    """Prints answers per second, and per second of processor time, which depends less on what else runs."""
    start, start_cpu = time.perf_counter(), processor_seconds(grader)
    verdicts = grader.grade_batch(items)
    seconds, cpu = time.perf_counter() - start, processor_seconds(grader) - start_cpu
    reasons = ", ".join(f"{reason} {n}" for reason, n in Counter(v.reason for v in verdicts).most_common())
    print(f"{name}: {len(items) / seconds:,.0f} answers/s, {len(items) / cpu:,.0f} per second of one processor")
    print(f"    {len(items)} answers in {seconds:.2f} s; {reasons}")


def processor_seconds(grader: Grader) -> float:
    """Processor time of this process and of the grader's workers."""
    times = [psutil.Process(pid).cpu_times() for pid in (os.getpid(), *grader.worker_pids)]
    return sum(t.user + t.system for t in times)


def main() -> None:
    """Runs the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--answers", type=int, default=2000, help="LaTeX answers in a batch; five times as many integers"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    generator = random.Random(arguments.seed)
    with Grader(workers=arguments.workers) as grader:
        measure("integer", grader, integer_items(arguments.answers * 5, generator))
        start = time.perf_counter()
        # two answers, so that two workers start
        pairs = [(f"\\sqrt{{{n}}}", f"\\boxed{{\\sin {n}}}") for n in range(2, 2 + arguments.workers)]
        grader.grade_batch([GradeItem(*pair) for pair in pairs])
        print(f"start of {arguments.workers} workers: {time.perf_counter() - start:.2f} s")
        measure("latex, cold", grader, latex_items(arguments.answers, generator))
        measure("latex, warm", grader, latex_items(arguments.answers, generator))


if __name__ == "__main__":
    main()

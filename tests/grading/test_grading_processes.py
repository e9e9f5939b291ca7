"""Hostile answers, dying workers, threads, forks: nothing hangs, and nobody else's answer suffers."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ebpo.grading import GradeItem, Grader, Verdict, WorkerStartError, grade
from ebpo.grading.protocol import read_message, write_message

ROOT = Path(__file__).resolve().parents[2]

GOOD = (
    GradeItem("5", r"\boxed{5}"),
    GradeItem(r"\frac{\sqrt3}{2}", r"\boxed{\sqrt{\frac34}}"),
    GradeItem("x^2+2x+1", r"\boxed{(x+1)^2}"),
    GradeItem("12345", r"\boxed{12{,}345}"),
    GradeItem(r"\sqrt{18}", r"\boxed{3\sqrt2}"),
    GradeItem(r"2\pi", r"\boxed{\pi\cdot 2}"),
)
# passes every filter, and keeps SymPy busy for longer than it is given
SLOW = GradeItem(r"\sqrt{7}", r"\boxed{" + r"\tan(" * 25 + "1" + ")" * 25 + "}")
HOSTILE = {
    "tower": r"\boxed{9^{9^{9^{9^{9}}}}}",
    "tower without braces": r"\boxed{9^9^9^9^9}",
    "tower in a sum": r"\boxed{9^{9^{9^{9}}}+\pi}",
    "nested braces": r"\boxed{" + "{" * 100_000 + "1" + "}" * 100_000 + "}",
    "open braces": r"\boxed{" + "{" * 100_000,
    "nested boxes": r"\boxed{" * 30_000 + "5" + "}" * 30_000,
    "parentheses": r"\boxed{" + "(" * 190 + "1" + ")" * 190 + "}",
    "one megabyte": r"\boxed{" + "1" * 1_000_000 + "}",
    "one megabyte of prose": "1 " * 500_000 + r"\boxed{6}",
    "backslashes": "\\" * 200_000 + "boxed{6}",
    "commas": r"\boxed{" + "1," * 190 + "2}",
    "equals signs": r"\boxed{" + "=" * 399 + "}",
    "answers": "Answer:" * 30_000,
    "factorial": r"\boxed{(10^8)!}",
    "factorial of a factorial": r"\boxed{((99!)!)!\pi}",
    "sum": r"\boxed{\sum_{k=1}^{10^9}k^k}",
    "binomial": r"\boxed{\binom{10^9}{5\cdot10^8}\pi}",
    "products of exponents": r"\boxed{((((9^{999})^{999})^{999})^{999})^{999}\pi}",
    "exponents of e": r"\boxed{e^{e^{e^{e^{e^{e}}}}}}",
    "scientific": r"\boxed{1e999999999}",
    "polynomial": r"\boxed{(x+y+z+w)^{200}}",
}


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """False also for a process that has ended and only waits for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def running() -> Iterator[Grader]:
    """A grader whose worker has started."""
    with Grader() as grader:
        grader.grade_batch(GOOD)
        yield grader


def assert_six_correct(grader: Grader, first: str, second: str) -> None:
    items = [GradeItem(r"\sqrt{7}", first), *GOOD[:3], GradeItem("1", second), *GOOD[3:]]
    start = time.monotonic()
    verdicts = grader.grade_batch(items)
    seconds = time.monotonic() - start
    assert [v.verdict == "correct" for v in verdicts] == [False, True, True, True, False, True, True, True]
    assert seconds < 5


def test_two_hostile_answers_leave_six_good_ones_correct_from_a_cold_start() -> None:
    with Grader() as grader:
        assert_six_correct(grader, HOSTILE["tower"], HOSTILE["nested braces"])


@pytest.mark.parametrize("first", list(HOSTILE))
def test_two_hostile_answers_leave_six_good_ones_correct(running: Grader, first: str) -> None:
    for second in HOSTILE.values():
        assert_six_correct(running, HOSTILE[first], second)


def test_hostile_answers_that_pass_the_filters_are_unscorable_and_leave_the_good_ones_correct() -> None:
    with Grader() as grader:
        start = time.monotonic()
        verdicts = grader.grade_batch([SLOW, *GOOD[:3], SLOW._replace(gold="x"), *GOOD[3:]])
        seconds = time.monotonic() - start
    assert [v.reason for v in verdicts if v.verdict != "correct"] == ["timeout", "timeout"]
    assert [v.verdict for v in verdicts].count("correct") == 6
    assert seconds < 5


@pytest.mark.parametrize("name", list(HOSTILE))
def test_a_hostile_gold_hangs_nothing(running: Grader, name: str) -> None:
    start = time.monotonic()
    verdict = running.grade(gold=HOSTILE[name][7:-1], completion=r"\boxed{\sqrt{2}}")
    assert time.monotonic() - start < 5
    assert verdict.verdict != "correct"


def test_a_stopped_worker_is_killed_and_replaced() -> None:
    with Grader(timeout_s=0.5) as grader:
        assert grader.grade_batch(GOOD[:2])[1].verdict == "correct"
        (pid,) = grader.worker_pids
        os.kill(pid, signal.SIGSTOP)
        verdicts = grader.grade_batch([GradeItem(r"\sqrt{20}", r"\boxed{2\sqrt5}"), *GOOD[2:]])
        assert [v.reason for v in verdicts if v.verdict != "correct"] == ["timeout"]
        assert grader.worker_pids != [pid]
        assert not is_running(pid)


def test_a_worker_killed_in_the_middle_of_an_answer_costs_only_that_answer() -> None:
    with Grader(timeout_s=30.0) as grader:
        grader.grade_batch(GOOD[:2])
        (pid,) = grader.worker_pids
        os.kill(pid, signal.SIGSTOP)  # it has not answered when the signal that kills it comes
        threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
        verdicts = grader.grade_batch([GradeItem(r"\sqrt{20}", r"\boxed{2\sqrt5}"), *GOOD])
    assert verdicts[0] == Verdict("unscorable", "worker_died", r"2\sqrt5")
    assert [v.verdict for v in verdicts[1:]] == ["correct"] * 6


def test_an_unscorable_verdict_is_not_remembered() -> None:
    item = GradeItem(r"\sqrt{20}", r"\boxed{2\sqrt5}")
    with Grader(timeout_s=0.5) as grader:
        grader.grade_batch(GOOD[:2])
        os.kill(grader.worker_pids[0], signal.SIGSTOP)
        assert [v.verdict for _ in range(2) for v in grader.grade_batch([item])] == ["unscorable", "correct"]


def test_identical_hostile_answers_cost_one_timeout() -> None:
    with Grader() as grader:
        start = time.monotonic()
        verdicts = grader.grade_batch([SLOW] * 16)
        assert time.monotonic() - start < 5
    assert {v.reason for v in verdicts} == {"timeout"}


def test_workers_start_only_when_sympy_is_needed() -> None:
    with Grader() as grader:
        grader.grade_batch([GradeItem("5", r"\boxed{5}"), GradeItem(r"\frac12", r"\boxed{0.5}"), GradeItem("No", "x")])
        assert grader.worker_pids == []
        grader.grade_batch(GOOD)
        assert len(grader.worker_pids) == 1


def test_order_is_kept_with_two_workers() -> None:
    items = [GradeItem(rf"\sqrt{{{8 * n * n}}}", rf"\boxed{{{2 * n + n % 2}\sqrt2}}") for n in range(1, 41)]
    with Grader(workers=2) as grader:
        verdicts = grader.grade_batch(items)
        assert len(grader.worker_pids) == 2
    assert [v.verdict == "correct" for v in verdicts] == [n % 2 == 0 for n in range(1, 41)]


def test_no_worker_outlives_its_grader() -> None:
    with Grader(workers=2) as grader:
        grader.grade_batch([*GOOD, SLOW])
        pids = grader.worker_pids
        assert len(pids) == 2
        assert all(map(is_running, pids))
    assert not any(map(is_running, pids))


def test_a_closed_grader_may_be_used_again() -> None:
    grader = Grader()
    for _ in range(2):
        assert {v.verdict for v in grader.grade_batch(GOOD)} == {"correct"}
        grader.close()


def test_an_interrupted_batch_leaves_no_stale_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    with Grader() as grader:
        grader.grade_batch(GOOD)
        monkeypatch.setattr(grader._pool, "_wait", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            grader.grade_batch([GradeItem(r"\sqrt{20}", r"\boxed{2\sqrt5}")])
        monkeypatch.undo()
        verdicts = grader.grade_batch([GradeItem(r"\ln 4", r"\boxed{\ln 3}")])  # wrong, but only a worker can tell
    assert verdicts[0].verdict == "wrong"


def test_grading_works_from_threads() -> None:
    verdicts: list[Verdict] = []

    def run(n: int) -> None:
        verdicts.append(grade(gold=rf"\sqrt{{{8 * n * n}}}", completion=rf"\boxed{{{2 * n}\sqrt2}}"))

    threads = [threading.Thread(target=run, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [v.reason for v in verdicts] == ["symbolic"] * 8


def _grade_in_child(queue: multiprocessing.Queue) -> None:  # type: ignore[type-arg]
    queue.put(grade(gold=r"\sqrt{20}", completion=r"\boxed{2\sqrt5}"))


def test_a_forked_child_gets_workers_of_its_own() -> None:
    assert grade(gold=r"\sqrt{18}", completion=r"\boxed{3\sqrt2}").verdict == "correct"
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_grade_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=30).verdict == "correct"
    child.join(timeout=30)
    assert child.exitcode == 0
    assert grade(gold=r"\sqrt{50}", completion=r"\boxed{5\sqrt2}").verdict == "correct"


def _grade_with(grader: Grader, queue: multiprocessing.Queue) -> None:  # type: ignore[type-arg]
    verdict = grader.grade(gold=r"\sqrt{20}", completion=r"\boxed{2\sqrt5}")
    queue.put((verdict.verdict, grader.worker_pids))
    grader.close()


def test_a_forked_child_leaves_the_workers_of_an_inherited_grader_alone() -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with Grader() as grader:
        grader.grade_batch(GOOD)
        child = context.Process(target=_grade_with, args=(grader, queue))
        child.start()
        verdict, pids = queue.get(timeout=30)
        child.join(timeout=30)
        assert verdict == "correct"
        assert child.exitcode == 0
        assert not set(pids) & set(grader.worker_pids)
        assert all(map(is_running, grader.worker_pids))
        assert grader.grade(gold=r"\sqrt{50}", completion=r"\boxed{5\sqrt2}").verdict == "correct"


def test_a_worker_without_a_parent_that_kills_it_ends_by_itself() -> None:
    worker = subprocess.Popen(
        [sys.executable, "-m", "ebpo.grading.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    assert read_message(worker.stdout) == {"ready": True}
    request = {"gold": [[SLOW.gold]], "answer": SLOW.completion[7:-1], "answer_type": None, "tolerance": None}
    write_message(worker.stdin, {**request, "budget_s": 600, "kill_s": 0.3})
    assert worker.wait(timeout=30) == -signal.SIGVTALRM
    worker.stdin.close()
    worker.stdout.close()


def run_script(text: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(text))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_script_without_a_main_guard_works_in_any_folder(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text("raise ImportError('shadows the library')")
    done = run_script(
        r"""
        import sys
        sys.path.pop(0)
        from ebpo.grading import grade
        print(grade(gold=r"\sqrt{18}", completion=r"\boxed{3\sqrt2}").reason)
        """,
        tmp_path,
    )
    assert done.stdout.split() == ["symbolic"], done.stderr


def test_importing_loads_neither_torch_nor_sympy(tmp_path: Path) -> None:
    done = run_script(
        r"""
        import sys
        import ebpo.grading
        ebpo.grading.grade(gold=r"\sqrt{18}", completion=r"\boxed{3\sqrt2}")
        print(sorted({"torch", "sympy", "math_verify", "numpy"} & set(sys.modules)))
        """,
        tmp_path,
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("busy", [False, True])
def test_workers_end_when_their_parent_is_killed(tmp_path: Path, busy: bool) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            rf"""
            import threading, time
            from ebpo.grading import Grader
            grader = Grader(timeout_s=60)
            grader.grade(gold=r"\sqrt{{18}}", completion=r"\boxed{{3\sqrt2}}")
            print(*grader.worker_pids, flush=True)
            if {busy}:
                grader.grade(gold=r"\sqrt{{7}}", completion={SLOW.completion!r})
            time.sleep(60)
            """
        )
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, str(script)], env=environment, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert len(pids) == 1
    wait_until(lambda: not any(map(is_running, pids)))


def test_workers_that_cannot_start_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Grader() as grader, pytest.raises(WorkerStartError, match="before they are ready"):
        grader.grade_batch(GOOD)


def test_what_a_library_prints_does_not_break_the_protocol(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('hello from a library')")
    done = run_script(
        r"""
        from ebpo.grading import grade
        print(grade(gold=r"\sqrt{18}", completion=r"\boxed{3\sqrt2}").reason)
        """,
        tmp_path,
        PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}",
    )
    assert done.stdout.split()[-1] == "symbolic", done.stderr


def test_verdicts_can_be_pickled() -> None:
    verdict = grade(gold="5", completion=r"\boxed{5}")
    assert pickle.loads(pickle.dumps(verdict)) == verdict

"""Worker processes with a hard time limit.

Processes, not signals: a limit that only stops waiting leaves the worker busy, and one set by a signal works in main
threads only. Workers are plain `python -m` subprocesses, so nothing is forked with torch loaded and no `__main__` is
imported again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import subprocess
import sys
import time
import weakref
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ebpo.grading.protocol import Decoder, encode
from ebpo.grading.verdict import Reason

log = logging.getLogger(__name__)

START_TIMEOUT_S = 120.0
MAX_FAILED_STARTS = 3
# Ordinary answers need milliseconds of processor time; a worker gives up by itself, which saves a new start.
WORKER_BUDGET_S = 1.0
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])


class WorkerStartError(RuntimeError):
    """Workers end before they are ready: something is wrong with the installation, not with an answer."""


class _Worker:
    """One process and what it is doing."""

    def __init__(self) -> None:
        path = os.pathsep.join(p for p in (_PACKAGE_ROOT, os.environ.get("PYTHONPATH", "")) if p)
        # replies have a pipe of their own, so that nothing a library prints can break the protocol
        self.replies, child_end = os.pipe()
        try:
            # -P: a file such as ./random.py in the working folder must not shadow a library
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ebpo.grading.worker", str(child_end)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(child_end,),
                env={**os.environ, "PYTHONPATH": path},
            )
        except OSError:
            os.close(self.replies)
            raise
        finally:
            os.close(child_end)
        self.decoder = Decoder()
        self.is_ready = False
        self.task: int | None = None
        self.deadline = time.monotonic() + START_TIMEOUT_S

    @property
    def is_idle(self) -> bool:
        return self.is_ready and self.task is None

    def send(self, task: int, request: dict[str, Any], timeout_s: float) -> None:
        assert self.process.stdin is not None
        self.task = task
        self.deadline = time.monotonic() + timeout_s
        with contextlib.suppress(BrokenPipeError):  # it has died: the end of its output will tell
            self.process.stdin.write(encode(request))
            self.process.stdin.flush()

    def receive(self) -> list[dict[str, Any]] | None:
        """Messages that have arrived; None if the process has ended."""
        data = os.read(self.replies, 65536)
        return self.decoder.feed(data) if data else None

    def end(self) -> None:
        """Ends the process, waits for it, and closes the pipes."""
        self.process.kill()
        self.process.wait()
        os.close(self.replies)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


def _end_all(workers: list[_Worker], owner: int) -> None:
    if os.getpid() == owner:  # a forked child must not end its parent's workers
        while workers:
            workers.pop().end()


class WorkerPool:
    """Runs requests in worker processes, started when the first request comes.

    Not thread-safe: `Grader` holds a lock around `run`.

    Args:
        workers: number of processes.
        timeout_s: hard limit of wall-clock time per request; a worker beyond it is killed and replaced.
    """

    def __init__(self, workers: int, timeout_s: float) -> None:
        self._size = workers
        self._timeout_s = timeout_s
        self._workers: list[_Worker] = []
        self._failed_starts = 0
        self._finalizer = weakref.finalize(self, _end_all, self._workers, os.getpid())

    @property
    def pids(self) -> list[int]:
        """Process ids of the living workers."""
        return [w.process.pid for w in self._workers]

    def close(self) -> None:
        """Ends all workers; a later `run` starts new ones."""
        _end_all(self._workers, os.getpid())

    def run(self, requests: Sequence[dict[str, Any]]) -> list[Reason]:
        """Reasons of the verdicts, in the order of the requests.

        A request whose worker had to be killed is "timeout", one whose worker died is "worker_died"; all others are
        answered, whatever happens to those.

        Raises:
            WorkerStartError: workers cannot be started.
        """
        results: list[Reason] = ["error"] * len(requests)
        waiting = deque(range(len(requests)))
        unfinished = len(requests)
        try:
            while unfinished:
                self._start(min(self._size, unfinished))
                for worker in self._workers:
                    if worker.is_idle and waiting:
                        task = waiting.popleft()
                        limits = {
                            "budget_s": min(WORKER_BUDGET_S, self._timeout_s),
                            "kill_s": self._timeout_s + 1,
                        }
                        worker.send(task, {**requests[task], **limits}, self._timeout_s)
                for task, reason in self._wait():
                    results[task] = reason
                    unfinished -= 1
        except BaseException:
            # interrupted: a busy worker would hand its reply to the next batch
            self.close()
            raise
        return results

    def _start(self, wanted: int) -> None:
        while len(self._workers) < wanted:
            self._workers.append(_Worker())

    def _wait(self) -> list[tuple[int, Reason]]:
        """Waits for the next reply, death or deadline of any worker that is not idle; what is finished by it."""
        active = [w for w in self._workers if not w.is_idle]
        with selectors.DefaultSelector() as selector:
            for worker in active:
                selector.register(worker.replies, selectors.EVENT_READ, worker)
            timeout = max(0.0, min(w.deadline for w in active) - time.monotonic())
            readable = [key.data for key, _ in selector.select(timeout)]
        finished: list[tuple[int, Reason]] = []
        for worker in readable:
            messages = worker.receive()
            if messages is None:
                finished += self._lose(worker, "worker_died")
            for message in messages or ():
                if "ready" in message:
                    worker.is_ready = True
                    self._failed_starts = 0
                elif worker.task is not None:
                    finished.append((worker.task, message["reason"]))
                    worker.task = None
        now = time.monotonic()
        for worker in [w for w in self._workers if not w.is_idle and w.deadline < now]:
            finished += self._lose(worker, "timeout")
        return finished

    def _lose(self, worker: _Worker, reason: Reason) -> list[tuple[int, Reason]]:
        """Removes a worker that is dead or must die; the verdict on what it was doing."""
        self._workers.remove(worker)
        worker.end()
        if worker.task is not None:
            log.info("grading worker %d ended: %s", worker.process.pid, reason)
            return [(worker.task, reason)]
        if not worker.is_ready:
            self._failed_starts += 1
            if self._failed_starts >= MAX_FAILED_STARTS:
                raise WorkerStartError(
                    f"grading workers end before they are ready (exit code {worker.process.returncode}, "
                    f"{self._failed_starts} tries); run `{sys.executable} -m ebpo.grading.worker` to see why"
                )
        return []

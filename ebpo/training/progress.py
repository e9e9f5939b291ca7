"""Progress of a training job: a bar on a terminal, lines in a log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

log = logging.getLogger(__name__)

_LINE_EVERY_SECONDS = 5.0


class Progress:
    """Shows step, reward, tokens per second and time left.

    On a terminal a rich bar; otherwise a log line at most every few seconds, and for the first and last step.

    Args:
        shown: False keeps silent (all but the main process of a job).
    """

    def __init__(self, run: str, target: int, start: int, shown: bool = True) -> None:
        self.run, self.target, self.start, self.shown = run, target, start, shown
        self.started = time.monotonic()
        self.last_line = 0.0
        self.bar: Bar | None = None
        if shown and sys.stderr.isatty():
            self.bar = Bar(
                TextColumn(run), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn(),
                console=Console(stderr=True),
            )  # fmt: skip
            self.task = self.bar.add_task("", total=target, completed=start)

    def __enter__(self) -> Progress:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar:
            self.bar.stop()

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        """Called after each step with its metrics."""
        now = time.monotonic()
        left = (now - self.started) / (step - self.start) * (self.target - step)
        text = (
            f"step {step}/{self.target} reward {metrics.get('reward', 0):.3f} "
            f"{metrics['tokens_per_second']:.0f} tokens/s"
        )
        if self.bar:
            self.bar.update(self.task, completed=step, description=text)
        elif self.shown and (now - self.last_line >= _LINE_EVERY_SECONDS or step == self.target):
            self.last_line = now
            log.info("%s: %s, %.0f s left", self.run, text, left)

"""The prompt stream: an endless sequence of problems, epoch after epoch, with a cursor that can be saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass
class PromptStream:
    """Visits `order(epoch)` for epoch 0, 1, ...; its whole state is (epoch, cursor).

    Attributes:
        order: epoch -> ids, a pure function.
        epoch, cursor: the next prompt is order(epoch)[cursor].
    """

    order: Callable[[int], Sequence[str]]
    epoch: int = 0
    cursor: int = 0

    def take(self, count: int) -> list[str]:
        """The next `count` ids; runs over the end of an epoch into the next."""
        taken: list[str] = []
        while len(taken) < count:
            current = self.order(self.epoch)
            if not current:
                raise ValueError("the prompt stream is empty; training needs at least one problem")
            part = list(current[self.cursor : self.cursor + count - len(taken)])
            taken += part
            self.cursor += len(part)
            if self.cursor >= len(current):
                self.epoch, self.cursor = self.epoch + 1, 0
        return taken

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "cursor": self.cursor}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.epoch, self.cursor = state["epoch"], state["cursor"]

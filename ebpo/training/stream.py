"""The prompt stream: an endless sequence of problems, epoch after epoch, with a cursor that can be saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


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
    _known: dict[int, Sequence[str]] = field(default_factory=dict, init=False, repr=False)

    def take(self, count: int) -> list[str]:
        """The next `count` ids; runs over the end of an epoch into the next."""
        taken: list[str] = []
        while len(taken) < count:
            current = self._current()
            if not current:
                raise ValueError("the prompt stream is empty; training needs at least one problem")
            part = list(current[self.cursor : self.cursor + count - len(taken)])
            taken += part
            self.cursor += len(part)
            if self.cursor >= len(current):
                self.epoch, self.cursor = self.epoch + 1, 0
        return taken

    def _current(self) -> Sequence[str]:
        """The present epoch's order, computed once."""
        if self.epoch not in self._known:
            self._known = {self.epoch: self.order(self.epoch)}
        return self._known[self.epoch]

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "cursor": self.cursor}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.epoch, self.cursor = state["epoch"], state["cursor"]

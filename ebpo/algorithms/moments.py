"""Running moments: Welford's accumulator, updated and merged in batches (Chan, Golub, LeVeque 1983)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, float64


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations (M2) of the values seen so far.

    With forgetting, `count` is the sum of the values' weights.
    """

    count: float = 0.0
    mean: float = 0.0
    m2: float = 0.0

    @property
    def variance(self) -> float:
        """Unbiased variance M2 / (count - 1), as torch.var; 0 for fewer than two values."""
        return max(self.m2, 0.0) / (self.count - 1) if self.count > 1 else 0.0

    @classmethod
    def of(cls, values: Tensor) -> Moments:
        """Moments of a 1-D tensor, two-pass in float64; M2 of equal values is exactly 0."""
        if values.numel() == 0:
            return cls()
        exact = values.to(float64)
        low, high = float(exact.min()), float(exact.max())
        if low == high:
            return cls(float(values.numel()), low, 0.0)
        mean = exact.mean()
        return cls(float(values.numel()), float(mean), float((exact - mean).square().sum()))

    def merge(self, other: Moments) -> Moments:
        """Moments of both sets of values together (Chan's formula); symmetric up to rounding."""
        if not other.count:
            return self
        if not self.count:
            return other
        count = self.count + other.count
        delta = other.mean - self.mean
        return Moments(
            count,
            self.mean + delta * (other.count / count),
            self.m2 + other.m2 + delta * delta * (self.count * other.count / count),
        )

    def decay(self, factor: float) -> Moments:
        """The same distribution with every weight multiplied by `factor`, a number in (0, 1]."""
        return Moments(self.count * factor, self.mean, self.m2 * factor)

    def to_dict(self) -> dict[str, float]:
        return {"count": self.count, "mean": self.mean, "m2": self.m2}

    @classmethod
    def from_dict(cls, values: Mapping[str, float]) -> Moments:
        return cls(**values)

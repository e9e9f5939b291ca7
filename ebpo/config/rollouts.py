"""Which engine samples completions, and how far it may differ from the trainer."""

from __future__ import annotations

from typing import Literal

from ebpo.algorithms.settings import Fraction, PositiveFloat, Settings
from ebpo.config.types import PositiveInt


class Rollouts(Settings):
    """The rollout engine of training, evaluation and difficulty.

    Attributes:
        engine: `transformers` samples from the trainer's own model; `vllm` keeps a second copy of the weights in this
            process, on the same device.
        batch_size: sequences decoded together; changes memory and speed, never the completions (up to rounding).
        gpu_memory_utilization: share of the GPU that vLLM may fill with its weights and key-value cache; without
            effect on CPU, where VLLM_CPU_KVCACHE_SPACE (GiB) bounds the cache.
        logprob_bound: largest allowed mean |log pi_engine - log pi_trainer| in nats; above it the run stops. None is
            1e-3 in float32 and 5e-2 in bfloat16.
        importance_cap: cap C of the truncated importance-sampling correction of that difference; None is off.
    """

    engine: Literal["transformers", "vllm"] = "transformers"
    batch_size: PositiveInt = 512
    gpu_memory_utilization: Fraction = 0.3
    logprob_bound: PositiveFloat | None = None
    importance_cap: PositiveFloat | None = None

    def bound(self, dtype: Literal["float32", "bfloat16"]) -> float:
        """`logprob_bound`, or what belongs to the policy's dtype."""
        return self.logprob_bound or {"float32": 1e-3, "bfloat16": 5e-2}[dtype]

"""A tiny model in float64, its rows, and every algorithm of the comparison, for tests of gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from ebpo.algorithms.registry import needs_selection, select_tokens
from ebpo.algorithms.settings import (
    AlgorithmSettings,
    DAPOSettings,
    DrGRPOSettings,
    EBPOSettings,
    EntropyMechSettings,
    GRPOSettings,
)
from ebpo.rollouts.batch import Batch, logprobs_in_chunks, make_batch
from ebpo.rollouts.protocol import Completion
from ebpo.training.update import OptimizerBatch

ALGORITHMS: dict[str, AlgorithmSettings] = {
    "grpo": GRPOSettings(kl_coef=0.05),
    "dr_grpo": DrGRPOSettings(),
    "dapo": DAPOSettings(),
    "ebpo": EBPOSettings(kl_coef=0.05),
    "clip_cov": EntropyMechSettings(clip_cov_fraction=0.2, clip_cov_low=0.0, clip_cov_high=100.0),
    "kl_cov": EntropyMechSettings(variant="kl_cov", kl_cov_fraction=0.2),
}
ROWS = 8


def tiny_model() -> PreTrainedModel:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=8,
        intermediate_size=32, max_position_embeddings=128, tie_word_embeddings=True,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).double().eval()


def rows(seed: int = 0) -> list[tuple[list[int], Completion]]:
    """Prompts and completions of different lengths."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for number in range(ROWS):
        prompt = torch.randint(2, 40, (3 + number % 4,), generator=generator).tolist()
        completion = torch.randint(2, 40, (1 + (5 * number) % 7,), generator=generator).tolist()
        made.append((prompt, Completion(completion, "", "stop")))
    return made


def optimizer_batch(
    model: PreTrainedModel,
    settings: AlgorithmSettings,
    data: Sequence[tuple[list[int], Completion]] | None = None,
    *,
    extra_padding: int = 0,
    order: Sequence[int] = range(ROWS),
    generated: int | None = None,
    blank: Sequence[int] = (),
) -> OptimizerBatch:
    """The rows in some order, with old and reference log-probs near the model's and random advantages.

    Args:
        extra_padding: further columns of padding.
        generated: rows of the rollout batch of which these are the first ones; it fixes the padding.
        blank: rows that are masked.
    """
    data = data or rows()
    made = [*order, *range(len(order), generated or 0)]
    batch = make_batch([data[i][0] for i in made], [data[i][1] for i in made], 0, "cpu", extra_padding)
    batch = batch.rows(slice(0, len(order)))
    keep = torch.tensor([[i not in blank] for i in order])
    batch = Batch(batch.input_ids, batch.attention_mask, batch.mask & keep)
    width = batch.mask.shape[1]
    noise = torch.randn(ROWS, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float64)[list(order), :width]
    current, _ = logprobs_in_chunks(model, batch, 1.0, ROWS)
    noise = noise.to(current.dtype)
    old = torch.where(batch.mask, current + 0.3 * noise, 0.0)
    reference = torch.where(batch.mask, current - 0.2 * noise, 0.0) if settings.kl_coef else None
    advantages = torch.randn(ROWS, generator=torch.Generator().manual_seed(2), dtype=torch.float64)[list(order)]
    selected = None
    if needs_selection(settings):
        selected = select_tokens(settings, current, old, advantages, batch.mask, torch.Generator().manual_seed(3))
    return OptimizerBatch.of(settings, batch, old, advantages, reference, selected, max_length=12)

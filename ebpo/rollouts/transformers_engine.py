"""Rollouts by a transformers model in this process.

Own decoding loop, because `generate()` computes a prompt once for each of its n completions, carries finished rows to
the end, and draws all rows from one random stream, so that a completion depends on what else is in its batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from ebpo.rollouts.protocol import Completion, Sampling
from ebpo.seeds import derive_seed


class TransformersRollouts:
    """Samples from a model in this process, so the weights are always the trainer's own.

    Args:
        batch_size: sequences decoded together; changes memory, never the completions (up to rounding).
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, batch_size: int = 512) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.eos_ids = eos_token_ids(model.generation_config, tokenizer)

    def generate(
        self, prompt_ids: Sequence[Sequence[int]], n: int, sampling: Sampling, keys: Sequence[int] | None = None
    ) -> list[list[Completion]]:
        """`n` completions of each prompt; see `Rollouts.generate`."""
        keys = range(len(prompt_ids)) if keys is None else keys
        completions: list[list[Completion]] = [[] for _ in prompt_ids]
        # Prompts of similar length share a batch: less padding.
        order = sorted(range(len(prompt_ids)), key=lambda i: len(prompt_ids[i]))
        per_batch = max(1, self.batch_size // n)
        training = self.model.training
        self.model.eval()
        with torch.inference_mode():
            for start in range(0, len(order), per_batch):
                chosen = order[start : start + per_batch]
                noise = [uniform_noise(sampling, keys[i], n) for i in chosen]
                decoded = self._decode([prompt_ids[i] for i in chosen], n, sampling, torch.from_numpy(np.stack(noise)))
                for i, group in zip(chosen, decoded, strict=True):
                    completions[i] = group
        self.model.train(training)
        return completions

    def sync(self, model: PreTrainedModel) -> None:
        """Does nothing: the engine samples from the model that is trained.

        Raises:
            ValueError: `model` is another one.
        """
        if model is not self.model:
            raise ValueError("the transformers engine samples from the model that it was made with, not from this one")

    def sleep(self) -> None:
        """Does nothing: between calls the engine holds no memory of its own."""

    def _decode(
        self, prompts: Sequence[Sequence[int]], n: int, sampling: Sampling, noise: Tensor
    ) -> list[list[Completion]]:
        """Decodes P prompts, n rows each; `noise` is [P, n, max_new_tokens] in [0, 1)."""
        device, budget = self.model.device, sampling.max_new_tokens
        width = max(len(prompt) for prompt in prompts)
        pad = self.eos_ids[0]  # masked, so any id does
        ids = torch.tensor([[pad] * (width - len(p)) + list(p) for p in prompts], device=device)
        lengths = torch.tensor([len(p) for p in prompts], device=device)
        mask = torch.arange(width, device=device) >= (width - lengths).unsqueeze(1)

        cache = DynamicCache(config=self.model.config)
        positions = (torch.arange(width, device=device) - (width - lengths).unsqueeze(1)).clamp(min=0)
        logits = self._forward(ids, mask, positions, cache).repeat_interleave(n, dim=0)
        cache.batch_repeat_interleave(n)
        mask = torch.cat([mask, mask.new_ones(len(prompts), budget)], dim=1).repeat_interleave(n, dim=0)
        position = lengths.repeat_interleave(n)
        noise = noise.flatten(0, 1).to(device)
        eos = torch.tensor(self.eos_ids, device=device)

        rows = len(prompts) * n
        sampled = torch.zeros(rows, budget, dtype=torch.long, device=device)
        logprobs, entropies = torch.zeros(2, rows, budget, device=device)
        count = torch.zeros(rows, dtype=torch.long, device=device)
        stopped = torch.zeros(rows, dtype=torch.bool, device=device)
        active = torch.arange(rows, device=device)  # which row each row of the cache belongs to
        for step in range(budget):
            token, logp, entropy = sample_tokens(logits, noise[active, step], sampling.temperature)
            going = ~stopped[active]
            live = active[going]
            sampled[live, step], logprobs[live, step], entropies[live, step] = token[going], logp[going], entropy[going]
            count[live] = step + 1
            stopped[live] = torch.isin(token[going], eos)
            going = ~stopped[active]
            remaining = int(going.sum())
            if not remaining or step + 1 == budget:
                break
            # Copying the cache pays only once enough rows have ended.
            if remaining <= 0.75 * len(active):
                keep = going.nonzero().flatten()
                cache.batch_select_indices(keep)
                active, token, mask, position = active[keep], token[keep], mask[keep], position[keep]
            logits = self._forward(
                token.unsqueeze(1), mask[:, : width + step + 1], (position + step).unsqueeze(1), cache
            )
        flat = [
            self._completion(ids[:length], logp[:length], entropy[:length], end)
            for ids, logp, entropy, length, end in zip(
                *(table.tolist() for table in (sampled, logprobs, entropies, count, stopped)), strict=True
            )
        ]
        return [flat[i : i + n] for i in range(0, len(flat), n)]

    def _forward(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: DynamicCache) -> Tensor:
        """Logits of the last position, [rows, V]."""
        output = self.model(
            input_ids=ids,
            attention_mask=mask.long(),
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = output.logits[:, -1]
        return logits

    def _completion(self, ids: list[int], logprobs: list[float], entropies: list[float], stopped: bool) -> Completion:
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        return Completion(ids, str(text), "stop" if stopped else "length", logprobs, entropies)


def uniform_noise(sampling: Sampling, key: int, n: int) -> np.ndarray:
    """The random numbers in [0, 1) of one prompt's completions, [n, max_new_tokens] float64."""
    generator = np.random.Generator(np.random.Philox(derive_seed("completion", sampling.seed, key)))
    return generator.random((n, sampling.max_new_tokens))


def sample_tokens(logits: Tensor, noise: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """One token per row from softmax(logits / temperature), by inversion of the distribution function.

    Args:
        logits: [R, V]; noise: [R] float64 in [0, 1). Temperature 0 takes the most probable token.

    Returns:
        tokens [R], their log-probabilities [R] float32, and the entropies [R] of the distributions (both under
        temperature 1 where it is 0).
    """
    distribution = torch.log_softmax(logits.float() / (temperature or 1.0), dim=-1)
    if temperature == 0:
        token = distribution.argmax(dim=-1)
    else:
        # float64, scaled by the total and kept below it: rounding can never choose a token of probability 0.
        cumulative = distribution.double().exp().cumsum(dim=-1)
        level = noise.clamp(max=1 - 2**-52) * cumulative[:, -1]
        token = torch.searchsorted(cumulative, level.unsqueeze(1), right=True).squeeze(1)
    entropy = torch.special.entr(distribution.exp()).sum(dim=-1)
    return token, distribution.gather(-1, token.unsqueeze(1)).squeeze(1), entropy


def eos_token_ids(generation_config: GenerationConfig | None, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """All ids that end a completion: those of the generation configuration, else the tokenizer's.

    Raises:
        ValueError: there is none.
    """
    ids = generation_config.eos_token_id if generation_config is not None else None
    if ids is None:
        ids = tokenizer.eos_token_id
    if ids is None:
        raise ValueError("neither the model's generation_config nor its tokenizer names an end-of-sequence token")
    return list(ids) if isinstance(ids, list) else [int(ids)]

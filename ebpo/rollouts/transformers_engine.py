"""Rollouts by transformers' generate."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from ebpo.rollouts.protocol import Completion, Sampling


class TransformersRollouts:
    """Samples from a model in this process, so the weights are always the trainer's own.

    Args:
        batch_size: sequences per generate call; changes memory and, through the random stream, which completions
            are drawn, never their distribution.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, batch_size: int = 512) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.eos_ids = eos_token_ids(model, tokenizer)

    def generate(self, prompt_ids: Sequence[Sequence[int]], n: int, sampling: Sampling) -> list[list[Completion]]:
        completions: list[list[Completion]] = []
        per_call = max(1, self.batch_size // n)
        training = self.model.training
        self.model.eval()
        # The caller's random state is left as it was: resuming must not depend on how much was sampled.
        devices = [self.model.device] if self.model.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), torch.inference_mode():
            torch.manual_seed(sampling.seed)
            for start in range(0, len(prompt_ids), per_call):
                completions += self._batch(prompt_ids[start : start + per_call], n, sampling)
        self.model.train(training)
        return completions

    def _batch(self, prompts: Sequence[Sequence[int]], n: int, sampling: Sampling) -> list[list[Completion]]:
        width = max(len(prompt) for prompt in prompts)
        pad = self.eos_ids[0]  # masked, so any id does
        padded = [[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        input_ids = torch.tensor(padded, device=self.model.device)
        mask = (torch.arange(width) >= torch.tensor([[width - len(p)] for p in prompts])).long().to(self.model.device)
        config = GenerationConfig(
            do_sample=True,
            temperature=sampling.temperature,
            top_p=1.0,
            top_k=0,
            min_p=None,
            typical_p=1.0,
            repetition_penalty=1.0,
            no_repeat_ngram_size=0,
            num_beams=1,
            max_new_tokens=sampling.max_new_tokens,
            eos_token_id=self.eos_ids,
            pad_token_id=pad,
            bos_token_id=None,
            use_cache=True,
        )
        cache = self._prefill(input_ids, mask, n)
        # generate() fills fields that equal the library's defaults from the model's own configuration: set ours whole.
        own, self.model.generation_config = self.model.generation_config, config
        try:
            output = self.model.generate(
                input_ids=input_ids.repeat_interleave(n, dim=0),
                attention_mask=mask.repeat_interleave(n, dim=0),
                past_key_values=cache,
                generation_config=config,
            )
        finally:
            self.model.generation_config = own
        flat = [self._completion(ids, sampling.max_new_tokens) for ids in output[:, width:].tolist()]
        return [flat[i : i + n] for i in range(0, len(flat), n)]

    def _prefill(self, input_ids: Tensor, mask: Tensor, n: int) -> DynamicCache | None:
        """Keys and values of each prompt but its last token, computed once and repeated for its n completions."""
        if input_ids.shape[1] < 2:
            return None
        cache = DynamicCache(config=self.model.config)
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        self.model(
            input_ids=input_ids[:, :-1],
            attention_mask=mask[:, :-1],
            position_ids=positions[:, :-1],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache.batch_repeat_interleave(n)
        return cache

    def _completion(self, ids: list[int], budget: int) -> Completion:
        end = next((i for i, token in enumerate(ids) if token in self.eos_ids), None)
        kept = ids[:budget] if end is None else ids[: end + 1]
        text = self.tokenizer.decode(kept, skip_special_tokens=True)
        return Completion(kept, text, "length" if end is None else "stop")


def eos_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """All ids that end a completion: those of the generation configuration, else the tokenizer's.

    Raises:
        ValueError: there is none.
    """
    ids = model.generation_config.eos_token_id if model.generation_config is not None else None
    if ids is None:
        ids = tokenizer.eos_token_id
    if ids is None:
        raise ValueError("neither the model's generation_config nor its tokenizer names an end-of-sequence token")
    return list(ids) if isinstance(ids, list) else [int(ids)]

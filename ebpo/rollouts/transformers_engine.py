"""Rollouts by transformers' generate."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

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
        rows = [list(ids) for ids in prompt_ids for _ in range(n)]
        completions: list[Completion] = []
        training = self.model.training
        self.model.eval()
        # The caller's random state is left as it was: resuming must not depend on how much was sampled.
        devices = [self.model.device] if self.model.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), torch.inference_mode():
            torch.manual_seed(sampling.seed)
            for start in range(0, len(rows), self.batch_size):
                completions += self._batch(rows[start : start + self.batch_size], sampling)
        self.model.train(training)
        return [completions[i : i + n] for i in range(0, len(completions), n)]

    def _batch(self, rows: list[list[int]], sampling: Sampling) -> list[Completion]:
        width = max(len(row) for row in rows)
        pad = self.eos_ids[0]  # masked, so any id does
        input_ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows], device=self.model.device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=self.model.device)
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
        # generate() fills fields that equal the library's defaults from the model's own configuration: set ours whole.
        own, self.model.generation_config = self.model.generation_config, config
        try:
            output = self.model.generate(input_ids=input_ids, attention_mask=mask, generation_config=config)
        finally:
            self.model.generation_config = own
        return [self._completion(ids, sampling.max_new_tokens) for ids in output[:, width:].tolist()]

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

"""Topics by an instruct model: the name that is most probable as its answer; it cannot answer anything else."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from ebpo.config import Labeller
from ebpo.policy.loading import DTYPES, require_device

log = logging.getLogger(__name__)


def load_labeller(settings: Labeller) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model, in evaluation mode, and its tokenizer.

    Raises:
        ValueError: they cannot be had, or the device is missing.
    """
    require_device(settings.device)
    try:
        tokenizer = AutoTokenizer.from_pretrained(settings.model, revision=settings.revision)
        model = AutoModelForCausalLM.from_pretrained(
            settings.model, revision=settings.revision, dtype=DTYPES[settings.dtype]
        )
    except OSError as error:
        raise ValueError(f"topics.llm.model: {settings.model!r} cannot be loaded ({type(error).__name__})") from error
    return model.to(settings.device).eval(), tokenizer


def label_scores(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[str],
    descriptions: Mapping[str, Sequence[str]],
    *,
    batch_size: int,
    max_problem_tokens: int,
) -> np.ndarray:
    """Log-probability that the model's answer is the topic's name and nothing more, [N, K] in nats; none is sampled."""
    names = [name.replace("_", " ") for name in descriptions]
    # The end is part of the answer: else a name that begins another one would always beat it.
    end = [tokenizer.eos_token_id] if tokenizer.chat_template else _ids(tokenizer, "\n")
    answers = [_ids(tokenizer, f" {name}") + end for name in names]
    texts = [_cut(tokenizer, problem, max_problem_tokens) for problem in problems]
    prompts = [_prompt(tokenizer, text, names, descriptions) for text in texts]
    # Prompts of similar length share a batch: less padding.
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    scores = np.empty((len(prompts), len(names)))
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        scores[chosen] = _log_probabilities(model, [prompts[i] for i in chosen], answers)
        log.info("labelled %d of %d", min(start + batch_size, len(order)), len(order))
    return scores


def _ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _cut(tokenizer: PreTrainedTokenizerBase, problem: str, tokens: int) -> str:
    ids = _ids(tokenizer, problem)
    return problem if len(ids) <= tokens else str(tokenizer.decode(ids[:tokens]))


def _prompt(
    tokenizer: PreTrainedTokenizerBase, problem: str, names: Sequence[str], descriptions: Mapping[str, Sequence[str]]
) -> list[int]:
    topics = "\n".join(f"- {n}: {texts[0]}" for n, texts in zip(names, descriptions.values(), strict=True))
    text = (
        f"Which one of these topics does the problem belong to?\n{topics}\n\nProblem: {problem}\n\n"
        "Answer with the name of the topic alone."
    )
    opening = "Topic:"
    if not tokenizer.chat_template:
        return list(tokenizer(f"{text}\n{opening}")["input_ids"])
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=True, return_dict=True
    )
    return [*chat["input_ids"], *_ids(tokenizer, opening)]


@torch.inference_mode()
def _log_probabilities(
    model: PreTrainedModel, prompts: Sequence[list[int]], answers: Sequence[list[int]]
) -> np.ndarray:
    """log P(answer | prompt), [P, K] float64. A prompt is computed once for all answers."""
    device, width = model.device, max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts], device=device)
    lengths = torch.tensor([len(p) for p in prompts], device=device)
    mask = torch.arange(width, device=device) >= (width - lengths).unsqueeze(1)
    cache = DynamicCache(config=model.config)
    positions = (torch.arange(width, device=device) - (width - lengths).unsqueeze(1)).clamp(min=0)
    first = model(
        input_ids=ids, attention_mask=mask.long(), position_ids=positions, past_key_values=cache, logits_to_keep=1
    ).logits

    count, longest = len(answers), max(map(len, answers))
    cache.batch_repeat_interleave(count)
    padded = torch.tensor([a + [0] * (longest - len(a)) for a in answers], device=device)
    present = torch.tensor([[1] * len(a) + [0] * (longest - len(a)) for a in answers], device=device)
    tokens, used = padded.repeat(len(prompts), 1), present.repeat(len(prompts), 1)
    logits = first.repeat_interleave(count, dim=0)
    if longest > 1:
        steps = torch.arange(longest - 1, device=device)
        rest = model(
            input_ids=tokens[:, :-1],
            attention_mask=torch.cat([mask.long().repeat_interleave(count, dim=0), used[:, :-1]], dim=1),
            position_ids=lengths.repeat_interleave(count).unsqueeze(1) + steps,
            past_key_values=cache,
        ).logits
        logits = torch.cat([logits, rest], dim=1)
    logp: Tensor = torch.log_softmax(logits.double(), dim=-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return np.asarray((logp * used).sum(dim=1).view(len(prompts), count).cpu())

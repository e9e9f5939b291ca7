"""The demo's base policy: a small Qwen3 model, supervised on generated problems with answers that sometimes slip."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from ebpo.config import Cell, GeneratedData, PolicyRecipe
from ebpo.problems.reasoning_gym_source import draw
from ebpo.problems.record import Problem
from ebpo.problems.shares import share_of
from ebpo.prompts import render

log = logging.getLogger(__name__)

PAD, EOS = "<pad>", "<eos>"
_IGNORED = -100  # label that cross_entropy leaves out


def completion_text(answer: str) -> str:
    """What the policy is taught to say: the answer in the box that the grader reads."""
    return f"\\boxed{{{answer}}}"


def sample_items(data: GeneratedData, recipe: PolicyRecipe) -> list[tuple[str, str]]:
    """(question, answer) pairs from the training share alone, in equal numbers per cell, with slips.

    A slip replaces the answer by that of another item of the cell, so a wrong answer looks like a right one.
    """
    rng = random.Random(recipe.seed)
    items: list[tuple[str, str]] = []
    for cell in data.cells:
        problems = _training_share(cell, data, recipe, math.ceil(recipe.items / len(data.cells)))
        answers = [p.answer for p in problems]
        items += [
            (p.problem, rng.choice(answers) if rng.random() < recipe.slip[cell.id] else p.answer) for p in problems
        ]
    rng.shuffle(items)
    return items[: recipe.items]


def _training_share(cell: Cell, data: GeneratedData, recipe: PolicyRecipe, count: int) -> list[Problem]:
    # Another seed than the problem sets': the policy sees the kind of problem, not the same draw of it.
    taken: list[Problem] = []
    for problem in draw(cell, data.seed + 1_000_000 * (recipe.seed + 1)):
        if share_of(problem.problem, data.held_out) == "train":
            taken.append(problem)
            if len(taken) == count:
                break
    return taken


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE with single digits and merges across spaces, so that a short question is a few tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=96,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS)


def build_policy(data: GeneratedData, recipe: PolicyRecipe, folder: Path, threads: int = 1) -> None:
    """Builds the policy and writes it to `folder` in the Hugging Face format.

    The weights are a function of the data's cells and seed, the recipe and the number of threads.
    """
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(recipe.seed)
    items = sample_items(data, recipe)
    log.info("%d items; training the tokenizer", len(items))
    texts = [text for question, answer in items[:20_000] for text in (f"{question}\n", completion_text(answer))]
    tokenizer = train_tokenizer(texts, recipe.vocabulary)
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=recipe.hidden_size,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.heads,
            head_dim=recipe.hidden_size // recipe.heads,
            intermediate_size=recipe.intermediate_size,
            max_position_embeddings=recipe.max_positions,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=eos,
            pad_token_id=pad,
        )
    )
    log.info("%d parameters", sum(p.numel() for p in model.parameters()))
    # Few texts are distinct: each is tokenized once.
    prompts = {question: render(tokenizer, "plain", question) for question, _ in items}
    completions = {answer: [*tokenizer(completion_text(answer))["input_ids"], eos] for _, answer in items}
    encoded = [(prompts[question], completions[answer]) for question, answer in items]
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    warmup = max(1, recipe.steps // 50)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: min(1.0, (s + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * s / recipe.steps)),
    )
    generator = torch.Generator().manual_seed(recipe.seed)
    batches: list[list[int]] = []
    start = time.monotonic()
    model.train()
    for step in range(recipe.steps):
        if not batches:
            batches = _epoch([len(p) + len(c) for p, c in encoded], recipe.batch_size, generator)
        input_ids, labels = _pad([encoded[i] for i in batches.pop()], pad)
        loss = torch.nn.functional.cross_entropy(
            model(input_ids=input_ids).logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=_IGNORED
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 99 or step + 1 == recipe.steps:
            per_step = (time.monotonic() - start) / (step + 1)
            left = per_step * (recipe.steps - step - 1)
            log.info("step %d/%d loss %.4f, %.0f s left", step + 1, recipe.steps, loss.item(), left)
    model.eval()
    model.generation_config.update(eos_token_id=eos, pad_token_id=pad, bos_token_id=None)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _epoch(lengths: Sequence[int], batch_size: int, generator: torch.Generator) -> list[list[int]]:
    """Every item once, in batches of items of like length (less padding), both drawn at random."""
    noise = torch.rand(len(lengths), generator=generator).tolist()
    order = sorted(range(len(lengths)), key=lambda i: lengths[i] + 6 * noise[i])
    full = [order[i : i + batch_size] for i in range(0, len(order) - batch_size + 1, batch_size)]
    return [full[i] for i in torch.randperm(len(full), generator=generator).tolist()]


def _pad(batch: Sequence[tuple[list[int], list[int]]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded ids [N, L], and labels [N, L] that count completion tokens only."""
    width = max(len(prompt) + len(completion) for prompt, completion in batch)
    input_ids = torch.full((len(batch), width), pad)
    labels = torch.full((len(batch), width), _IGNORED)
    for row, (prompt, completion) in enumerate(batch):
        end = len(prompt) + len(completion)
        input_ids[row, :end] = torch.tensor(prompt + completion)
        labels[row, len(prompt) : end] = torch.tensor(completion)
    return input_ids, labels

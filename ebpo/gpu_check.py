"""How far rollouts and updates on a GPU are from those on the CPU, their speed and their peak memory."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM

from ebpo.rollouts.batch import Batch, make_batch, token_logprobs
from ebpo.rollouts.protocol import Completion, Sampling
from ebpo.rollouts.transformers_engine import TransformersRollouts

PROMPTS, GROUP, NEW_TOKENS, UPDATES = 32, 4, 10, 3
# Largest difference of a log-probability in nats. Kernels add up in another order: about 1e-6 of a logit of 10 in
# float32. AdamW divides by the gradient's size, so that rounding of small gradients counts after updates.
FLOAT32_BOUND, UPDATED_BOUND = 1e-4, 1e-2
# Mean difference: bfloat16 has 8 bits. The bound of a training step in ebpo/config/rollouts.py.
BFLOAT16_BOUND = 5e-2


@dataclass(frozen=True)
class Load:
    """What the speed is measured on: GROUP completions of each prompt; lengths in tokens."""

    prompts: int
    prompt_tokens: int
    new_tokens: int
    micro_batch: int  # completions per pass of an update


def check_equality(base: PreTrainedModel, other: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Prints how far a policy on a device is from the same on the CPU; returns the names of what is out of bounds.

    Both are trained for a few updates.
    """
    device = other.device
    prompts = arithmetic_prompts(tokenizer)
    greedy = [sample(m, tokenizer, prompts, 1, 0.0) for m in (base, other)]
    same = sum(a.token_ids == b.token_ids for a, b in zip(*greedy, strict=True))

    rows = [ids for ids in prompts for _ in range(GROUP)]
    completions = sample(base, tokenizer, prompts, GROUP, 1.0)
    batches = [make_batch(rows, completions, tokenizer.pad_token_id or 0, d) for d in ("cpu", device)]
    plain = differences(base, other, batches)
    with torch.autocast(device.type, torch.bfloat16):
        half = token_logprobs(other, batches[1], 1.0).detach().cpu()
    with torch.no_grad():
        exact = token_logprobs(base, batches[0], 1.0)
    half_difference = (half - exact).abs()[batches[0].mask]
    norms = [update(m, b, UPDATES, micro_batch=PROMPTS) for m, b in zip((base, other), batches, strict=True)]
    updated = differences(base, other, batches)

    checks = {
        "greedy completions": (same == PROMPTS, f"{same} of {PROMPTS} equal"),
        "log-probs": (float(plain.max()) <= FLOAT32_BOUND, f"largest difference {float(plain.max()):.1e} nats"),
        "bfloat16": (
            float(half_difference.mean()) <= BFLOAT16_BOUND,
            f"mean difference {float(half_difference.mean()):.1e} nats",
        ),
        "updates": (
            float(updated.max()) <= UPDATED_BOUND,
            f"after {UPDATES}: largest difference of a log-prob {float(updated.max()):.1e} nats, "
            f"last gradient norms {norms[0]:.6g} and {norms[1]:.6g}",
        ),
    }
    for name, (ok, detail) in checks.items():
        print(f"{'ok    ' if ok else 'FAILED'} {name}: {detail}", flush=True)
    return [name for name, (ok, _) in checks.items() if not ok]


def measure_speed(
    name: str, shape: dict[str, int], load: Load, tokenizer: PreTrainedTokenizerBase, device: torch.device
) -> None:
    """Prints tokens per second and peak memory of rollouts and updates as the trainer does them on one GPU.

    Args:
        name: what the shape is called in the lines printed.
        shape: the sizes in a Qwen3 configuration; the weights are random.
        load: how much is sampled and updated.
        tokenizer: decodes the samples.
        device: where.
    """
    torch.manual_seed(0)
    config = Qwen3Config(**shape, max_position_embeddings=4096, tie_word_embeddings=True, eos_token_id=1)
    model = Qwen3ForCausalLM(config).to(device).eval()
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{name}, random weights: {parameters / 1e6:.1f} M parameters, float32, passes in bfloat16", flush=True)
    # Ids that the tokenizer of another model has no text for decode to nothing, which is all the same here.
    rng = random.Random(0)
    prompts = [[rng.randrange(2, config.vocab_size) for _ in range(load.prompt_tokens)] for _ in range(load.prompts)]
    with torch.autocast(device.type, torch.bfloat16):
        sample(model, tokenizer, prompts[:2], GROUP, 1.0, 4)  # kernels are chosen and loaded at first use
        started = clock(device)
        completions = sample(model, tokenizer, prompts, GROUP, 1.0, load.new_tokens)
        tokens = sum(len(c.token_ids) for c in completions)
        report("rollouts", tokens, clock(device) - started, device)
        batch = make_batch([ids for ids in prompts for _ in range(GROUP)], completions, 0, device)
        update(model, batch.rows(slice(0, load.micro_batch)), 1, load.micro_batch)
        started = clock(device)
        update(model, batch, 1, load.micro_batch)
        report("one update", tokens, clock(device) - started, device)


def arithmetic_prompts(tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """Prompts of different lengths that the demo's policy can answer."""
    rng = random.Random(0)
    texts = [" + ".join(str(rng.randrange(1, 100)) for _ in range(2 + i % 3)) for i in range(PROMPTS)]
    return [list(tokenizer(f"State the final answer: {text} =\n")["input_ids"]) for text in texts]


def sample(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: list[list[int]],
    n: int,
    temperature: float,
    new_tokens: int = NEW_TOKENS,
) -> list[Completion]:
    """`n` completions of each prompt by the pipeline's own engine, in the order of the prompts."""
    groups = TransformersRollouts(model, tokenizer).generate(prompts, n, Sampling(temperature, new_tokens, seed=0))
    return [completion for group in groups for completion in group]


def update(model: PreTrainedModel, batch: Batch, steps: int, micro_batch: int) -> float:
    """AdamW steps on a policy-gradient loss; returns the last gradient norm before clipping.

    The passes are those of every algorithm here. Advantages alternate, since nothing is to be learnt.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    weights = batch.mask / batch.mask.sum()
    norm = torch.tensor(0.0)
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        for start in range(0, len(batch), micro_batch):
            rows = slice(start, start + micro_batch)
            logp = token_logprobs(model, batch.rows(rows), 1.0)
            signs = 1.0 - 2.0 * (torch.arange(len(batch), device=logp.device)[rows] % 2)
            (-weights[rows] * signs.unsqueeze(1) * logp).sum().backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return float(norm)


def differences(first: PreTrainedModel, second: PreTrainedModel, batches: list[Batch]) -> Tensor:
    """|log-prob of the first on the CPU - of the second| of every completion token, 1-D."""
    with torch.no_grad():
        one, other = (token_logprobs(m, b, 1.0).cpu() for m, b in zip((first, second), batches, strict=True))
    return (one - other).abs()[batches[0].mask]


def clock(device: torch.device) -> float:
    """Seconds, once the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.monotonic()


def report(what: str, tokens: int, seconds: float, device: torch.device) -> None:
    """Prints a line of speed and memory."""
    memory = ""
    if device.type == "cuda":
        memory = f", peak memory {torch.cuda.max_memory_allocated(device) / 1e9:.2f} GB"
        torch.cuda.reset_peak_memory_stats(device)
    print(f"       {what}: {tokens} tokens in {seconds:.2f} s, {tokens / seconds:.0f} tokens/s{memory}", flush=True)

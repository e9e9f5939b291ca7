"""Memory per GPU and GPU hours of a configuration, computed before anything runs.

Memory counts what the trainer keeps (ebpo/training/policy.py): float32 weights, gradients and AdamW moments, passes in
the policy's dtype. Activations, cache and hours are estimates; 10 % more memory for fragmentation is wise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ebpo.config import ExperimentConfig, LoRA, Parallel, PublishedData, RunId, Training

FLOAT32, BFLOAT16 = 4, 2
# Bytes per logit at the peak, in the backward pass of log-probabilities (ebpo/rollouts/batch.py): the output in
# bfloat16, its float32 log-softmax, and two float32 gradients.
LOGIT_BYTES = BFLOAT16 + 3 * FLOAT32


@dataclass(frozen=True)
class Architecture:
    """Shape of a Llama or Qwen decoder.

    Attributes:
        hidden, layers, intermediate, vocabulary: sizes.
        heads, kv_heads, head_dim: of the attention.
        tied: input and output embeddings are one matrix.
        head_norms: queries and keys are normalised (Qwen3).
    """

    hidden: int
    layers: int
    intermediate: int
    vocabulary: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool
    head_norms: bool

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Architecture:
        """From the contents of a model's config.json.

        Raises:
            ValueError: another model type.
        """
        if config.get("model_type") not in ("llama", "qwen3"):
            raise ValueError(f"model_type: {config.get('model_type')!r} is not known here; allowed: llama, qwen3")
        return cls(
            hidden=config["hidden_size"],
            layers=config["num_hidden_layers"],
            intermediate=config["intermediate_size"],
            vocabulary=config["vocab_size"],
            heads=config["num_attention_heads"],
            kv_heads=config["num_key_value_heads"],
            head_dim=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
            tied=config["tie_word_embeddings"],
            head_norms=config["model_type"] == "qwen3",
        )

    @classmethod
    def from_folder(cls, folder: Path) -> Architecture:
        """From a policy's folder in the Hugging Face format; raises ValueError like `from_config`."""
        return cls.from_config(json.loads((folder / "config.json").read_text(encoding="utf-8")))

    def linear_layers(self) -> dict[str, tuple[int, int]]:
        """Name -> (inputs, outputs) of the linear layers of one block."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "q_proj": (self.hidden, queries),
            "k_proj": (self.hidden, keys),
            "v_proj": (self.hidden, keys),
            "o_proj": (queries, self.hidden),
            "gate_proj": (self.hidden, self.intermediate),
            "up_proj": (self.hidden, self.intermediate),
            "down_proj": (self.intermediate, self.hidden),
        }

    @property
    def layer_parameters(self) -> int:
        """Parameters of one block."""
        linear = sum(inputs * outputs for inputs, outputs in self.linear_layers().values())
        return linear + 2 * self.hidden + (2 * self.head_dim if self.head_norms else 0)

    @property
    def parameters(self) -> int:
        """All parameters."""
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return embeddings + self.layers * self.layer_parameters + self.hidden

    def adapter_parameters(self, lora: LoRA) -> int:
        """Parameters of LoRA adapters: rank * (inputs + outputs) for each adapted linear layer.

        Raises:
            ValueError: a target module that is no linear layer of a block.
        """
        layers = self.linear_layers()
        targets = list(layers) if lora.target_modules == "all-linear" else list(lora.target_modules)
        unknown = sorted(set(targets) - set(layers))
        if unknown:
            raise ValueError(f"training.lora.target_modules: {unknown} are unknown; allowed: {sorted(layers)}")
        return self.layers * sum(lora.rank * sum(layers[name]) for name in targets)

    @property
    def cache_bytes_per_token(self) -> int:
        """Keys and values of one token in bfloat16."""
        return 2 * self.layers * self.kv_heads * self.head_dim * BFLOAT16

    @property
    def activation_values_per_token(self) -> int:
        """Values that one block keeps of one token for its backward pass: inputs and outputs of its operations.

        Two norms (4 hidden), queries and keys before and after rotation and the attention's output, values, and gate,
        activated gate, up and product in the MLP. Attention scores are never stored (flash or SDPA kernels).
        """
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return 4 * self.hidden + 3 * queries + 3 * keys + 4 * self.intermediate


def _qwen3(hidden: int, layers: int, intermediate: int, heads: int, *, tied: bool = False) -> Architecture:
    return Architecture(hidden, layers, intermediate, 151_936, heads, 8, 128, tied=tied, head_norms=True)


# From the config.json of the hub's repositories, for estimates without the hub.
PUBLISHED = {
    "Qwen/Qwen3-0.6B": _qwen3(1024, 28, 3072, 16, tied=True),
    "Qwen/Qwen3-1.7B": _qwen3(2048, 28, 6144, 16, tied=True),
    "Qwen/Qwen3-8B": _qwen3(4096, 36, 12_288, 32),
    "Qwen/Qwen3-14B": _qwen3(5120, 40, 17_408, 40),
    "meta-llama/Llama-3.1-8B-Instruct": Architecture(
        4096, 32, 14_336, 128_256, 32, 8, 128, tied=False, head_norms=False
    ),
}


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU in one phase of training; parts that a phase does not use are 0."""

    weights: float = 0
    gradients: float = 0
    optimizer: float = 0
    reference: float = 0
    working_copy: float = 0
    activations: float = 0
    logits: float = 0
    engine: float = 0

    @property
    def total(self) -> float:
        """Sum of the parts."""
        return float(sum(vars(self).values()))


@dataclass(frozen=True)
class Sharing:
    """How the processes of a run, one a GPU, share a model."""

    processes: int
    parallel: Parallel

    @property
    def shards(self) -> int:
        """Parts that a model is cut into."""
        return self.processes if self.parallel == "fsdp2" else 1


def held_memory(model: Architecture, training: Training, sharing: Sharing, *, reference: bool) -> Memory:
    """What a GPU holds in every phase: weights, AdamW's two moments, and the reference policy.

    Args:
        reference: a KL penalty is on; with LoRA the reference is the model without its adapters and costs nothing.
    """
    trained = _trained_parameters(model, training)
    adapters = trained if training.lora else 0
    return Memory(
        weights=FLOAT32 * (model.parameters + adapters) / sharing.shards,
        optimizer=2 * FLOAT32 * trained / sharing.shards,
        reference=FLOAT32 * model.parameters / sharing.shards if reference and training.lora is None else 0,
    )


def update_memory(model: Architecture, training: Training, sharing: Sharing, *, reference: bool, half: bool) -> Memory:
    """Peak of an optimizer update on one GPU, in bytes, for a micro-batch of the longest sequences.

    Args:
        half: passes compute in bfloat16.
    """
    held = held_memory(model, training, sharing, reference=reference)
    trained, width = _trained_parameters(model, training), BFLOAT16 if half else FLOAT32
    rows = min(training.micro_batch, -(-training.completions_per_update // sharing.processes))
    tokens = rows * (training.max_prompt_tokens + training.max_new_tokens)
    if sharing.shards > 1:
        # Gathered layers: the current one and the next, and the root's embeddings.
        rest = model.parameters - model.layers * model.layer_parameters
        copy = width * (2 * model.layer_parameters + rest)
    else:
        copy = BFLOAT16 * model.parameters if half else 0  # autocast's cache of cast weights
    if training.gradient_checkpointing:
        values = model.layers * model.hidden + model.activation_values_per_token
    else:
        values = model.layers * model.activation_values_per_token
    return Memory(
        weights=held.weights,
        gradients=FLOAT32 * trained / sharing.shards,
        optimizer=held.optimizer,
        reference=held.reference,
        working_copy=copy,
        activations=width * values * tokens,
        logits=LOGIT_BYTES * rows * training.max_new_tokens * model.vocabulary,
    )


def sampling_memory(
    model: Architecture,
    training: Training,
    sharing: Sharing,
    *,
    reference: bool,
    half: bool,
    engine: Literal["transformers", "vllm"],
    batch_size: int,
    engine_bytes: float,
) -> Memory:
    """Peak of sampling on one GPU, in bytes.

    Args:
        batch_size: sequences decoded together; bounds the cache of the transformers engine.
        engine_bytes: what vLLM may fill, its copy of the weights included.
    """
    held = held_memory(model, training, sharing, reference=reference)
    taken = engine_bytes
    copy = 0.0
    if engine == "transformers":
        if sharing.shards > 1:
            copy = (BFLOAT16 if half else FLOAT32) * model.parameters
        elif half:
            copy = BFLOAT16 * model.parameters  # autocast's cache of cast weights
        sequences = min(batch_size, -(-training.completions_per_step // sharing.processes))
        length = training.max_prompt_tokens + training.max_new_tokens
        taken = sequences * length * model.cache_bytes_per_token * (1 if half else 2)
    return Memory(
        weights=held.weights,
        optimizer=held.optimizer,
        reference=held.reference,
        working_copy=copy,
        engine=taken,
    )


def cache_tokens(model: Architecture, engine_bytes: float) -> int:
    """Tokens whose keys and values fit beside vLLM's bfloat16 weights; 0 if the weights alone do not fit."""
    return max(int((engine_bytes - BFLOAT16 * model.parameters) // model.cache_bytes_per_token), 0)


def run_disk_bytes(model: Architecture, training: Training, *, half: bool) -> int:
    """Most bytes that a run's folder holds at once: two checkpoints, the best one's weights, the last and best policy.

    A checkpoint has float32 weights and AdamW's two moments of what is trained.
    """
    trained = _trained_parameters(model, training)
    checkpoints = 2 * 3 * FLOAT32 * trained + FLOAT32 * trained
    return checkpoints + 2 * (BFLOAT16 if half else FLOAT32) * model.parameters


@dataclass(frozen=True)
class GPU:
    """Speed of one GPU, and the shares of it that are reached.

    Attributes:
        flops: dense bfloat16 operations per second.
        bandwidth: bytes of memory per second.
        flops_used, bandwidth_used: shares reached in updates and in decoding.
    """

    flops: float
    bandwidth: float
    flops_used: float
    bandwidth_used: float


def decoding_seconds(model: Architecture, gpu: GPU, *, sequences: float, context: float, tokens: float) -> float:
    """GPU seconds to decode `tokens` tokens, `sequences` at a time.

    Decoding is bound by memory: every token of all sequences reads the weights once and each sequence its own cache of
    `context` tokens on average.
    """
    read = BFLOAT16 * model.parameters + sequences * context * model.cache_bytes_per_token
    return tokens / sequences * read / (gpu.bandwidth * gpu.bandwidth_used)


def update_seconds(
    model: Architecture,
    gpu: GPU,
    *,
    tokens: float,
    reference: bool,
    gradient_checkpointing: bool,
    measure_kl_every: int,
) -> float:
    """GPU seconds to train on `tokens` tokens (prompts and completions).

    2 operations a parameter and token for a forward pass, 4 for a backward pass (Kaplan et al. 2020, arXiv 2001.08361);
    forward passes for the log-probs before the update, after it where they are measured, of the reference, and again
    under checkpointing.
    Attention is left out: at 4,000 tokens it adds less than a tenth to an 8B model.
    """
    forwards = 2 + 1 / measure_kl_every + reference + gradient_checkpointing
    return (2 * forwards + 4) * model.parameters * tokens / (gpu.flops * gpu.flops_used)


@dataclass(frozen=True)
class Assumptions:
    """What a configuration does not say.

    Attributes:
        gpu: its speed.
        gpu_bytes: its memory.
        completion_tokens, prompt_tokens: mean lengths.
        dynamic_sampling_rounds: mean rollout rounds of a DAPO step.
    """

    gpu: GPU
    gpu_bytes: float
    completion_tokens: float
    prompt_tokens: float
    dynamic_sampling_rounds: float


@dataclass(frozen=True)
class RunEstimate:
    """One run.

    Attributes:
        gpus: training processes.
        update, sampling: peaks of one GPU.
        hours: GPU hours by part: sampling, updates, validation, evaluation.
    """

    gpus: int
    update: Memory
    sampling: Memory
    hours: dict[str, float]


def estimate_run(config: ExperimentConfig, run: RunId, model: Architecture, assumed: Assumptions) -> RunEstimate:
    """Memory and GPU hours of one run of an experiment and of its evaluation.

    Raises:
        ValueError: vLLM's share of the GPU does not hold the weights and one sequence of the mean length.
    """
    resolved = config.run_config(run)
    rollouts = resolved.rollouts
    training, sharing = resolved.training, Sharing(config.resources.processes, config.resources.parallel)
    reference, half = resolved.settings.kl_coef > 0, resolved.dtype == "bfloat16"
    engine_bytes = rollouts.gpu_memory_utilization * assumed.gpu_bytes
    sampling = sampling_memory(
        model,
        training,
        sharing,
        reference=reference,
        half=half,
        engine=rollouts.engine,
        batch_size=rollouts.batch_size,
        engine_bytes=engine_bytes,
    )
    concurrent: float = rollouts.batch_size
    length = assumed.prompt_tokens + assumed.completion_tokens
    if rollouts.engine == "vllm":
        concurrent = min(concurrent, cache_tokens(model, engine_bytes) / length)
        if concurrent < 1:
            raise ValueError(
                f"rollouts.gpu_memory_utilization: {rollouts.gpu_memory_utilization} of {assumed.gpu_bytes / 1e9:.0f} "
                f"GB does not hold the weights ({BFLOAT16 * model.parameters / 1e9:.0f} GB) and one sequence; raise it"
            )

    def hours_of_decoding(completions: float, at_once: float) -> float:
        seconds = decoding_seconds(
            model,
            assumed.gpu,
            sequences=min(concurrent, at_once),
            context=assumed.prompt_tokens + assumed.completion_tokens / 2,
            tokens=completions * assumed.completion_tokens,
        )
        return seconds / 3600

    dynamic = getattr(resolved.settings, "dynamic_sampling", None) is not None
    rounds = assumed.dynamic_sampling_rounds if dynamic else 1.0
    a_step, processes = training.completions_per_step, sharing.processes
    validations = training.steps // training.validate_every + 1
    validation = validation_problems(config) * training.validation_samples
    benchmarks = benchmark_problems(config) * config.evaluation.samples
    updates = update_seconds(
        model,
        assumed.gpu,
        tokens=training.steps * a_step * length,
        reference=reference,
        gradient_checkpointing=training.gradient_checkpointing,
        measure_kl_every=training.measure_kl_every,
    )
    return RunEstimate(
        gpus=processes,
        update=update_memory(model, training, sharing, reference=reference, half=half),
        sampling=sampling,
        hours={
            "sampling": hours_of_decoding(training.steps * a_step * rounds, a_step / processes),
            "updates": updates / 3600,
            "validation": hours_of_decoding(validations * validation, validation / processes),
            "evaluation": hours_of_decoding(benchmarks, benchmarks),
        },
    )


def validation_problems(config: ExperimentConfig) -> int:
    """Problems of the validation set, as configured."""
    return config.data.validation


def benchmark_problems(config: ExperimentConfig) -> int:
    """Problems of all benchmarks together, as configured; a published set without a number counts as 0."""
    data = config.data
    if isinstance(data, PublishedData):
        return sum(data.benchmarks[name].problems or 0 for name in config.evaluation.benchmarks)
    return sum(data.benchmarks[name].problems for name in config.evaluation.benchmarks)


def _trained_parameters(model: Architecture, training: Training) -> int:
    return model.adapter_parameters(training.lora) if training.lora else model.parameters

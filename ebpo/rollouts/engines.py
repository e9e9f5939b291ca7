"""Which engine a configuration asks for."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Literal

from transformers import AutoConfig, AutoTokenizer, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from ebpo.config.rollouts import Rollouts
from ebpo.policy.loading import load_policy, require_device
from ebpo.rollouts.protocol import RolloutEngine
from ebpo.rollouts.transformers_engine import TransformersRollouts, eos_token_ids
from ebpo.rollouts.vllm_engine import VLLMRollouts, vllm_version

Dtype = Literal["float32", "bfloat16"]


def engine_version(settings: Rollouts) -> str:
    """Name and versions of the engine, for the protocol of an evaluation."""
    package = version("transformers") if settings.engine == "transformers" else vllm_version()
    return f"{settings.engine} {package}, torch {version('torch')}"


def training_engine(
    settings: Rollouts,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    dtype: Dtype,
    max_length: int,
) -> RolloutEngine:
    """An engine that samples from a model that is being trained.

    Args:
        folder: the policy that `model` was loaded from.
        max_length: most tokens of a prompt and its completion.

    Raises:
        ValueError: vLLM is asked for and not installed.
    """
    if settings.engine == "transformers":
        return TransformersRollouts(model, tokenizer, settings.batch_size)
    return _vllm(settings, tokenizer, folder, dtype, max_length)


def fixed_engine(settings: Rollouts, folder: Path, dtype: Dtype, device: str, max_length: int) -> RolloutEngine:
    """An engine that samples from a policy in a folder, for evaluation and difficulty.

    Raises:
        ValueError: the device or vLLM is missing.
        FileNotFoundError: the folder holds no model.
    """
    if settings.engine == "transformers":
        model, tokenizer = load_policy(folder, dtype, device)
        return TransformersRollouts(model, tokenizer, settings.batch_size)
    require_device(device)
    if not (folder / "config.json").exists():
        raise FileNotFoundError(f"{folder}: holds no model (config.json is missing)")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return _vllm(settings, tokenizer, folder, dtype, max_length)


def _vllm(
    settings: Rollouts, tokenizer: PreTrainedTokenizerBase, folder: Path, dtype: Dtype, max_length: int
) -> VLLMRollouts:
    return VLLMRollouts(
        folder,
        tokenizer,
        eos_token_ids(_generation_config(folder), tokenizer),
        dtype=dtype,
        max_length=max_length,
        logprob_bound=settings.bound(dtype),
        batch_size=settings.batch_size,
        gpu_memory_utilization=settings.gpu_memory_utilization,
    )


def _generation_config(folder: Path) -> GenerationConfig:
    """What transformers gives a model of this folder: its generation_config.json, else what config.json says."""
    if (folder / "generation_config.json").exists():
        return GenerationConfig.from_pretrained(folder, local_files_only=True)
    return GenerationConfig.from_model_config(AutoConfig.from_pretrained(folder, local_files_only=True))

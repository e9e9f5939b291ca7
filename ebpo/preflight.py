"""Checks of a site before the long jobs start. Each gives a verdict and a detail; none raises for what it checks."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ebpo.config import ExperimentConfig, GeneratedData, HubData, PublishedData, RunConfig, RunId
from ebpo.estimate import Architecture, run_disk_bytes
from ebpo.problems.locations import local_path
from ebpo.prompts import render
from ebpo.training.trainer import TrainingInputs, train

_GB = 1e9
_PROMPTS, _NEW_TOKENS = 2, 16


@dataclass(frozen=True)
class Check:
    """What was looked at, whether it is as the long jobs need it, and what was found."""

    name: str
    ok: bool
    detail: str


def check_gpus(device: str, needed: int) -> Check:
    """As many GPUs as a training job asks for are usable here."""
    if device == "cpu":
        return Check("gpu", True, "training.device is cpu")
    found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    names = ", ".join(f"{p.name} {p.total_memory / _GB:.0f} GB" for p in found) or "none"
    return Check("gpu", len(found) >= max(needed, 1), f"{max(needed, 1)} needed, usable here: {names}")


def check_disk(folder: Path, config: ExperimentConfig, models: Iterable[tuple[str, Architecture]]) -> Check:
    """The file system of the results holds every run's policies, and the checkpoints of all runs at once."""
    shapes = dict(models)
    needed = sum(
        run_disk_bytes(shapes[run.model], config.training, half=config.models[run.model].dtype == "bfloat16")
        for run in config.runs()
        if run.model in shapes
    )
    free = shutil.disk_usage(folder).free
    return Check("disk", free >= needed, f"{needed / _GB:.1f} GB needed, {free / _GB:.1f} GB free at {folder}")


def check_sources(config: ExperimentConfig, reachable: Callable[[str, str], bool]) -> Check:
    """Every dataset and policy has its file or folder here, or the hub answers for it.

    Args:
        reachable: (repository, its type: dataset or model) -> whether the hub, or its cache, has it.
    """
    missing = []
    data = config.data
    if isinstance(data, PublishedData):
        folder = data.mirror if isinstance(data, HubData) else getattr(data, "folder", None)
        for dataset in (data.train, *(data.benchmarks[name] for name in config.evaluation.benchmarks)):
            if local_path(Path(folder), dataset) is None if folder else not reachable(dataset.path, "dataset"):
                missing.append(dataset.path)
    for model in config.models.values():
        if model.source == "folder":
            if not (Path(model.path) / "config.json").exists():
                missing.append(model.path)
        elif not reachable(model.path, "model"):
            missing.append(model.path)
    generated = " (problems are generated)" if isinstance(data, GeneratedData) else ""
    return Check("sources", not missing, f"not to be had: {missing}" if missing else f"all found{generated}")


def on_hub(repository: str, kind: str) -> bool:
    """Whether the hub answers for a repository within ten seconds."""
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        HfApi().repo_info(repository, repo_type=kind, timeout=10)
    except (HfHubHTTPError, OfflineModeIsEnabled, httpx.HTTPError, OSError):
        return False
    return True


def check_tokenizer(config: ExperimentConfig, model: str, folder: Path) -> Check:
    """The policy's tokenizer loads and renders its template."""
    from transformers import AutoTokenizer

    template = config.models[model].template
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        ids = render(tokenizer, template, "What is 1 + 1?")
    except (ValueError, OSError) as error:
        return Check("tokenizer", False, f"{folder}: {error}")
    return Check("tokenizer", bool(ids), f"template {template}: {len(ids)} tokens for a short problem")


def tiny(config: RunConfig) -> RunConfig:
    """The run cut down to one step of two prompts and short completions."""
    size = config.run.group_size
    training = config.training.model_copy(
        update={
            "steps": 1,
            "completions_per_step": _PROMPTS * size,
            "completions_per_update": _PROMPTS * size,
            "micro_batch": min(config.training.micro_batch, size),
            "max_new_tokens": min(_NEW_TOKENS, config.training.max_new_tokens),
            "validation_samples": 1,
        }
    )
    run = RunId(**{**config.run.model_dump(), "order": "shuffle"})
    return config.model_copy(update={"training": training, "run": run})


def check_step(config: RunConfig, inputs: TrainingInputs, scratch: Path) -> Check:
    """One small training step of the real policy, through the trainer, with its results written and removed."""
    small = replace(inputs, train=inputs.train[: 2 * _PROMPTS], validation=inputs.validation[:1])
    with tempfile.TemporaryDirectory(dir=scratch, prefix="preflight-") as folder:
        try:
            train(tiny(config), small, Path(folder))
        except (ValueError, RuntimeError, OSError) as error:
            return Check("step", False, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    peak = f", peak {torch.cuda.max_memory_allocated() / _GB:.1f} GB" if torch.cuda.is_available() else ""
    return Check("step", True, f"{config.run.model}: one step of {_PROMPTS} prompts done{peak}")

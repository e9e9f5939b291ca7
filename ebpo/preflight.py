"""Checks of a site before the long jobs start. Each gives a verdict and a detail; none raises for what it checks."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ebpo.config import ExperimentConfig, Parallel, RunConfig, RunId
from ebpo.estimate import Architecture, run_disk_bytes
from ebpo.prompts import render
from ebpo.training.processes import Processes
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


def check_policies(config: ExperimentConfig, base: Path, reachable: Callable[[str], bool]) -> Check:
    """Every policy of the experiment was fetched already, has its folder here, or can be had from the hub.

    A node without network passes once the policies were fetched from elsewhere. The datasets need no check: their
    tables are there before this one starts.

    Args:
        base: folder with one folder per model, where fetched policies lie under model/.
        reachable: repository -> whether the hub answers for it.
    """
    missing = []
    for name, model in config.models.items():
        if (base / name / "model" / "config.json").exists():
            continue
        if not ((Path(model.path) / "config.json").exists() if model.source == "folder" else reachable(model.path)):
            missing.append(model.path)
    return Check("policies", not missing, f"not to be had: {missing}" if missing else f"{list(config.models)} found")


def on_hub(repository: str) -> bool:
    """Whether the hub answers for a model's repository within ten seconds."""
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        HfApi().model_info(repository, timeout=10)
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


def check_step(
    config: RunConfig, inputs: TrainingInputs, scratch: Path, processes: Processes, parallel: Parallel
) -> Check:
    """One small training step of the real policy by the run's own processes; its results are written and removed.

    Every process takes part.
    """
    small = replace(inputs, train=inputs.train[: 2 * _PROMPTS], validation=inputs.validation[:1])
    with _shared_folder(scratch, processes) as folder:
        try:
            train(tiny(config), small, folder, parallel)
        except (ValueError, RuntimeError, OSError) as error:
            return Check("step", False, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    peak = f", peak {torch.cuda.max_memory_allocated() / _GB:.1f} GB" if torch.cuda.is_available() else ""
    return Check("step", True, f"{processes.count} processes, {_PROMPTS} prompts: done{peak}")


@contextmanager
def _shared_folder(parent: Path, processes: Processes) -> Iterator[Path]:
    """A temporary folder that all processes see; the main one makes and removes it."""
    folder = processes.same(tempfile.mkdtemp(dir=parent, prefix="preflight-") if processes.is_main else "")
    try:
        yield Path(folder)
    finally:
        if processes.is_main:
            shutil.rmtree(folder)

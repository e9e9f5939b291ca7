"""Puts a base policy into a folder of the experiment."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from ebpo.config import PolicyJob
from ebpo.files import atomic_folder, file_digest

log = logging.getLogger(__name__)


def provide(job: PolicyJob, out: Path, threads: int) -> str:
    """Copies the model's folder, builds it anew from its recipe, or downloads it from the hub.

    Returns:
        SHA-256 of the folder's contents.

    Raises:
        FileNotFoundError: the folder holds no model.
        ConnectionError: the hub cannot be reached.
    """
    model = job.model
    with atomic_folder(out) as partial:
        if job.build:
            from ebpo.policy.pretrain import build_policy

            build_policy(job.build.data, job.build.recipe, partial, threads)
        elif model.source == "folder":
            source = Path(model.path)
            if not (source / "config.json").exists():
                raise FileNotFoundError(f"models.path: {source} holds no model (config.json is missing)")
            shutil.copytree(source, partial, dirs_exist_ok=True)
        else:
            _download(model.path, model.revision, partial)
    digest = file_digest(out)
    log.info("%s: sha256 %s", out, digest)
    return digest


def _download(repository: str, revision: str | None, folder: Path) -> None:
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        snapshot_download(
            repository,
            revision=revision,
            local_dir=folder,
            allow_patterns=["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"],
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, httpx.HTTPError, OSError) as error:
        raise ConnectionError(
            f"{repository} cannot be had from the hub ({type(error).__name__}); "
            "connect this machine, or point models.<name>.path to a folder with source: folder"
        ) from error

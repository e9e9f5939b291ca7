"""Loading a policy from a folder in the Hugging Face format."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_policy(
    folder: Path, dtype: str = "float32", device: str = "cpu"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model, in evaluation mode (no dropout, also in training), and its tokenizer.

    Raises:
        FileNotFoundError: the folder has no config.json.
        ValueError: a GPU is asked for and there is none.
    """
    if not (folder / "config.json").exists():
        raise FileNotFoundError(f"{folder}: holds no model (config.json is missing)")
    require_device(device)
    disable_progress_bar()  # a bar of an instant load is noise in a job's log
    # SDPA takes the masks of packed rows (ebpo/rollouts/batch.py) in every dtype.
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=DTYPES[dtype], local_files_only=True, attn_implementation="sdpa"
    )
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return model.to(device).eval(), tokenizer


def require_device(device: str) -> None:
    """Raises ValueError where the configuration asks for a GPU that this machine does not have."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "training.device: 'cuda' is configured, but this machine has no usable GPU; allowed here: 'cpu'"
        )


def set_determinism(threads: int) -> None:
    """Fixes the number of CPU threads and refuses non-deterministic kernels."""
    torch.set_num_threads(threads)
    # Without it cuBLAS's products are refused; it is read when CUDA starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)

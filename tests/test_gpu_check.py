from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch

from ebpo.gpu_check import check_equality
from ebpo.policy.loading import load_policy


def run_check(repository, *arguments: str, blocked: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    program = (
        "import runpy, sys\n"
        f"sys.modules.update(dict.fromkeys({list(blocked)}))\n"
        f"sys.argv = ['gpu_check', *{list(arguments)}]\n"
        "runpy.run_module('scripts.gpu_check', run_name='__main__')\n"
    )
    return subprocess.run([sys.executable, "-c", program], cwd=repository, capture_output=True, text=True)


@pytest.mark.slow
def test_it_passes_on_cpu_with_nothing_but_torch_and_transformers(repository):
    small = ["--shape", "small", "--prompts", "4", "--prompt-tokens", "8", "--new-tokens", "16"]
    absent = ("pydantic", "accelerate", "pandas", "pyarrow", "datasets", "peft", "scipy", "sklearn", "rich", "vllm")
    result = run_check(repository, "--device", "cpu", *small, blocked=absent)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\nok ") == 4
    assert "rollouts: 256 tokens in" in result.stdout
    assert "one update: 256 tokens in" in result.stdout


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_so_in_one_line(repository):
    result = run_check(repository)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: --device: cuda is not usable on this machine (torch ")
    assert result.stderr.count("\n") == 1


def test_a_device_that_computes_something_else_is_found(policy_folder, capsys):
    base, tokenizer = load_policy(policy_folder)
    other = copy.deepcopy(base)
    with torch.no_grad():
        other.model.layers[0].mlp.down_proj.weight += 1e-3
    failed = check_equality(base, other, tokenizer)
    assert "log-probs" in failed
    assert "FAILED log-probs: largest difference" in capsys.readouterr().out

"""The experiments that cannot run in a test are planned, at least."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "runs"), [("single_gpu", 2), ("smollm2", 2)])
def test_the_experiment_is_planned_without_gpu_or_hub(repository, tmp_path, name, runs):
    for part in ("config", "ebpo", "envs", "scripts", "workflow"):
        (tmp_path / part).symlink_to(repository / part)
    command = [sys.executable, "-m", "snakemake", "-n", "--cores", "2", "--configfile", f"config/{name}.yaml"]
    result = subprocess.run([*command, "--", "all"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(rf"^train +{runs}$", result.stdout + result.stderr, flags=re.MULTILINE)

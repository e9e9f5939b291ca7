"""The programs in scripts/ answer at once: nothing heavy is imported before the arguments are read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).resolve().parent.parent / "scripts").glob("*.py"))
HEAVY = ["torch", "transformers", "vllm", "sentence_transformers", "datasets", "sympy"]
PROGRAM = """
import importlib.abc, runpy, sys
class Refused(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in {heavy}:
            raise ImportError(f"{{name}} was imported before the arguments were read")
sys.meta_path.insert(0, Refused())
sys.argv = [{script!r}, "--help"]
runpy.run_path({script!r}, run_name="__main__")
"""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help_comes_before_heavy_imports(repository, script):
    program = PROGRAM.format(heavy=HEAVY, script=str(script))
    result = subprocess.run([sys.executable, "-c", program], cwd=repository, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]
    assert "usage" in result.stdout

"""What the Snakefile needs beyond configuration: digests of the code that a rule uses, and locks that heal."""

from __future__ import annotations

import ast
import hashlib
import os
import socket
import sys
from functools import cache
from pathlib import Path

import psutil

_PACKAGE = Path(__file__).resolve().parent


def use_this_checkout() -> None:
    """Lets jobs import the package of this checkout and run the interpreter that runs Snakemake, activated or not.

    Last on PATH comes a stand-in for `sacct`, found only where Slurm has none.
    """
    os.environ["PYTHONPATH"] = str(_PACKAGE.parent)
    stand_ins = _PACKAGE.parent / "workflow" / "profiles" / "slurm" / "bin"
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], str(stand_ins)])


def code_digest(*parts: str) -> str:
    """Digest of the syntax trees of modules and folders below ebpo/ and scripts/ (given relative to the repository).

    Comments, docstrings, blank lines and file times do not count: only a change of what code does re-runs a rule.
    """
    digest = hashlib.sha256()
    for part in sorted(parts):
        path = _PACKAGE.parent / part
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(_file_digest(file))
    return digest.hexdigest()[:16]


@cache
def _file_digest(file: Path) -> bytes:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node, clean=False) is not None
            node.body = node.body[documented:]
    return hashlib.sha256(ast.dump(tree).encode()).digest()


def record_process(state: Path) -> None:
    """Notes which process holds Snakemake's lock, for `clear_stale_lock`."""
    (state / "holder").write_text(f"{socket.gethostname()} {os.getpid()}\n", encoding="utf-8")


def clear_stale_lock(state: Path) -> list[str]:
    """Removes Snakemake's lock if the process that took it, on this host, is dead (killed by SIGKILL, out of memory).

    A lock of a living process, of another host or of unknown origin stays, and Snakemake reports it.

    Returns:
        Names of the lock files removed.
    """
    holder, locks = state / "holder", state / "locks"
    if not holder.exists() or not locks.is_dir():
        return []
    host, _, pid = holder.read_text(encoding="utf-8").strip().partition(" ")
    if host != socket.gethostname() or not pid.isdigit() or _is_snakemake(int(pid)):
        return []
    # A lock younger than the note belongs to a process that has locked and not yet noted itself.
    stale = [file for file in sorted(locks.iterdir()) if file.stat().st_mtime <= holder.stat().st_mtime]
    for file in stale:
        file.unlink()
    return [file.name for file in stale]


def _is_snakemake(pid: int) -> bool:
    # The pid may have been given to another program since.
    try:
        return any("snakemake" in part for part in psutil.Process(pid).cmdline())
    except psutil.AccessDenied:
        return True
    except psutil.NoSuchProcess:
        return False

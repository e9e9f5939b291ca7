"""The machine that a process runs on, for the record."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import psutil


def machine() -> dict[str, str]:
    """The caller's machine: processor, logical cores, memory, system."""
    return {
        "Processor": _processor(),
        "Logical cores": str(os.cpu_count()),
        "Memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "System": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    listed = Path("/proc/cpuinfo")
    if sys.platform == "linux" and listed.is_file():
        names = [line.partition(":")[2].strip() for line in listed.read_text().splitlines() if "model name" in line]
        if names:
            return names[0]
    return platform.processor() or platform.machine()

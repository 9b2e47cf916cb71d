"""Describes the machine of a run, since figures from different machines cannot be compared."""

import os
import platform
import subprocess
import sys
from pathlib import Path


def describe(data: Path) -> dict[str, str]:
    return {
        "processor": processor(),
        "cores": str(os.cpu_count()),
        "kernel": platform.platform(),
        "Python": python(),
        "disk of the databases": file_system(data),
    }


def python() -> str:
    """Distributions optimize their Python with a profile; one built from source may lack that."""
    is_packaged = sys.base_prefix == "/usr"
    return f"{platform.python_version()}, {'' if is_packaged else 'not '}the distribution's"


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def file_system(folder: Path) -> str:
    words = ["stat", "--file-system", "--format=%T", str(folder)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

"""Describes the machine of a run, since figures from different machines cannot be compared."""

import os
import platform
import subprocess
from pathlib import Path


def describe(data: Path) -> dict[str, str]:
    return {
        "processor": processor(),
        "cores": str(os.cpu_count()),
        "kernel": platform.platform(),
        "Python": platform.python_version(),
        "disk of the databases": file_system(data),
    }


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def file_system(folder: Path) -> str:
    words = ["stat", "--file-system", "--format=%T", str(folder)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

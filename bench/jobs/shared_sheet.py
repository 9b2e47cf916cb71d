"""A spreadsheet file in a shared folder, for two people with LibreOffice. It has no API, so that
the jobs are done as people do them: `calc.py` has them."""

import json
import subprocess
import tempfile
from pathlib import Path

from bench.jobs import jobs

NAME = "a shared sheet"
PYTHON = "/usr/bin/python3"
"""The Python of the system, which has LibreOffice's `uno` (Debian: python3-uno)."""


def results() -> dict[str, str]:
    """Return what happened in each job, the version and the licence."""
    version = output("soffice", "--version").split()
    with tempfile.TemporaryDirectory() as folder:
        said = json.loads(output(PYTHON, str(Path(__file__).with_name("calc.py")), folder))
    names = list(jobs.JOBS)
    answers = [said["save"], said["repeat"], said["repeat"], said["merge"], said["earlier"]]
    return {
        "version": f"{version[0]} {version[1]}, an .ods file",
        **dict(zip(names, answers, strict=True)),
        jobs.RESTORE: "no feed that continues",
        jobs.LETTER: said["letter"],
        "licence": "MPL-2.0",
    }


def output(*command: str) -> str:
    """Return what a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout

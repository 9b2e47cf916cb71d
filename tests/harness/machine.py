"""What tests need from the machine: programs, separate file systems, full disks."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import pytest

REQUIRED = {name for name in os.environ.get("STOREKEEPER_REQUIRE", "").split(",") if name}


def need(program: str, reason: str) -> NoReturn:
    """Skip a test that lacks a program; fail it if STOREKEEPER_REQUIRE names the program."""
    if program in REQUIRED:
        pytest.fail(f"{program} is required: {reason}")
    pytest.skip(reason)


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """Mount a file system in memory, with its own size, on `folder`; skip the test if that is not
    allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        need("mount", "there is no mount command")
    if done.returncode:
        need("mount", f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def without_rights() -> Iterator[None]:
    """Let this process run as a user who is not root."""
    is_root = os.geteuid() == 0
    if is_root:
        os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        if is_root:
            os.setresuid(0, 0, 0)


def fill_disk(file: Path) -> None:
    """Write to a file until its disk is full to the last page."""
    with file.open("ab", buffering=0) as opened:
        for size in (2**20, 4096):
            with suppress(OSError):
                while opened.write(bytes(size)) == size:
                    pass

"""System calls that fail or wait, through strace: of a program from its start, or of a running
process."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

from tests.harness.machine import need
from tests.harness.process import COMMAND, TIMEOUT


def injected(calls: str, path: Path, when: str, fault: str = "error=EIO") -> list[str]:
    """Return the command that runs another one, and lets the kernel fail its calls on a file."""
    if which("strace") is None:
        need("strace", "there is no strace")
    inject = ["-e", f"trace={calls}", "-e", f"inject={calls}:{fault}:when={when}", "-P", str(path)]
    # The filter stops the program only at these calls, not at every one.
    traced = ["strace", "-D", "-f", "--seccomp-bpf", "-o", os.devnull, *inject]
    if subprocess.run([*traced, "true"], capture_output=True, check=False).returncode:
        need("strace", "no process can be traced here")
    return traced


SYNCS = "fsync,fdatasync"


@contextmanager
def slowed(*args: str, calls: str = "pwrite64") -> Iterator["subprocess.Popen[bytes]"]:
    """Run one of our commands with calls that take 20 ms each; kill it at the end."""
    slow = ["strace", "-D", "-f", "--seccomp-bpf", "-o", os.devnull, "-e", f"trace={calls}"]
    slow += ["-e", f"inject={calls}:delay_enter=20000", *COMMAND, *args]
    process = subprocess.Popen(slow, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait(TIMEOUT)


@contextmanager
def injecting(pid: int, calls: str, path: Path) -> Iterator[None]:
    """Let the kernel answer EIO to these calls of a process on that file."""
    inject = ["-e", f"trace={calls}", "-e", f"inject={calls}:error=EIO", "-P", str(path)]
    try:
        strace = subprocess.Popen(
            ["strace", "-f", "-p", str(pid), *inject], stderr=subprocess.PIPE, text=True
        )
    except FileNotFoundError:
        need("strace", "there is no strace")
    assert strace.stderr
    line = strace.stderr.readline()
    if "attached" not in line:
        strace.wait()
        need("strace", f"no process can be traced here: {line.strip()}")
    yield
    strace.send_signal(signal.SIGINT)
    strace.communicate(timeout=30)

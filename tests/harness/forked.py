"""Processes that start in a fifth of the time: an interpreter that has imported the service forks each of them.

    python -m tests.harness.forked

is that interpreter. Each packet on its standard input asks for a process, which runs a Python file, such as the real
command, as `python FILE` would: in a session of its own, with arguments, environment and folder of its own. Three
quarters of a start are imports, and they are the same each time.
"""

import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests import ROOT
from tests.harness.tracing import let_interrupts_pass, let_threads_set_traces

IMPORTED = ("coverage", "psycopg", "structlog", "storekeeper.cli", "storekeeper.postgres", "storekeeper.service")
STANDARD = (0, 1, 2)


class Forked(subprocess.Popen[bytes]):
    """A process that was forked, to be used like one that was started. It is no child of ours."""

    _child_created = False

    def __init__(self, program: Sequence[str], env: dict[str, str], files: Sequence[int]) -> None:
        """Run a Python file with its arguments; `files` are its standard input, output and error."""
        self.args = list(program)
        self.returncode: int | None = None
        self.pid = _answered({"program": self.args, "env": env, "folder": str(Path.cwd())}, files)
        self._end = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """See Popen."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """See Popen."""
        status = self._ended(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return status

    def send_signal(self, sig: int) -> None:
        """See Popen."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            end = select.poll()  # `select` takes no file above 1023
            end.register(self._end)
            if end.poll(None if timeout is None else timeout * 1000):
                self.returncode = os.waitstatus_to_exitcode(_answered({"ended": self.pid}, ()))
                os.close(self._end)
        return self.returncode


def forked(program: Sequence[str], env: dict[str, str], files: Sequence[int]) -> "subprocess.Popen[bytes]":
    """Run a Python file with its arguments; where nothing can be forked so, by an interpreter of its own."""
    if hasattr(os, "pidfd_open"):
        return Forked(program, env, files)
    stdin, stdout, stderr = files
    command = [sys.executable, *program]
    return subprocess.Popen(command, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True)


_one_asks = threading.Lock()


def _answered(request: dict[str, Any], files: Sequence[int]) -> int:
    with _one_asks:
        line, _ = _interpreter()
        socket.send_fds(line, [json.dumps(request).encode()], files)
        return int(line.recv(100))


@cache
def _interpreter() -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_PROCESS")}
    with theirs:
        command = [sys.executable, "-m", __name__]
        return ours, subprocess.Popen(command, cwd=ROOT, env=env, stdin=theirs.fileno(), start_new_session=True)


def stop_interpreter() -> None:
    """Stop the interpreter that forks, if there is one; it also stops by itself when its line is closed."""
    if _interpreter.cache_info().currsize:
        line, process = _interpreter()
        line.close()
        process.wait()
        _interpreter.cache_clear()


def main() -> None:
    """Fork until nobody asks any more; what was forked returns from here too, when its file has run."""
    for name in IMPORTED:
        importlib.import_module(name)
    let_threads_set_traces()
    let_interrupts_pass()
    line = socket.socket(fileno=os.dup(0))
    running: set[int] = set()
    while True:
        data, files, *_ = socket.recv_fds(line, 1 << 20, len(STANDARD))
        request = json.loads(data or "null")
        if request is None:
            for pid in running:  # who asked for them was killed, and stops nothing any more
                os.kill(pid, signal.SIGTERM)
            return
        if pid := request.get("ended"):
            line.send(str(os.waitpid(pid, 0)[1]).encode())
            running.discard(pid)
        elif pid := os.fork():
            running.add(pid)
            line.send(str(pid).encode())
            for file in files:
                os.close(file)
        else:
            line.close()
            _run(files, **request)
            return


def _run(files: list[int], program: list[str], env: dict[str, str], folder: str) -> None:
    os.setsid()
    for file, standard in zip(files, STANDARD, strict=True):
        os.dup2(file, standard)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.modules["coverage"].process_startup(force=True)
    sys.argv = program
    sys.path.insert(0, str(Path(program[0]).parent))
    runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()

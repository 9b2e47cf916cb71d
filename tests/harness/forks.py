"""Forks commands from a process that has already imported them, which takes a fifth of the time.

    python -m tests.harness.forks

does so for each command on its standard input, a socket, and reports how each one ended.
"""

import atexit
import gc
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock

ROOT = Path(__file__).parents[2]
IMPORTED = [
    "storekeeper.cli",
    "storekeeper.process.server",
    "storekeeper.storage.postgres",
    "uvloop",
]
FREE = ("STOREKEEPER_", "PG", "PYTEST_", "WEAKENED")
"""Prefixes of variables that mean nothing while Python starts and imports."""

NEVER = {"FORKED": "no"}
"""A variable of a process that must be started, because it matters that Python clears its memory at
the end."""


class Server:
    """The process that forks, and what it was started with."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._env = dict(os.environ)
        self._lock = Lock()
        with theirs:
            command = [sys.executable, "-m", __name__]
            self._process = subprocess.Popen(
                command, stdin=theirs.fileno(), env=self._env, cwd=ROOT, start_new_session=True
            )

    def can(self, env: Mapping[str, str]) -> bool:
        """Return whether a fork with this environment would behave like a started process."""
        differ = dict(set(env.items()) ^ set(self._env.items()))
        return all(name.startswith(FREE) for name in differ)

    def start(
        self, command: Sequence[str], env: Mapping[str, str], files: Sequence[int]
    ) -> "Forked":
        """Fork a Python program in its own session, with `files` as its standard streams."""
        message = json.dumps([list(command), dict(env), str(Path.cwd())]).encode()
        with self._lock:
            socket.send_fds(self._ours, [message], files)
            return Forked(self, command, int(self._ours.recv(32)))

    def status(self, pid: int) -> int:
        """Return how a process ended."""
        with self._lock:
            self._ours.send(b"%d" % pid)
            return os.waitstatus_to_exitcode(int(self._ours.recv(32)))

    def stop(self) -> None:
        """End it; the processes that it has forked continue."""
        self._ours.close()
        self._process.wait()


class Forked(subprocess.Popen[bytes]):
    """A forked process, with the interface of a started one."""

    def __init__(self, server: Server, command: Sequence[str], pid: int) -> None:
        self.args, self.pid = command, pid
        self.stdin = self.stdout = self.stderr = self.returncode = None
        self._server = server
        self._ended = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """See Popen."""
        return self._status(0)

    def wait(self, timeout: float | None = None) -> int:
        """See Popen."""
        status = self._status(None if timeout is None else timeout * 1000)
        if status is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return status

    def _status(self, milliseconds: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._ended, select.POLLIN)
            if poll.poll(milliseconds):
                os.close(self._ended)
                self.returncode = self._server.status(self.pid)
        return self.returncode


@cache
def server() -> Server:
    return Server()


def stop() -> None:
    """Stop the server, if there is one."""
    if server.cache_info().currsize:
        server().stop()
        server.cache_clear()


def main() -> None:
    with socket.socket(fileno=os.dup(0)) as ours:
        for module in IMPORTED:
            import_module(module)
        import_module("storekeeper.log.events")._structlog()
        gc.collect()
        gc.freeze()
        while True:
            message, files, _, _ = socket.recv_fds(ours, 1 << 20, 3)
            if not message:
                return
            what = json.loads(message)
            if isinstance(what, int):
                ours.send(b"%d" % os.waitpid(what, 0)[1])
            elif not os.fork():
                os.setsid()
                for number, file in enumerate(files):
                    os.dup2(file, number)
                ours.send(b"%d" % os.getpid())
                break
            for file in files:
                os.close(file)
    os.closerange(3, max(files) + 1)
    command, env, folder = what
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv, sys.path[0] = command, str(Path(command[0]).parent)
    run(command[0])


def run(program: str) -> None:
    """Run a program to its end as Python would, but leave its memory to the kernel: clearing it
    took half of the time."""
    try:
        runpy.run_path(program, run_name="__main__")
        status: object = 0
    except SystemExit as ended:
        status = ended.code or 0
    if isinstance(status, int):
        # Wait for threads, as Python does first.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        with suppress(
            Exception
        ):  # for example, if its output is a closed pipe: Python reports that below
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status & 0xFF)
    sys.exit(status)  # type: ignore[arg-type]  # what the program ended with


if __name__ == "__main__":
    main()

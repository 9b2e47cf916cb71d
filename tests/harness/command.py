"""The command line in the test's own process: the real main and real standard streams, without a
new process.

This is for what a command says and does. `tests.harness.process` tests how a process starts, ends
or is interrupted.
"""

import gc
import os
import pty
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO
from unittest.mock import patch

from storekeeper import cli
from tests.harness.process import environment, fed


@dataclass
class Done:
    """How a command ended."""

    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def said(self) -> str:
        """Its notes, then its result."""
        return (self.stderr + self.stdout).decode()


def run(
    *args: str,
    env: dict[str, str] | None = None,
    stdin: bytes = b"",
    stdout: IO[bytes] | None = None,
) -> Done:
    """Run a command to its end, with `stdin` in a pipe; if `stdout` is given, what goes there is
    not returned."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        with fed(stdin) as given:
            status = _status(args, env, given, stdout or out, error)
        out.seek(0)
        error.seek(0)
        return Done(status, out.read(), error.read())


def run_on_terminal(*args: str, typed: bytes) -> Done:
    """Run a command on a terminal where `typed` is entered; its stderr is what the terminal
    shows."""
    ours, theirs = pty.openpty()
    os.write(ours, typed)
    shown = b""
    with tempfile.TemporaryFile() as out:
        with os.fdopen(theirs, "r+b", buffering=0) as terminal:
            status = _status(args, None, terminal, out, terminal)
        with suppress(OSError):  # that is how a terminal ends
            while data := os.read(ours, 65536):
                shown += data
        os.close(ours)
        out.seek(0)
        return Done(status, out.read(), shown)


def _status(args: Sequence[str], env: dict[str, str] | None, *files: IO[bytes]) -> int:
    with (
        patch.dict(os.environ, environment(env), clear=True),
        patch.object(sys, "argv", ["storekeeper", *args]),
        # Otherwise usage texts would name pytest.
        patch.object(sys.modules["__main__"], "__package__", None),
        _standard_streams(*files),
        warnings.catch_warnings(),
    ):
        # What a command leaves for the end of its process ends here.
        warnings.simplefilter("ignore", ResourceWarning)
        status = 0
        heeded = signal.getsignal(signal.SIGINT)
        try:
            cli.main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        finally:
            if (
                signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            ):  # a command that has committed ignores it until its end
                signal.signal(signal.SIGINT, heeded)
        gc.collect()
    return status


@contextmanager
def _standard_streams(*files: IO[bytes]) -> Iterator[None]:
    """Let the descriptors 0, 1 and 2, and Python's streams on them, be these files."""
    names = ("stdin", "stdout", "stderr")
    before = [getattr(sys, name) for name in names]
    for stream in before[1:]:
        stream.flush()
    kept = [os.dup(number) for number in range(3)]
    try:
        for number, file in enumerate(files):
            os.dup2(file.fileno(), number)
            mode = "w" if number else "r"
            setattr(sys, names[number], open(number, mode, closefd=False))  # noqa: SIM115
        yield
    finally:
        for number, old in enumerate(kept):
            if number:
                getattr(sys, names[number]).flush()
            os.dup2(old, number)
            os.close(old)
            setattr(sys, names[number], before[number])

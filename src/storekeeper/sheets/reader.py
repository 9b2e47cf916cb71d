"""Starts the reader, takes what it says, and ends it: the side of the service and of commands."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from storekeeper.domain.errors import Code, Unavailable
from storekeeper.sheets import BadFile, protocol
from storekeeper.sheets.protocol import (
    Asked,
    BrokenFrame,
    End,
    Message,
    OverLimit,
    Question,
    Refusal,
)

MAX_REASON_LENGTH = 200
"""Characters of why the reader ended, as it is logged."""

_SOURCE = str(Path(__file__).parents[2])
_KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""What the reader has of the environment, which may have passwords: where Python's libraries
are."""

_OUT_OF_MEMORY = ("memory allocation of", "MemoryError")
"""What the last words of a process are that gets no more memory."""

_decode = msgspec.msgpack.Decoder(Message).decode


class ReaderEnded(Unavailable):
    """The reader ended, and not for the file's sake; `why` says how, for the log."""

    code = Code.READER_ENDED

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__("The process that reads files ended early: try again")


class Limits(NamedTuple):
    """How long the reader may take for an answer, and how many bytes this may have; None for no
    limit.

    `processor_seconds` end as an error of the file; after `seconds` the reader is ended, and
    Unavailable is raised, with the text `too_slow`.
    """

    processor_seconds: int | None = None
    seconds: float | None = None
    bytes: int | None = None
    too_slow: str = ""


class Reader:
    """A process that answers one question about files. Raises Unavailable, OSError.

    It is ended by `close`, with its last message, or with this object.
    """

    def __init__(self, asked: Asked, files: list[IO[bytes]], limits: Limits) -> None:
        self._limits = limits
        self._end = None if limits.seconds is None else time.monotonic() + limits.seconds
        question = Question(asked, limits.processor_seconds)
        for file in files:
            file.flush()  # the reader sees what is in the file
        self._process = _start([file.fileno() for file in files])
        assert self._process.stdout is not None
        self._out = self._process.stdout.fileno()
        self._ready = select.poll()
        self._ready.register(self._out, select.POLLIN)
        assert self._process.stdin is not None
        try:
            protocol.write_frame(self._process.stdin.fileno(), question)
        except BrokenPipeError:
            pass  # it has ended, and its output says why
        except UnicodeEncodeError:  # of an argument of a command
            raise BadFile("the name of a column is not UTF-8") from None

    def messages(self) -> Generator[Message, None, None]:
        """Yield the messages before the last one. Raises BadFile, Unavailable."""
        left = self._limits.bytes
        try:
            while frame := protocol.read_frame(self._read):
                if left is not None and (left := left - len(frame)) < 0:
                    raise BadFile(f"its rows have more than {self._limits.bytes:,} bytes")
                match message := _decode(frame):
                    case End():
                        return
                    case Refusal():
                        raise _refused(message)
                    case OverLimit():
                        raise _too_large(self._limits)
                    case _:
                        yield message
            raise self._why_it_ended()
        except (BrokenFrame, msgspec.DecodeError) as error:
            raise ReaderEnded(f"it sent {error}"[:MAX_REASON_LENGTH]) from None
        finally:
            self.close()

    def stop(self) -> None:
        """End the process, without waiting for its end; the thread that takes its messages
        gets ReaderEnded."""
        self._process.kill()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def __del__(self) -> None:
        if hasattr(self, "_process"):  # else it was not started
            self.close()

    def _read(self, size: int) -> bytes:
        """Return the next bytes of the output, b"" at its end. Raises Unavailable."""
        left = None if self._end is None else (self._end - time.monotonic()) * 1000
        if left is not None and not (left > 0 and self._ready.poll(left)):
            raise Unavailable(self._limits.too_slow)
        return os.read(self._out, size)

    def _why_it_ended(self) -> Exception:
        """Return what the end of the process means, when it has said nothing of it."""
        status = self._process.wait()
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        said = (self._process.stderr.read(MAX_REASON_LENGTH * 100) or b"").decode(errors="replace")
        is_out_of_time = status == -signal.SIGXCPU
        if is_out_of_time or any(words in said for words in _OUT_OF_MEMORY):
            return _too_large(self._limits)
        how = f"status {status}" if status >= 0 else signal.Signals(-status).name
        last = said.strip().rpartition("\n")[2]
        return ReaderEnded(f"{how}: {last}"[:MAX_REASON_LENGTH] if last else how)


def _refused(message: Refusal) -> BadFile:
    return BadFile(
        message.problem,
        message.parameter,
        message.value,
        query=message.query,
        options=message.options,
    )


def _too_large(limits: Limits) -> BadFile:
    time = f" or {limits.processor_seconds} s" if limits.processor_seconds else ""
    return BadFile(
        f"the sheet needs more than {protocol.MAX_MEMORY >> 30} GiB of memory{time}: save it as CSV"
    )


def _start(files: list[int]) -> subprocess.Popen[bytes]:
    """Start the reader, with these files. Raises Unavailable."""
    path = [*sys.path, _SOURCE]
    program = f"""import sys
sys.path[:] = {path!r}
from storekeeper.sheets.child import main
main(*{files!r})
"""
    try:
        return subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-I", "-S", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            pass_fds=files,
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
            process_group=0,
        )
    except OSError as error:
        raise Unavailable(f"No process can be started to read the file: {error.strerror}") from None

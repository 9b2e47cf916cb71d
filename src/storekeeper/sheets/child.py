"""The reader: a program that reads one file from outside, in a process of its own.

It can do little: it has the pipes to the service and the file, can open no other, and has bounded
memory and time. `protocol` has what it is asked and what it says.
"""

import fcntl
import os
import resource
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from storekeeper.domain.intake import SheetRow
from storekeeper.domain.problems import shown
from storekeeper.domain.stores import MAX_EXTERNAL_LENGTH
from storekeeper.sheets import BadFile, protocol
from storekeeper.sheets.headings import ADDRESS_ROLES, role_of
from storekeeper.sheets.look import look_at, refuse_unsaid
from storekeeper.sheets.notes import import_notes, notes_on_sums
from storekeeper.sheets.protocol import (
    AskCells,
    AskLook,
    AskRejects,
    AskRows,
    Cells,
    End,
    Header,
    Looked,
    Message,
    OverLimit,
    Part,
    Question,
    Refusal,
    Rows,
)
from storekeeper.sheets.records import prepare
from storekeeper.sheets.rows import SheetRows

_SECONDS_TO_END = 5
"""Seconds after its limit of time at which the kernel ends the reader if it still runs."""

_ROW_BYTES = 100
"""Bytes of a row as a message, about, without its texts."""

_OVER_LIMIT = protocol.framed(OverLimit())
"""Made before, because there is no memory then."""


def main(file: int, *others: int) -> None:
    """Answer the question on standard input, of the files with these descriptors."""
    question = msgspec.msgpack.decode(
        protocol.read_frame(lambda size: os.read(sys.stdin.fileno(), size)), type=Question
    )
    _end_with_service()
    _limit(question)
    say(sys.stdout.fileno(), question, file, *others)


def say(out: int, question: Question, file: int, *others: int) -> None:
    """Write the answer as frames that the service takes, whatever is in the files. Raises
    OSError."""
    try:
        for message in answer(question, file, *others):
            protocol.write_frame(out, message)
        protocol.write_frame(out, End())
    except BadFile as error:
        protocol.write_frame(out, _refusal(error))
    except protocol.TooLong:
        protocol.write_frame(out, Refusal("the names of its columns are too long to be shown"))
    except MemoryError:
        os.write(out, _OVER_LIMIT)


def answer(question: Question, file: int, *others: int) -> Iterator[Message]:
    """Yield what the service asks for. Raises BadFile."""
    asked = question.asked
    with open(file, "rb", closefd=False) as opened:
        open_prepared = prepare(opened, asked.layout)
        _open_no_more()
        sheet = open_prepared()
        if isinstance(asked, AskLook):
            yield Looked(look_at(sheet, asked))
            return
        if isinstance(asked, AskRows):
            refuse_unsaid(sheet, asked.layout)
        rows = SheetRows(sheet, asked.layout)
        match asked:
            case AskRows():
                unused = rows.columns.unused[: protocol.MAX_LISTED_COLUMNS]
                dropped = [name for name in unused if role_of(name) in ADDRESS_ROLES]
                columns = (_shown(unused), rows.columns.attached, _shown(dropped))
                yield Header(rows.match, *columns, import_notes(sheet, rows))
                yield from _batches(rows, file)
            case AskCells():
                for line, cells in rows.described(asked.lines):
                    yield Cells(line, cells)
            case AskRejects():
                with open(others[0], "rb", closefd=False) as messages:
                    for data in rows.rejects(protocol.read_rejects(messages)):
                        yield from _parts(data)


def _shown(names: list[str]) -> list[str]:
    return [shown(name, MAX_EXTERNAL_LENGTH) for name in names]


def _refusal(error: BadFile) -> Refusal:
    """Return why a file cannot be read; what to try only if that is short enough to be tried."""
    problem = shown(str(error), protocol.MAX_PROBLEM_LENGTH)
    longest = max(len(error.value), len(error.query), len(error.options))
    if longest > protocol.MAX_LINE_LENGTH:
        return Refusal(problem, error.parameter)
    return Refusal(problem, error.parameter, error.value, error.query, error.options)


def _batches(rows: SheetRows, file: int) -> Iterator[Rows]:
    batch, size = [], 0
    for row in rows:
        batch.append(row)
        size += _ROW_BYTES + _length(row)
        if size >= protocol.BATCH_BYTES:
            yield Rows(batch, os.lseek(file, 0, os.SEEK_CUR))
            batch, size = [], 0
    yield Rows(batch, notes=notes_on_sums(rows))


def _length(row: SheetRow) -> int:
    """Return the characters of all the texts of a row."""
    texts = (row.key, row.wrong, row.name, row.address, row.attach, row.id)
    return sum(len(text) for text in texts if text)


def _parts(data: bytes) -> Iterator[Part]:
    for start in range(0, len(data), protocol.BATCH_BYTES):
        yield Part(data[start : start + protocol.BATCH_BYTES])


# What it may do.


def _end_with_service() -> None:
    """End when the other side of standard input is closed, whatever is under way then."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGIO, signal.SIG_DFL)  # which ends the process
    asking = sys.stdin.fileno()
    with suppress(OSError):  # on macOS, only a write to the service ends it
        fcntl.fcntl(asking, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(asking, fcntl.F_SETFL, fcntl.fcntl(asking, fcntl.F_GETFL) | os.O_ASYNC)
    closed = select.poll()
    closed.register(asking, select.POLLIN)
    if closed.poll(0):
        sys.exit("the service has ended")


def _limit(question: Question) -> None:
    """Bound memory, time and files, and be the first that the kernel ends for lack of memory."""
    with suppress(OSError):
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(score, b"1000")
        os.close(score)
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (protocol.MAX_MEMORY, protocol.MAX_MEMORY))
    if question.seconds is not None:
        end = question.seconds + _SECONDS_TO_END
        resource.setrlimit(resource.RLIMIT_CPU, (question.seconds, end))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _open_no_more() -> None:
    """Open no file from now on, and write to none: what is open stays so."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

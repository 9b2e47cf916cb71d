"""A log that is open but not read: the service continues, and later says what was lost."""

import fcntl
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storekeeper.log import events
from storekeeper.log import thread as log
from storekeeper.log.events import Event, emit
from storekeeper.log.thread import Log
from tests.harness import weakened
from tests.harness.log_lines import LogLines
from tests.harness.process import READY, TIMEOUT, Running, kill_group

PIPE = 4096
"""Bytes that any pipe takes before a writer must wait."""


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """Return the two ends of a short pipe; a reader does not wait."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE)
    os.set_blocking(reading, False)
    try:
        yield reading, writing
    finally:
        os.close(writing)
        os.close(reading)


def read(reading: int) -> bytes:
    """Return all that is in a pipe."""
    data = b""
    while select.select([reading], [], [], 0)[0] and (more := os.read(reading, 65536)):
        data += more
    return data


def test_a_log_that_is_open_and_not_read_stops_nothing(tmp_path: Path) -> None:
    command = [
        *weakened.PROGRAM,
        "serve",
        "--port=0",
        f"--database=sqlite:///{tmp_path}/stores.db",
        "--create",
    ]
    environment = os.environ | weakened.environment("meets_a_bug_in_every_write")
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE)
    process = subprocess.Popen(
        [*command, "--workers=2"], stderr=writing, env=environment, start_new_session=True
    )
    os.close(writing)
    try:
        found = READY.search(os.read(reading, 4096))
        assert found
        service = Running(process, int(found["port"]), Path(os.devnull))
        for _ in range(40):
            assert service.request("POST", "/api/stores", {"name": "A"}, timeout=5).status == 500
        assert service.request("GET", "/test", timeout=5).status == 200
        began = time.monotonic()
        assert service.stop() == 0
        assert time.monotonic() - began < 5
    finally:
        kill_group(process)
        os.close(reading)


def test_what_does_not_fit_is_dropped_and_counted() -> None:
    with pipe() as (reading, writing):
        written = Log(writing, lambda count: b"dropped %d\n" % count)
        for number in range(3 * log.MAX_QUEUED_LINES):
            written.write(b"line %d\n" % number)
        received = b""
        while b"dropped" not in received:
            received += read(reading)
        numbers = [
            int(line.split()[1]) for line in received.splitlines() if line.startswith(b"line")
        ]
        dropped = [
            int(line.split()[1]) for line in received.splitlines() if line.startswith(b"dropped")
        ]
        assert numbers == sorted(numbers)
        assert len(numbers) + sum(dropped) == 3 * log.MAX_QUEUED_LINES
        assert log.MAX_QUEUED_LINES <= len(numbers) < 3 * log.MAX_QUEUED_LINES
        written.write(b"continues\n")
        assert written.flush(5)
        assert read(reading) == b"continues\n"


def test_a_line_that_is_too_long_is_cut_off() -> None:
    with pipe() as (reading, writing):
        written = Log(writing, lambda count: b"dropped %d\n" % count)
        written.write(b"x" * 10 * log.MAX_LINE_BYTES + b"\n")
        received = b""
        while not received.endswith(b"\n"):
            received += read(reading)
        assert received == b"x" * log.MAX_LINE_BYTES + b"\n"


def test_without_a_thread_lines_are_written_as_long_as_somebody_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pipe() as (reading, writing), monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        written = Log(writing, lambda count: b"dropped %d\n" % count)
        written.write(b"first\n")
        assert read(reading) == b"first\n"
        for number in range(20):
            written.write(
                b"%d" % number * 500 + b"\n"
            )  # more than the pipe takes, but no writer waits
        received = b""
        while not received.endswith(b"last\n"):
            received += read(reading)
            if len(written.waiting) < 2:
                written.write(b"last\n")
            written.flush(0)
        assert received.splitlines()[:20] == [b"%d" % number * 500 for number in range(20)]


def test_a_pipe_that_another_program_made_non_blocking_loses_nothing() -> None:
    with pipe() as (reading, writing):
        os.set_blocking(writing, False)
        written = Log(writing, lambda count: b"dropped %d\n" % count)
        for _ in range(20):
            written.write(b"x" * 999 + b"\n")
        received = b""
        while len(received) < 20_000:
            received += read(reading)
        assert received == (b"x" * 999 + b"\n") * 20


def test_a_process_that_is_forked_writes_too() -> None:
    program = """
import os
from storekeeper.log.events import Event, emit
emit(Event.SERVER, message="parent")
if not (child := os.fork()):
    emit(Event.SERVER, message="child")
    from storekeeper.log import events
    events.flush()
    os._exit(0)
os.waitpid(child, 0)
"""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        program,
    ]  # 3.12 warns of a fork next to threads
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=True)
    assert sorted(line.rpartition(b"=")[2] for line in done.stderr.splitlines()) == [
        b"child",
        b"parent",
    ]


def test_an_event_that_repeats_is_limited_and_what_was_held_back_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = LogLines(monkeypatch)
    for number in range(432):
        emit(Event.DATABASE_REFUSED, number=number)
    emit(Event.DATABASE_UNREACHABLE)
    assert [f"number={number}" in line for number, line in enumerate(lines[:10])] == [True] * 10
    assert len(lines) == 11
    lines.now += 1
    emit(Event.DATABASE_REFUSED, number=432)
    emit(Event.DATABASE_REFUSED, number=433)
    assert len(lines) == 12
    assert "number=432 suppressed=422" in lines[-1]
    lines.now += 60
    for _ in range(20):
        emit(Event.DATABASE_REFUSED)
    assert len(lines) == 22
    assert "suppressed=1" in lines[12]
    assert "suppressed" not in lines[13]
    events.flush()
    assert 'event="database refused a statement" suppressed=10' in lines[-1]
    events.suppressed.clear()


def test_a_long_line_is_written_in_one_piece() -> None:
    # Several workers append to one file: in pieces, the lines of one would be among those of
    # another.
    line = b"x" * (4 * PIPE) + b"\n"
    reading, writing = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with reading, writing:
        reading.settimeout(TIMEOUT)
        log = Log(writing.fileno(), lambda _: b"")
        log.write(line)
        assert reading.recv(2 * len(line)) == line
        assert log.flush(TIMEOUT)

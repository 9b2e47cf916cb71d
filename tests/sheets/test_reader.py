"""The reader: what it may do, when it ends, and what the service takes of it."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import pytest

from storekeeper.domain.errors import Unavailable
from storekeeper.domain.problems import decode_wrong
from storekeeper.sheets import BadFile, child, protocol, reader
from storekeeper.sheets.protocol import (
    AskCells,
    Asked,
    AskLook,
    AskRows,
    BrokenFrame,
    End,
    Header,
    Layout,
    Question,
    Refusal,
    Rows,
    framed,
)
from storekeeper.sheets.reader import Limits, Reader, ReaderEnded
from storekeeper.sheets.reading import Reading
from tests.campaigns.hostile_sheets import raw_workbook
from tests.harness.client import until
from tests.harness.linux import of
from tests.sheets.corpus import bomb


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[IO[bytes]]:
    """A file that is longer than the pipes hold."""
    file = tmp_path / "stores.csv"
    file.write_text("name,address\n" + f"Store,{'x' * 1000}\n" * 5000)
    with file.open("rb") as opened:
        yield opened


def pid_of(reading: Reading | Reader) -> int:
    return (reading._reader if isinstance(reading, Reading) else reading)._process.pid


def limit(pid: int, name: str) -> str:
    """Return the limits of a process, the soft and the hard one."""
    found = re.search(rf"^{name} +(\S+) +(\S+)", (of(pid) / "limits").read_text(), re.MULTILINE)
    assert found
    return f"{found[1]} {found[2]}"


def test_it_has_the_pipes_and_the_file_and_may_open_no_other(
    endless: IO[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOREKEEPER_DATABASE", "postgresql://keeper:secret@127.0.0.1/stores")
    with Reading(endless, Layout(), Limits(processor_seconds=7)) as reading:
        pid = pid_of(reading)
        files = [str(each.readlink()) for each in (of(pid) / "fd").iterdir()]
        assert sorted(each.partition(":")[0] for each in files) == [endless.name, *["pipe"] * 3]
        assert b"secret" not in (of(pid) / "environ").read_bytes()
        assert (of(pid) / "oom_score_adj").read_text().strip() == "1000"
        assert limit(pid, "Max open files") == "0 0"
        assert limit(pid, "Max file size") == "0 0"
        assert limit(pid, "Max address space") == f"{protocol.MAX_MEMORY} {protocol.MAX_MEMORY}"
        assert limit(pid, "Max cpu time") == "7 12"
    assert not of(pid).exists()


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "utf-16", "shift_jis", "mac_roman"])
def test_what_an_encoding_needs_is_there_before_it_may_open_no_file(
    tmp_path: Path, encoding: str
) -> None:
    with (tmp_path / "stores.csv").open("w+b") as file:
        file.write("name\nStore\n".encode(encoding))
        with Reading(file, Layout(encoding=encoding)) as reading:
            assert [row.name for row in reading] == ["Store"]


def test_a_command_has_no_limit_of_time(endless: IO[bytes]) -> None:
    with Reading(endless, Layout()) as reading:
        assert limit(pid_of(reading), "Max cpu time") == "unlimited unlimited"


def test_it_ends_with_the_service_whatever_it_does(tmp_path: Path) -> None:
    """Killed, the service tells it nothing; and this workbook takes it seconds in one call."""
    file = tmp_path / "bomb.xlsx"
    file.write_bytes(bomb())
    program = f"""
import time
from storekeeper.sheets.protocol import AskRows, Layout
from storekeeper.sheets.reader import Limits, Reader
reader = Reader(AskRows(Layout()), [open({str(file)!r}, "rb")], Limits())
print(reader._process.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as service:
        assert service.stdout
        pid = int(service.stdout.readline())
        until(lambda: limit(pid, "Max open files") == "0 0")  # it reads
        service.kill()
    until(lambda: not of(pid).exists() or "Z" in (of(pid) / "stat").read_text().split()[2])


def test_it_ends_when_the_rows_are_wanted_no_more(endless: IO[bytes]) -> None:
    reading = Reading(endless, Layout())
    pid = pid_of(reading)
    next(iter(reading))
    del reading
    assert not of(pid).exists()


def test_it_ends_at_its_timeout(endless: IO[bytes]) -> None:
    with Reading(endless, Layout(), Limits(seconds=60, too_slow="It takes too long")) as reading:
        os.kill(pid_of(reading), signal.SIGSTOP)
        reading._reader._end = time.monotonic() + 0.2
        with pytest.raises(Unavailable, match="It takes too long"):
            list(reading)
        assert not of(pid_of(reading)).exists()


def test_its_limit_of_time_is_an_error_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "bomb.xlsx"
    file.write_bytes(bomb())
    with (
        file.open("rb") as opened,
        pytest.raises(BadFile, match=r"needs more than 1 GiB of memory or 1 s: save it as CSV"),
    ):
        Reading(opened, Layout(), Limits(processor_seconds=1))


def test_what_else_ends_it_is_no_error_of_the_file(endless: IO[bytes]) -> None:
    for sign in (signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV):
        with Reading(endless, Layout()) as reading:
            os.kill(pid_of(reading), sign)
            with pytest.raises(ReaderEnded) as ended:
                list(reading)
            assert ended.value.why == sign.name


def test_a_file_that_is_written_while_it_is_read_is_refused(endless: IO[bytes]) -> None:
    with Reading(endless, Layout()) as reading:
        rows = iter(reading)
        next(rows)
        with Path(endless.name).open("r+") as other:
            other.write("name,address\nAnother")
        with pytest.raises(BadFile, match="written while it was read"):
            list(rows)


def test_its_last_words_are_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_SOURCE", str(tmp_path))
    elsewhere = [each for each in sys.path if not (Path(each) / "storekeeper/cli").exists()]
    monkeypatch.setattr(sys, "path", elsewhere)
    with (tmp_path / "stores.csv").open("w+b") as file, pytest.raises(ReaderEnded) as ended:
        Reading(file, Layout())
    assert ended.value.why.startswith("status 1: ModuleNotFoundError")


def test_no_process_to_read_with_is_said(
    endless: IO[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(Unavailable, match="No process can be started to read the file: No such"):
        Reading(endless, Layout())


SAID: list[tuple[bytes, str]] = [
    (b"\xff\xff\xff\xff", "a message of 4,294,967,295 bytes"),
    (framed("rows"), "Expected `object`"),
    (framed(Header("x" * 1000, [])), "length <= 210"),
    (framed(Rows([])), "Rows, which was not asked for"),
    (framed(Header(None, [])) + framed(Header(None, [])), "Header, which was not asked for"),
    (framed(Header(None, [])) + framed({"type": "Rows", "rows": [[1] * 8]}), "Expected `str"),
    (
        framed(Header(None, []))
        + framed({"type": "Rows", "rows": [[2, 2, None, None, None, 0, "A", None]]}),
        "row 2 in place of 1",
    ),
    (
        framed(Header(None, []))
        + framed({"type": "Rows", "rows": [[1, 2, None, None, "x", 0, "A", None]]}),
        "it sent JSON is malformed",
    ),
    (
        framed(Header(None, []))
        + framed({"type": "Rows", "rows": [[1, 2, "A" * 201, None, None, 0, "A", None]]}),
        "length <= 200",
    ),
    (
        framed(Header(None, []))
        + framed({"type": "Rows", "rows": [[1, 2, None, "1\0", None, 0, "A", None]]}),
        "matching regex",
    ),
    (framed(Header(None, []))[:-1], "status 0"),
    (b"", "status 0"),
]


@pytest.mark.parametrize(("data", "why"), SAID)
def test_the_service_takes_nothing_of_it_that_it_would_not_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, why: str
) -> None:
    said = tmp_path / "said"
    said.write_bytes(data)
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nexec cat {said}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with (
        said.open("rb") as file,
        pytest.raises(ReaderEnded) as ended,
        Reading(file, Layout()) as reading,
    ):
        list(reading)
    assert why in ended.value.why


def test_the_longest_name_of_a_column_of_keys_is_told(tmp_path: Path) -> None:
    column = "key:" + "x" * 196
    with (tmp_path / "stores.csv").open("w+b") as file:
        file.write(f"name,key:{column},{'y' * 500}\nStore,7,\n".encode())
        with Reading(file, Layout(match=f"key:{column}")) as reading:
            assert reading.match == f"key:{column}"
            assert reading.unused == ["y" * 200 + "…"]
            assert [row.key for row in reading] == ["7"]


def test_rows_of_more_bytes_than_permitted_are_an_error_of_the_file(endless: IO[bytes]) -> None:
    with (
        Reading(endless, Layout(), Limits(bytes=100_000)) as reading,
        pytest.raises(BadFile, match="its rows have more than 100,000 bytes"),
    ):
        list(reading)


def test_a_frame_comes_in_any_pieces_and_not_at_all_without_its_end() -> None:
    frame = framed(Header(None, ["a"]))
    for size in range(len(frame) + 1):
        pieces = iter([*(frame[:size][at : at + 1] for at in range(size)), b""])
        found = protocol.read_frame(lambda _: next(pieces))  # noqa: B023 - used at once
        assert found == (frame[4:] if size == len(frame) else b"")
    with pytest.raises(BrokenFrame):
        protocol.read_frame(lambda _: b"\x7f" * 4)


def modules(program: str) -> set[str]:
    """Return what is imported after a program."""
    command = [sys.executable, "-I", "-c", f"{program}; import sys; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_it_starts_without_what_it_does_not_need() -> None:
    imported = modules("import storekeeper.sheets.child") - modules("pass")
    heavy = "asyncio subprocess apsw psycopg structlog typer zipfile python_calamine secrets"
    assert not imported & set(heavy.split())
    assert child.__name__ in imported


LONG_TEXTS = {
    "four bytes each": "\U0001f3ea" * 30_000,
    "controls": "\x01" * 30_000,
    "200 controls": "\x01" * 200,
}
"""Texts that make a message long: by their characters, as UTF-8, and as JSON."""


def errors_of_cells(text: str) -> bytes:
    """Return a workbook with an error of this text in each column."""
    head = "".join(f'<c t="inlineStr"><is><t>{name}</t></is></c>' for name in ("name", "a", "k"))
    error = f'<c t="e"><v>{text}</v></c>'.replace("\x01", "!")  # XML has no such character
    return raw_workbook(f"<row>{head}</row><row>{error * 3}</row>".encode())


LONG_FILES: dict[str, Callable[[str], bytes]] = {
    "cells": lambda text: ("name,a,k\n" + f"{text},a,7\n" * 60).encode(),
    "names of columns": lambda text: f"name,{text},{text}k\nA,B,7\n".encode(),
    "many columns": lambda text: f"name,{','.join([text[:1000]] * 1000)}\nA\n".encode(),
    "many columns of one name": lambda _: f"name{',Address' * 4_000}\nA\n".encode(),
    "objects": lambda text: json.dumps(
        [{"name": text, "a": "a", "k": "7"}] * 60, ensure_ascii=False
    ).encode(),
    "lists in the place of texts": lambda text: json.dumps(
        [{"name": [text], "k": [text]}]
    ).encode(),
    "errors of cells": errors_of_cells,
}

QUESTIONS: dict[str, Asked] = {
    "rows": AskRows(Layout(add=True)),
    "rows by name": AskRows(Layout(match="name")),
    "rows by a key": AskRows(Layout(match="k", attach="a", map={"address": "{a} {a} {k}"})),
    "rows by a long key": AskRows(Layout(match="\x01" * 200)),
    "rows by a map": AskRows(Layout(add=True, map={"name": "{a}" * 5000})),
    "a look": AskLook(Layout(), [], list_is_empty=True),
    "a look at a map": AskLook(Layout(map={"address": "{a} " * 5000}), [], list_is_empty=False),
    "cells": AskCells(Layout(add=True), [2, 3]),
}


def frames_of(data: bytes) -> Iterator[bytes]:
    """Yield the frames of an answer as the service reads them."""
    with io.BytesIO(data) as said:
        while frame := protocol.read_frame(said.read):
            yield frame


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("kind", LONG_FILES)
def test_the_service_takes_all_that_it_says_of_long_texts(
    monkeypatch: pytest.MonkeyPatch, kind: str, question: str
) -> None:
    monkeypatch.setattr(child, "_open_no_more", lambda: None)
    for data in {LONG_FILES[kind](text) for text in LONG_TEXTS.values()}:
        with TemporaryFile() as file, TemporaryFile() as out:
            file.write(data)
            file.flush()
            child.say(out.fileno(), Question(QUESTIONS[question]), file.fileno())
            out.seek(0)
            messages = [reader._decode(frame) for frame in frames_of(out.read())]
        assert isinstance(messages[-1], End | Refusal)
        for message in messages:
            for row in message.rows if isinstance(message, Rows) else []:
                decode_wrong(row.wrong or "[]")

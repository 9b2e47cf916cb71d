"""`storekeeper changes`: JSON lines from the database, and a cursor in a file."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from storekeeper.domain.changes import ChangesQuery
from storekeeper.domain.stores import Payload
from storekeeper.storage import databases
from tests.harness.client import load, until
from tests.harness.collection import numbered
from tests.harness.command import run
from tests.harness.databases import Database, postgres
from tests.harness.postgres_server import running
from tests.harness.process import kill_group, refused, serving, start


def changes(url: str, *args: str) -> list[Any]:
    """Return what the command prints."""
    done = run("changes", "--database", url, *args)
    assert (done.returncode, done.stderr) == (0, b"")
    return [json.loads(line) for line in done.stdout.splitlines()]


def seqs(url: str, *args: str) -> list[int]:
    return [change["seq"] for change in changes(url, *args)]


def epoch(url: str) -> str:
    return databases.read_changes(url, ChangesQuery()).epoch


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database of three stores."""
    found = f"sqlite:///{tmp_path}/stores.db"
    load(found, numbered(3))
    return found


def test_it_prints_what_the_route_shows(url: str, tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        service.request("PUT", "/api/stores/1", {"name": "Zoë", "address": "line\nbreak"})
        expected = service.request("GET", "/api/changes").json["changes"]
        assert changes(url) == expected
        assert changes(url, "--after", f"1.{epoch(url)}") == expected[1:]
        assert "Zoë".encode() in run("changes", "--database", url).stdout


def test_it_prints_all_however_many_they_are(database: Database) -> None:
    load(database.url, numbered(2100))
    assert seqs(database.url) == list(range(1, 2101))
    assert seqs(database.url, "--after=2000") == list(range(2001, 2101))
    assert seqs(database.url, "--after=now") == []
    assert seqs(database.url, "--store=2000") == [2000]


def test_a_cursor_file_goes_on_where_it_was(url: str, tmp_path: Path) -> None:
    file = tmp_path / "cursor"
    with_file = ("--cursor-file", str(file), "--after=1")
    assert seqs(url, *with_file) == [2, 3]
    assert file.read_text() == f"3.{epoch(url)}\n"
    before = file.stat()
    assert seqs(url, *with_file) == []
    assert file.stat() == before  # what does not change is not written
    load(url, [Payload("Four")])
    assert seqs(url, *with_file) == [4]
    load(url, [Payload("Five")])
    assert seqs(url, *with_file, "--store=1") == []
    assert file.read_text() == f"5.{epoch(url)}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("007", "not a cursor: '007'"),
        ("x" * 100, f"not a cursor: '{'x' * 40}'"),
        ("", "not a cursor: ''"),
        ("4", "another history: read the list again"),
        ("1.abcdefgh", "another history: read the list again"),
        ("9" * 5000, "not a cursor"),
    ],
)
def test_what_is_no_cursor_of_this_history_is_refused(
    url: str, tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "cursor"
    file.write_text(f"{text}\n")
    [line] = refused(run("changes", "--database", url, "--cursor-file", str(file)))
    assert said in line
    assert file.read_text() == f"{text}\n"
    [line] = refused(run("changes", "--database", url, f"--after={text}"))
    assert (said if text else "--after: is empty") in line


def test_a_cursor_file_that_cannot_be_used_is_named(url: str, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    for file in (tmp_path, tmp_path / "binary"):
        [line] = refused(run("changes", "--database", url, "--cursor-file", str(file)))
        assert line.startswith(f"storekeeper: --cursor-file {file}: cannot be read")
    done = run("changes", "--database", url, "--cursor-file", str(tmp_path / "none" / "cursor"))
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"cannot be written" in done.stderr
    assert done.stdout.count(b"\n") == 3  # at least once


def following(url: str, out: Path, *args: str) -> "subprocess.Popen[bytes]":
    with out.open("ab") as stdout, out.with_suffix(".err").open("ab") as stderr:
        return start("changes", "--database", url, "--follow", *args, stdout=stdout, stderr=stderr)


def printed(out: Path) -> list[int]:
    return [json.loads(line)["seq"] for line in out.read_bytes().splitlines()]


def test_it_follows_until_ctrl_c_and_after_a_kill_goes_on_where_it_was(
    database: Database, tmp_path: Path
) -> None:
    out, file = tmp_path / "out", tmp_path / "cursor"
    load(database.url, numbered(3))

    def has_saved(seq: int) -> bool:
        return file.exists() and file.read_text() == f"{seq}.{epoch(database.url)}\n"

    def has_printed(seq: int) -> bool:
        return printed(out)[-1:] == [seq]

    for latest in range(3, 5):
        process = following(database.url, out, "--cursor-file", str(file))
        try:
            until(partial(has_saved, latest))
            load(database.url, [Payload("One more")])
            until(partial(has_printed, latest + 1))
            if latest == 4:
                process.send_signal(signal.SIGINT)
                assert process.wait(10) == 130
        finally:
            kill_group(process)
    # Killed between a line and its cursor, it prints the line again.
    assert sorted(set(printed(out))) == list(range(1, 6))
    assert out.with_suffix(".err").read_bytes() == b""


def test_while_the_database_is_away_it_waits_and_says_so_once(tmp_path: Path) -> None:
    postgres()
    out, errors = tmp_path / "out", tmp_path / "out.err"
    with running() as server, server.database() as url:
        load(url, numbered(1))
        process = following(url, out)
        try:
            until(lambda: printed(out) == [1])
            server.stop()
            until(lambda: errors.stat().st_size)
            server.start()
            load(url, [Payload("After")])
            until(lambda: printed(out) == [1, 2])
        finally:
            kill_group(process)
    [line] = errors.read_text().splitlines()
    assert line.endswith("; trying again")


def test_what_it_printed_to_a_file_is_on_the_disk_before_its_cursor(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def noting(name: str) -> Callable[..., object]:
        real: Callable[..., object] = getattr(os, name)

        def noted(*args: Any, **kwargs: Any) -> object:
            steps.append(name)
            return real(*args, **kwargs)

        return noted

    monkeypatch.setattr(os, "fsync", noting("fsync"))
    monkeypatch.setattr(os, "rename", noting("rename"))
    monkeypatch.setattr(os, "replace", noting("replace"))
    with (tmp_path / "out").open("wb") as out:
        done = run(
            "changes", "--database", url, "--cursor-file", str(tmp_path / "cursor"), stdout=out
        )
    assert done.returncode == 0
    assert steps == ["fsync", "fsync", "replace", "fsync"]  # the lines, the cursor, its name


def test_a_reader_that_leaves_ends_it_silently_and_its_cursor_is_not_saved(
    url: str, tmp_path: Path
) -> None:
    load(url, numbered(5000))
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe, (tmp_path / "err").open("wb") as stderr:
        process = start(
            "changes",
            "--database",
            url,
            "--cursor-file",
            f"{tmp_path}/cursor",
            stdout=pipe,
            stderr=stderr,
        )
        assert process.wait(30) == 0
    assert (tmp_path / "err").read_text() == ""
    assert not (tmp_path / "cursor").exists()

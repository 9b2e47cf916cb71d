"""`export`: what it writes, what it overwrites, and where it cannot write."""

import csv
import fcntl
import io
import os
import signal
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from storekeeper.domain.stores import Payload
from storekeeper.sheets import export as exports
from tests.harness.command import run
from tests.harness.databases import Database, Sqlite
from tests.harness.machine import mounted
from tests.harness.process import refused, start
from tests.harness.process import run as run_process
from tests.harness.stores import an_export, shown, shown_with, without_versions
from tests.harness.transfers import TRICKY, command, fill_with

FULL = Path("/dev/full")
FORMULAS = (
    "{} with a sign in front (=, +, -, @ or a tab) that a spreadsheet may take for a formula:"
    " use .xlsx for people\n"
)
BOM = b"\xef\xbb\xbf"


@pytest.fixture
def database(tmp_path: Path) -> Sqlite:
    """A database that is not there yet."""
    return Sqlite(tmp_path)


def rows(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode(), newline="")))


def told_formulas(payloads: list[Payload]) -> str:
    texts = [text or "" for each in payloads for text in (each.name, each.address)]
    count = sum(text[:1] in ("=", "+", "-", "@", "\t") for text in texts if text)
    return FORMULAS.format(f"{count:,} cell{'s' * (count != 1)}") if count else ""


def expected_rows(payloads: list[Payload]) -> list[list[str]]:
    expected = [shown_with(id, payload) for id, payload in enumerate(payloads, 1)]
    cells = [[*(str(value or "") for value in store.values()), ""] for store in expected]
    return [[*shown(0, ""), "version"], *cells]


# Blanks at the ends are not part of what a file says.
TRIMMED = [Payload(each.name.strip(), (each.address or "").strip() or None) for each in TRICKY]


@pytest.mark.parametrize(
    "payloads",
    [[], TRIMMED, [*TRIMMED[:6], *TRIMMED[7:], Payload("x", "")] * 300],
    ids=["none", "few", "many"],
)
def test_an_export_can_be_imported_again_and_is_the_same(
    tmp_path: Path, payloads: list[Payload]
) -> None:
    one, two = Sqlite(tmp_path), Sqlite(tmp_path / "again")
    two.path.parent.mkdir()
    fill_with(one, payloads)
    done = command("export", one)
    assert done.returncode == 0
    result = f"{len(payloads):,} stores exported from {one.path}\n"
    assert done.stderr.decode() == result + told_formulas(payloads)
    assert rows(without_versions(done.stdout)) == expected_rows(payloads)
    file = tmp_path / "stores.csv"
    assert command("export", one, str(file)).stdout.decode() == result
    assert file.read_bytes() == done.stdout
    assert command("import", two, str(file)).returncode == 0
    assert without_versions(command("export", two).stdout) == without_versions(done.stdout)


GOOD = an_export((1, "The last good one"))


def test_an_export_replaces_a_file_only_by_a_whole_one(tmp_path: Path, database: Sqlite) -> None:
    fill_with(database, [Payload("Store", "x" * 1000)] * 3000)
    with mounted(tmp_path / "disk", "size=1m") as disk:
        file = disk / "stores.csv"
        file.write_bytes(GOOD)
        [line] = refused(command("export", database, "--force", str(file)))
        assert line == f"storekeeper: cannot write {file}: No space left on device"
        assert [one.name for one in disk.iterdir()] == ["stores.csv"]
        assert file.read_bytes() == GOOD
    file = tmp_path / "stores.csv"
    file.write_bytes(GOOD)
    assert command("export", database, "--force", str(file)).returncode == 0
    assert len(rows(file.read_bytes())) == 3001


def test_a_full_folder_of_temporary_files_is_said_and_nothing_stays(
    tmp_path: Path, database: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XLSX needs it; the file that was there stays as it is."""
    fill_with(database, [Payload("Store", "x" * 1000)] * 3000)
    file = tmp_path / "stores.xlsx"
    file.write_bytes(GOOD)
    with mounted(tmp_path / "temporary", "size=100k") as folder:
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        (line,) = refused(command("export", database, "--force", str(file)))
        monkeypatch.setattr(tempfile, "tempdir", None)
        assert list(folder.iterdir()) == []
    says = "The folder of temporary files cannot be written: No space left on device"
    assert line == f"storekeeper: {says}"
    assert file.read_bytes() == GOOD


def test_an_export_overwrites_a_file_only_if_that_is_asked_for(
    tmp_path: Path, database: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even an export: it may have edits that were not imported yet."""
    fill_with(database, [Payload("A")])
    file = tmp_path / "stores.csv"
    file.write_bytes(GOOD)
    [line] = refused(command("export", database, str(file)))
    assert line == f"storekeeper: {file} exists: name another file, or overwrite it with --force"
    assert file.read_bytes() == GOOD
    assert command("export", database, "--force", str(file)).returncode == 0
    assert without_versions(file.read_bytes()) == an_export((1, "A"))
    write, late = exports.write, tmp_path / "late.csv"
    monkeypatch.setattr(exports, "write", lambda *given: (late.write_bytes(GOOD), write(*given))[1])
    [line] = refused(command("export", database, str(late)))
    assert line == f"storekeeper: cannot write {late}: File exists"
    assert late.read_bytes() == GOOD


def test_an_export_that_cannot_be_written_names_the_file(tmp_path: Path, database: Sqlite) -> None:
    fill_with(database, TRICKY)
    for name, reason in (
        ("nowhere/stores.csv", "No such file or directory"),
        (".", "Is a directory"),
    ):
        [line] = refused(command("export", database, str(tmp_path / name)))
        assert line == f"storekeeper: cannot write {tmp_path / name}: {reason}"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["stores.db"]


def test_an_export_to_a_reader_that_has_enough_ends_quietly(database: Sqlite) -> None:
    fill_with(database, [Payload("Store", "x" * 100)] * 5000)
    reading, writing = os.pipe()
    with TemporaryFile() as said:
        with os.fdopen(writing, "wb") as output:
            process = start("export", "--database", database.url, stdout=output, stderr=said)
        with os.fdopen(reading, "rb", buffering=0) as reader:
            assert reader.read(len(an_export())) == an_export()
        assert process.wait(30) == 0
        said.seek(0)
        assert said.read() == b""


def test_an_export_to_a_full_disk_by_standard_output_is_refused(database: Sqlite) -> None:
    fill_with(database, TRICKY)
    with FULL.open("wb") as full:
        done = run("export", "--database", database.url, stdout=full)
    assert done.returncode == 2
    assert done.stderr == b"storekeeper: cannot write standard output: No space left on device\n"
    [line] = refused(command("export", database, "/dev/full"))
    assert line == "storekeeper: cannot write /dev/full: No space left on device"


def test_standard_input_is_imported_and_standard_output_exported(database: Sqlite) -> None:
    done = run_process(
        "import",
        "--create",
        "--database",
        database.url,
        "-",
        stdin=BOM + b"name,address\r\nA,1 Road\r\n",
    )
    assert b"1 store created as 1, 0 replaced, 0 unchanged in the new database" in done.stdout
    exported = run_process("export", "--database", database.url, "-").stdout
    assert without_versions(exported) == an_export((1, "A", "1 Road"))
    assert not Path("-").exists()


def test_one_that_waits_for_its_reader_can_be_interrupted(
    tmp_path: Path, new_database: Callable[[], Database]
) -> None:
    """Into a pipe that has a name, or as its standard output."""
    database = new_database()
    fill_with(database, [Payload(f"Store {number}", "x" * 1000) for number in range(500)])
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    file = str(pipe) if isinstance(database, Sqlite) else "-"
    with pipe.open("wb") as writer, TemporaryFile() as said:
        process = start("export", "--database", database.url, file, stdout=writer, stderr=said)
        waiting = None
        while waiting != (waiting := fcntl.ioctl(reader, termios.FIONREAD, bytes(4))) or not any(
            waiting
        ):
            time.sleep(0.1)  # it is still writing
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        said.seek(0)
        assert said.read() == b""
    os.close(reader)


def test_an_export_keeps_the_rights_of_a_file_and_follows_a_link_to_it(
    tmp_path: Path, database: Sqlite
) -> None:
    fill_with(database, [Payload("A")])
    file, link = tmp_path / "stores.csv", tmp_path / "latest.csv"
    file.write_bytes(GOOD)
    file.chmod(0o600)
    link.symlink_to(file)
    assert command("export", database, "--force", str(link)).returncode == 0
    assert link.is_symlink()
    assert without_versions(file.read_bytes()) == an_export((1, "A"))
    assert file.stat().st_mode & 0o777 == 0o600

"""`import`: every row or none, what is refused and how that is said, what it waits for."""

import fcntl
import io
import os
import signal
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest

from storekeeper import cli, csvfile
from storekeeper.stores import Payload
from tests.harness.client import until
from tests.harness.databases import Sqlite
from tests.harness.linux import memory
from tests.harness.machine import fill_disk, mounted
from tests.harness.process import refused, serving, start
from tests.harness.process import run as run_process
from tests.harness.stores import fields
from tests.harness.transfers import command, content, fill_with

BOM = b"\xef\xbb\xbf"


@pytest.fixture
def database(tmp_path: Path) -> Sqlite:
    """A database that is not there yet."""
    return Sqlite(tmp_path)


IMPORTED: list[tuple[bytes, list[tuple[str, str | None]]]] = [
    (b"name,address\nA,1 Road\nB,\n", [("A", "1 Road"), ("B", None)]),
    (b"name,address\nA,1 Road", [("A", "1 Road")]),
    (b"address,name\n1 Road,A\n", [("A", "1 Road")]),
    (b"name,address\nA,1 Road\nB,\nC,\n", [("A", "1 Road"), ("B", None), ("C", None)]),
    (b"id,name,address\n,A,1 Road\n,B,\n", [("A", "1 Road"), ("B", None)]),
    (b"address,id,name\r\n1 Road,,A\r\n", [("A", "1 Road")]),
    (BOM + b"name,address\r\nA,1 Road\r\n", [("A", "1 Road")]),
    (BOM + b'"name","address"\r\nA,1 Road\r\n', [("A", "1 Road")]),
    (b" Name , ADDRESS\nA,1 Road\n", [("A", "1 Road")]),
    (b"name,address\n\nA,1\n\n\nB,2\n\n", [("A", "1"), ("B", "2")]),
    (b'name,address\n"A, ""x""","1\nRoad\r\nTown"\n', [('A, "x"', "1\nRoad\r\nTown")]),
    ("name,address\n店舗,Zürich\n".encode(), [("店舗", "Zürich")]),
    (b"name,address\n A , \n", [(" A ", " ")]),
    (b"name,address\n", []),
]


def imported(rows: list[tuple[str, str | None]]) -> str:
    """Return how an import tells of so many rows behind one store."""
    return {
        0: "0 stores imported",
        1: "1 store imported as 2",
        2: "2 stores imported as 2 and 3",
        3: "3 stores imported as 2 to 4",
    }[len(rows)]


@pytest.mark.parametrize(("data", "expected"), IMPORTED)
def test_an_import_adds_every_row(
    tmp_path: Path, database: Sqlite, data: bytes, expected: list[tuple[str, str | None]]
) -> None:
    fill_with(database, [Payload("There before")])
    (tmp_path / "stores.csv").write_bytes(data)
    done = command("import", database, "--add", str(tmp_path / "stores.csv"))
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode() == f"{imported(expected)} into {database.path}\n"
    assert content(database) == [("There before", None), *expected]


WANTED = f"line 1 must be the header {','.join(fields(''))}"

REFUSED: list[tuple[bytes, list[str], str]] = [
    (b"", [], "line 1 must be the header name,address; it is empty; nothing was imported"),
    (b"\n", [], f"{WANTED}; it is empty"),
    (b"A,1 Road\n", [], f"{WANTED}; it is A,1 Road"),
    (b"name\nA\n", [], f"{WANTED}; it is name"),
    (b"name;address\nA;1\n", [], f"{WANTED}; it is name;address"),
    (b"name,name,address\nA,B,1\n", [], "line 1 must be the header"),
    (b'"name,address"\n"A,1"\n', [], f'{WANTED}; it is "name,address"; nothing'),
    (b'"name";"address"\n"A";"1"\n', [], f"{WANTED}: ',' expected after '\"'; nothing"),
    (b"name,address,more\nA,1,2\n", [], "line 1 must be the header"),
    (
        b"name,address\nA,1\n\xff\xfe,2\n",
        [],
        "line 3: not UTF-8: save the file as UTF-8; nothing was imported",
    ),
    (b"name,address\n" + b"A,1\n" * 9000 + b"\xe9,2\n", [], "line 9002: not UTF-8"),
    (BOM + b"name,address\nA,\xc3\n", [], "line 2: not UTF-8"),
    ("name,address\nA,1\n".encode("utf-16"), [], "line 1: not UTF-8"),
    (b'name,address\nA,1\n"B,2\nC,3\nD,4\n', [], "line 3: unexpected end of data; nothing was imported"),
    (b'name,address\nA,1\n"B"x,2\n', [], "line 3: ',' expected after '\"'"),
    (b"name,address\nA," + b"x" * (2**20 + 1) + b"\n", [], "line 2: field larger than field limit (1048576)"),
    (
        b"name,address\nA\nB,1,2\nC,3\n",
        [":2: 1 cells instead of 2", ":3: 3 cells instead of 2"],
        "2 of 3 rows are invalid",
    ),
    (
        b'name,address\n"A\nA","1\n\n2"\n,3\nC,4\n"' + b"x" * 31 + b'","5\n6"\nD\0,7\n,"\0"\n',
        [
            ':6: "name" is required',
            ':8: "name" length must be less than or equal to 30 characters long',
            ':10: "name" must not contain null characters',
            ':11: "name" is required. "address" must not contain null characters',
        ],
        "4 of 6 rows are invalid: correct them and import again; nothing was imported into {database}",
    ),
    (b'name,address\nA,1\n"B\n\xff",2\n', [], "line 4: not UTF-8"),
    (b"name,address\r\nA,1\r\n,2\r\n", [':3: "name" is required'], "1 of 2 rows are invalid"),
    (b"name,address\n" + b"A,1\n" * 2000 + b",2\n", [':2002: "name" is required'], "1 of 2001 rows are invalid"),
]


@pytest.mark.parametrize(("data", "listed", "message"), REFUSED)
def test_a_file_with_faults_is_not_imported_and_all_are_listed(
    tmp_path: Path, database: Sqlite, data: bytes, listed: list[str], message: str
) -> None:
    fill_with(database, [Payload("There before")])
    file = tmp_path / "stores.csv"
    file.write_bytes(data)
    lines = refused(command("import", database, str(file)))
    assert lines[:-1] == [f"{file}{line}" for line in listed]
    assert lines[-1].startswith(f"storekeeper: {file}: {message.format(database=database.path)}")
    assert content(database) == [("There before", None)]


@pytest.mark.parametrize("what", ["missing", "folder"])
def test_a_file_that_cannot_be_read_is_named_and_makes_no_database(tmp_path: Path, what: str) -> None:
    database = Sqlite(tmp_path)
    file = tmp_path if what == "folder" else tmp_path / "missing.csv"
    [line] = refused(command("import", database, str(file)))
    reason = "Is a directory" if what == "folder" else "No such file or directory"
    assert line == f"storekeeper: cannot read {file}: {reason}"
    assert not database.path.exists()


def test_an_import_reads_from_a_pipe(database: Sqlite) -> None:
    done = command("import", database, "/dev/stdin", stdin=b"name,address\nA,1\n")
    new = f"the new database {database.path}; start the service with the same --database"
    assert done.stderr.decode() == f"1 store imported as 1 into {new}\n"
    assert content(database) == [("A", "1")]
    lines = refused(command("import", database, "/dev/stdin", stdin=b"name,address\nA,\xff\n"))
    mend = ": save the file as UTF-8"
    assert lines == [f"storekeeper: /dev/stdin: line 2: not UTF-8{mend}; nothing was imported into {database.path}"]


HEADERS = [
    (b"a," * 1_000_000, "a," * 40 + "…"),
    (b"x" * 200, "x" * 80 + "…"),
    ("name,\x1b[2J\x07\x9b,address".encode(), r"name,\x1b[2J\x07\x9b,address"),
    ("name,\u202egnp,address".encode(), r"name,\u202egnp,address"),
    (b'name,"two\nlines",address', "name,two lines,address"),
]


@pytest.mark.parametrize(("header", "text"), HEADERS, ids=["many", "long", "escapes", "backwards", "two lines"])
def test_a_strange_header_is_shown_in_a_line_that_can_be_printed(
    capsys: pytest.CaptureFixture[str], header: bytes, text: str
) -> None:
    file = io.StringIO(header.decode() + "\n", newline="")
    with pytest.raises(csvfile.BadFile) as error:
        csvfile.Import(file, lambda *_: None)
    cli._report_failure(str(error.value))
    assert capsys.readouterr().err == f"storekeeper: {WANTED}; it is {text}\n"


def test_no_name_of_a_file_gives_orders_to_a_terminal(tmp_path: Path) -> None:
    """Nor does it make two lines of one."""
    database = Sqlite(tmp_path)
    file = tmp_path / "\x1b[2J\n\x07.csv"
    [line] = refused(command("import", database, str(file)))
    assert line == f"storekeeper: cannot read {tmp_path}/\\x1b[2J \\x07.csv: No such file or directory"
    file.write_text("name,address\n,1\n")
    bad, line = refused(command("import", database, str(file)))
    assert line.isprintable()
    assert bad == f'{tmp_path}/\\x1b[2J \\x07.csv:2: "name" is required'


def test_an_import_may_be_larger_than_memory(tmp_path: Path, database: Sqlite) -> None:
    mib = 2**20
    rows = 30_000
    with (tmp_path / "stores.csv").open("w") as file:
        file.write("name,address\n")
        file.writelines(f"Large,{'x' * 5000}\n" for _ in range(rows))
    process = start("import", "--database", database.url, str(tmp_path / "stores.csv"))
    peak = 0
    while process.poll() is None:
        with suppress(OSError, IndexError):  # it ends just now
            peak = max(peak, memory(process.pid))
        time.sleep(0.01)
    assert process.returncode == 0
    assert 20 * mib < peak < 125 * mib < (tmp_path / "stores.csv").stat().st_size


def test_an_import_beside_a_busy_service_disturbs_nobody(tmp_path: Path) -> None:
    (tmp_path / "stores.csv").write_text("name,address\n" + "Imported,1 Road\n" * 10_000)
    database = Sqlite(tmp_path)
    with serving(tmp_path, "--workers", "2") as service:
        stop = threading.Event()
        created: list[int] = []

        def client() -> None:
            while not stop.is_set():
                response = service.request("POST", "/api/stores", {"name": "Created"})
                assert response.status == 200
                created.append(response.json["id"])

        clients = [threading.Thread(target=client) for _ in range(6)]
        for thread in clients:
            thread.start()
        until(lambda: created)
        done = command("import", database, str(tmp_path / "stores.csv"))
        stop.set()
        for thread in clients:
            thread.join()
        assert done.returncode == 0
        listed = service.request("GET", "/api/stores").json
        assert [store["id"] for store in listed] == list(range(1, 10_001 + len(created)))
        assert {store["id"] for store in listed if store["name"] == "Created"} == set(created)
        imported = [store["id"] for store in listed if store["name"] == "Imported"]
        assert imported == list(range(imported[0], imported[0] + 10_000)), "not together"
        told = f"10000 stores imported as {imported[0]} to {imported[-1]} into {database.path}\n"
        assert done.stderr.decode() == told


def test_an_export_is_not_imported_where_there_are_stores_unless_it_is_asked_for(database: Sqlite) -> None:
    """It would double the list, and nothing deletes a store."""
    fill_with(database, [Payload("A"), Payload("B")])
    export = command("export", database).stdout
    [line] = refused(command("import", database, "-", stdin=export))
    assert line == (
        f"storekeeper: - has a column of ids, as an export has, and {database.path} has stores: nothing was imported;"
        " with --add, the rows become new stores, which cannot be deleted"
    )
    assert content(database) == [("A", None), ("B", None)]
    done = command("import", database, "--add", "-", stdin=export)
    added = f"2 stores imported as 3 and 4 into {database.path}; the file had other ids\n"
    assert (done.returncode, done.stderr.decode()) == (0, added)
    assert len(content(database)) == 4
    done = command("import", database, "--add", "-", stdin=b"id,name,address\n5,E,\n6,F,\n")
    assert done.stderr.decode() == f"2 stores imported as 5 and 6 into {database.path}\n"


def test_an_export_is_not_imported_beside_the_first_stores_of_somebody_else(
    database: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if these come while the file is read."""
    payloads = csvfile.Import.payloads

    def read(*arguments: Any) -> Iterator[Payload]:
        yield from payloads(*arguments)
        fill_with(database, [Payload("Other")])

    monkeypatch.setattr(csvfile.Import, "payloads", read)
    [line] = refused(command("import", database, "-", stdin=b"id,name,address\n1,A,\n"))
    assert "- has a column of ids, as an export has" in line
    assert content(database) == [("Other", None)]


@pytest.mark.parametrize("rows", [b"", b",New,\n,New,\n", b",New,\n,,bad\nx,New,\n"])
def test_a_column_of_ids_makes_a_file_an_export_whatever_is_in_it(database: Sqlite, rows: bytes) -> None:
    fill_with(database, [Payload("A")])
    [line] = refused(command("import", database, "-", stdin=b"id,name,address\n" + rows))
    assert "- has a column of ids, as an export has" in line
    assert content(database) == [("A", None)]


@pytest.mark.parametrize(("ids", "told"), [("12", ""), ("79", "; the file had other ids")])
def test_an_export_is_imported_into_an_empty_database_and_other_ids_are_told(
    database: Sqlite, ids: str, told: str
) -> None:
    fill_with(database, [])
    data = f"id,name,address\n{ids[0]},A,\n{ids[1]},B,\n".encode()
    done = command("import", database, "-", stdin=data)
    assert done.stderr.decode() == f"2 stores imported as 1 and 2 into {database.path}{told}\n"
    assert content(database) == [("A", None), ("B", None)]


def test_a_header_that_is_wrong_makes_no_database_and_bad_rows_tell_of_the_one_they_made(database: Sqlite) -> None:
    [line] = refused(command("import", database, "-", stdin=b"name\nA\n"))
    assert not database.path.exists()
    *_, line = refused(command("import", database, "-", stdin=b"name,address\n,1\n"))
    told = f"nothing was imported into the new database {database.path}"
    assert line == f"storekeeper: -: 1 of 1 rows are invalid: correct them and import again; {told}"


def test_a_file_without_a_second_line_does_not_fill_the_memory(tmp_path: Path) -> None:
    database = Sqlite(tmp_path)
    [line] = refused(command("import", database, "/dev/zero"))
    assert "line 1: longer than 4,194,304 characters; nothing was imported" in line


@pytest.mark.parametrize("source", ["-", "/dev/stdin"])
def test_an_import_that_waits_for_its_source_can_be_interrupted(tmp_path: Path, source: str) -> None:
    database = Sqlite(tmp_path)
    fill_with(database, [Payload("There before")])
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", buffering=0) as feeding, TemporaryFile() as said:
        with os.fdopen(reading, "rb") as pipe:
            process = start("import", "--database", database.url, source, stdin=pipe, stderr=said)
        feeding.write(b"name,address\r\nA,\r\n")
        while int.from_bytes(fcntl.ioctl(feeding, termios.FIONREAD, bytes(4)), sys.byteorder):
            time.sleep(0.01)  # it has not begun to read
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        said.seek(0)
        assert said.read().decode() == f"Interrupted: nothing was imported into {database.path}\n"
    assert content(database) == [("There before", None)]


def test_an_import_to_a_full_disk_is_refused_whole(tmp_path: Path) -> None:
    (tmp_path / "stores.csv").write_text("name,address\n" + f"Imported,{'x' * 1000}\n" * 3000)
    with mounted(tmp_path / "disk", "size=2m") as disk:
        database = Sqlite(disk)
        fill_with(database, [Payload("There before")])
        fill_disk(disk / "filler")
        (disk / "filler").write_bytes(b"")
        [line] = refused(command("import", database, str(tmp_path / "stores.csv")))
        assert line == f"storekeeper: {database.path}: The disk is full; nothing was imported"
        assert content(database) == [("There before", None)]


def test_an_import_into_a_damaged_database_is_refused_in_one_line(tmp_path: Path) -> None:
    database = Sqlite(tmp_path)
    fill_with(database, [Payload("There before", "x" * 100)] * 2500)
    with database.path.open("r+b") as file:
        file.seek(20 * 4096)
        file.write(b"\xff" * (database.path.stat().st_size - file.tell()))
    [line] = refused(command("import", database, "-", stdin=b"name,address\nA,\n"))
    reason = "The database is damaged: database disk image is malformed"
    assert line == f"storekeeper: {database.path}: {reason}; it is unknown whether the stores were imported"


def test_an_import_whose_temporary_folder_is_full_is_refused_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "stores.csv").write_text("name,address\n" + f"Imported,{'x' * 1000}\n" * 4000)
    database = Sqlite(tmp_path)
    fill_with(database, [Payload("There before")])
    with mounted(tmp_path / "temporary", "size=1m") as full:
        arguments = ["--database", database.url, str(tmp_path / "stores.csv")]
        done = run_process("import", *arguments, env={"TMPDIR": str(full)})
        reason = "The disk with the folder of temporary files is full (TMPDIR names another); nothing was imported"
        assert refused(done) == [f"storekeeper: {database.path}: {reason}"]
    assert content(database) == [("There before", None)]

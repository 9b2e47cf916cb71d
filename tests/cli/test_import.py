"""`import`: every row or none, what is refused and how that is said, what it waits for."""

import fcntl
import os
import shlex
import signal
import sys
import termios
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from storekeeper.cli import import_review
from storekeeper.domain.intake import SheetRow
from storekeeper.domain.stores import Payload
from storekeeper.sheets.reading import Reading
from tests import ROOT
from tests.harness.client import until
from tests.harness.command import Done, run_on_terminal
from tests.harness.databases import Sqlite
from tests.harness.linux import memory
from tests.harness.machine import fill_disk, mounted
from tests.harness.process import refused, serving, start
from tests.harness.process import run as run_process
from tests.harness.transfers import command, content, fill_with

BOM = b"\xef\xbb\xbf"
Rows = list[tuple[str, str | None]]


@pytest.fixture
def database(tmp_path: Path) -> Sqlite:
    """A database that is not there yet."""
    return Sqlite(tmp_path)


IMPORTED: list[tuple[bytes, Rows]] = [
    (b"name,address\nA,1 Road\nB,\n", [("A", "1 Road"), ("B", None)]),
    (b"name,address\nA,1 Road", [("A", "1 Road")]),
    (b"address,name\n1 Road,A\n", [("A", "1 Road")]),
    (b"name\nA\n", [("A", None)]),
    (b"id,name,address\n,A,1 Road\n,B,\n", [("A", "1 Road"), ("B", None)]),
    (b'name,address\n12" Pizza,1\n"Joe"s Diner",2\n', [('12" Pizza', "1"), ('Joe"s Diner', "2")]),
    (BOM + b'"name","address"\r\nA,1 Road\r\n', [("A", "1 Road")]),
    (b" Name , ADDRESS\nA,1 Road\n", [("A", "1 Road")]),
    (b"name,address\n\nA,1\n\n\nB,2\n\n", [("A", "1"), ("B", "2")]),
    (b'name,address\n"A, ""x""","1\nRoad\r\nTown"\n', [('A, "x"', "1\nRoad\r\nTown")]),
    ("name,address\n店舗,Zürich\n".encode(), [("店舗", "Zürich")]),
    (b"name,address\n A , \n", [("A", None)]),
    (b"name,address\n", []),
]


@pytest.mark.parametrize(("data", "expected"), IMPORTED)
def test_an_import_adds_every_row(
    tmp_path: Path, database: Sqlite, data: bytes, expected: Rows
) -> None:
    fill_with(database, [Payload("There before")])
    (tmp_path / "stores.csv").write_bytes(data)
    done = command("import", database, "--add", str(tmp_path / "stores.csv"))
    assert (done.returncode, done.stderr) == (0, b"")
    assert said(done, database).startswith(
        f"{created(len(expected))}, 0 replaced, 0 unchanged in DATABASE; version 1."
    )
    assert content(database) == [("There before", None), *expected]


def created(count: int) -> str:
    """Return what an import says about new stores after one store."""
    ids = {0: "", 1: " as 2"}.get(count, f" as 2 to {count + 1}")
    return f"{count} store{'s' * (count != 1)} created{ids}"


def said(done: Done, database: Sqlite) -> str:
    """Return the only line that a command has printed, without the path of its database."""
    [line] = done.said.splitlines()
    return line.replace(str(database.path), "DATABASE")


REFUSED: list[tuple[bytes, list[str], str]] = [
    (b"", [], "the file is empty; nothing was imported into DATABASE"),
    (
        b"A,1 Road\n",
        [],
        (
            "say which columns are name and address; no row names the columns; the first is A,"
            " 1 Road:"
            " repeat with --header-row none --map name=1 --map address=2; nothing"
        ),
    ),
    (
        b"name,name,address\nA,B,1\n",
        [],
        (
            "say which columns are name and address; the columns are name, name (2), address:"
            " repeat with"
            " --map name=name --map address=address; nothing"
        ),
    ),
    (
        b"name,address\nA,1\nCaf\xe9,2\n",
        [],
        'line 3: not UTF-8, but perhaps another encoding (cp1252 reads "Café,2", cp1250',
    ),
    (b"name,address\n" + b"A,1\n" * 9000 + b"\xe9,2\n", [], "line 9002: not UTF-8"),
    (BOM + b"name,address\nA,\xc3\n", [], "line 2: not UTF-8"),
    (
        b'name,address\nA,1\n"B,2\nC,3\nD,4\n',
        ["1 row has a quotation mark that is not closed: line 3"],
        (
            "Nothing was imported into DATABASE: of 4 rows, 1 bad; fix the file, or repeat with"
            " --skip-bad"
        ),
    ),
    (
        b"name,address\nA," + b"x" * (2**20 + 1) + b"\n",
        [],
        "line 2: field larger than field limit (1048576)",
    ),
    (
        b"name,address\nA\nB,1,2\nC,3,\n",
        ["1 row has another number of cells than the header: line 3"],
        (
            "Nothing was imported into DATABASE: of 3 rows, 1 bad; fix the file, or repeat with"
            " --skip-bad"
        ),
    ),
    (
        b'name,address\n"A\nA","1\n\n2"\n,3\nC,4\n"' + b"x" * 31 + b'","5\n6"\nD\0,7\n,"\0"\n',
        [],
        "neither CSV, XLSX nor JSON lines: save it as one of these",
    ),
    (
        b'name,address\n"A\nA","1\n\n2"\n,3\nC,4\n"' + b"x" * 31 + b'","5\n6"\n,8\n',
        [
            "2 names are missing: line 6, line 10",
            f"1 name has more than 30 characters: line 8 {'x' * 31!r} (31)",
        ],
        (
            "Nothing was imported into DATABASE: of 5 rows, 3 bad; fix the file, or repeat with"
            " --cut-names or"
        ),
    ),
    (
        b"name,address\n" + b"A,1\n" * 2000 + b",2\n",
        ["1 name is missing: line 2002"],
        "Nothing was imported",
    ),
]


@pytest.mark.parametrize(("data", "listed", "message"), REFUSED)
def test_a_file_with_faults_is_not_imported_and_the_faults_are_grouped(
    tmp_path: Path, database: Sqlite, data: bytes, listed: list[str], message: str
) -> None:
    fill_with(database, [Payload("There before")])
    file = tmp_path / "stores.csv"
    file.write_bytes(data)
    *lines, last = refused(command("import", database, str(file), "--add"))
    assert lines == listed
    assert last.replace(str(database.path), "DATABASE").startswith(
        f"storekeeper: {file}: {message}"
    )
    assert content(database) == [("There before", None)]


def test_a_file_that_cannot_be_read_is_named_and_makes_no_database(
    tmp_path: Path, database: Sqlite
) -> None:
    for file, reason in (
        (tmp_path, "Is a directory"),
        (tmp_path / "none.csv", "No such file or directory"),
    ):
        [line] = refused(command("import", database, str(file)))
        assert line == f"storekeeper: cannot read {file}: {reason}"
    assert not database.path.exists()


def test_an_import_reads_from_a_pipe(database: Sqlite) -> None:
    done = command("import", database, "/dev/stdin", stdin=b"name,address\nA,1\n")
    line = said(done, database)
    assert line.startswith(
        "1 store created as 1, 0 replaced, 0 unchanged in the new database DATABASE; version 0."
    )
    assert line.endswith(" now; start the service with the same --database")
    assert content(database) == [("A", "1")]
    [line] = refused(
        command("import", database, "/dev/stdin", "--add", stdin=b"name,address\nA,\xff\n")
    )
    assert line.startswith("storekeeper: /dev/stdin: line 2: not UTF-8")


def test_a_strange_header_is_shown_in_a_line_that_can_be_printed(database: Sqlite) -> None:
    for header, text, more in (
        ("a," * 10_000, "a, a, a", " and 180 more"),
        ("x" * 200, "x" * 40 + "…", ""),
        ("Name of\x1b[2J\x07\x9b,b", r"Name of\x1b[2J\x07\x9b, b", ""),
        ("\u202egnp,b", r"\u202egnp, b", ""),
        ('"two\nlines",b', "two lines, b", ""),
    ):
        [line] = refused(command("import", database, "-", stdin=f"{header}\n".encode()))
        assert line.isprintable()
        assert f"no row names the columns; the first is {text}" in line
        assert more in line
        assert len(line) < 1000


def test_no_name_of_a_file_gives_orders_to_a_terminal(tmp_path: Path, database: Sqlite) -> None:
    """Nor does it make two lines of one."""
    file = tmp_path / "\x1b[2J\n\x07.csv"
    [line] = refused(command("import", database, str(file)))
    assert (
        line == f"storekeeper: cannot read {tmp_path}/\\x1b[2J \\x07.csv: No such file or directory"
    )
    file.write_text("name,address\n,1\n")
    bad, line = refused(command("import", database, str(file)))
    assert line.isprintable()
    assert bad == "1 name is missing: line 2"


def test_an_import_may_be_larger_than_memory(tmp_path: Path, database: Sqlite) -> None:
    mib = 2**20
    with (tmp_path / "stores.csv").open("w") as file:
        file.write("name,address\n")
        file.writelines(f"Large,{'x' * 100_000}\n" for _ in range(1350))
    process = start("import", "--create", "--database", database.url, str(tmp_path / "stores.csv"))
    peak = 0
    while process.poll() is None:
        with suppress(OSError, IndexError):  # it ends just now
            peak = max(peak, memory(process.pid))
        time.sleep(0.01)
    assert process.returncode == 0
    assert 20 * mib < peak < 125 * mib < (tmp_path / "stores.csv").stat().st_size


def test_an_import_beside_a_busy_service_disturbs_nobody(tmp_path: Path, database: Sqlite) -> None:
    (tmp_path / "stores.csv").write_text("name,address\n" + "Imported,1 Road\n" * 3000)
    with serving(tmp_path, "--workers", "2") as service:
        stop = threading.Event()
        created: list[int] = []

        def client() -> None:
            while not stop.is_set():
                response = service.request("POST", "/api/stores", {"name": "Created"})
                assert response.status == 200
                created.append(response.json["id"])

        with ThreadPoolExecutor(6) as pool:
            clients = [pool.submit(client) for _ in range(6)]
            until(lambda: created)
            done = command("import", database, str(tmp_path / "stores.csv"), "--add", "--yes")
            stop.set()
            assert [each.result() for each in clients] == [None] * 6
    names = [name for name, _ in content(database)]
    assert {id for id, name in enumerate(names, 1) if name == "Created"} == set(created)
    first = 1 + names.index("Imported")
    assert names[first - 1 : first + 2999] == ["Imported"] * 3000, "not together"
    assert said(done, database).startswith(
        f"3,000 stores created as {first} to {first + 2999}, 0 replaced"
    )


NEEDS_MATCH = (
    "storekeeper: {database}: it has stores: say which of them the rows mean, with --match id,"
    " --match name or"
    " --match COLUMN (the key that another system has for a store), or that all rows are new"
    " stores, with --add;"
    " nothing was imported"
)


def test_a_list_with_stores_is_not_added_to_unless_it_is_asked_for(database: Sqlite) -> None:
    """It would double the list, and nothing deletes a store."""
    fill_with(database, [Payload("A"), Payload("B")])
    for text in (b"name\nA\n", b"id,name\n"):
        [line] = refused(command("import", database, "-", stdin=text))
        assert line == NEEDS_MATCH.format(database=database.path)
    [line] = refused(command("import", database, "-", stdin=b"id,name\n1,A\n"))
    assert 'apart, "key:id" or "id" or "name", or' in line
    assert "repeat with --match key:id; nothing" in line
    assert content(database) == [("A", None), ("B", None)]


def test_first_stores_of_somebody_else_that_come_while_the_file_is_read_are_seen(
    database: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_with(database, [])
    read = Reading.__iter__

    def slowly(rows: Reading) -> Iterator[SheetRow]:
        yield from read(rows)
        fill_with(database, [Payload("Other")])

    monkeypatch.setattr(Reading, "__iter__", slowly)
    [line] = refused(command("import", database, "-", stdin=b"name,address\nA,\n"))
    assert line == NEEDS_MATCH.format(database=database.path)
    assert content(database) == [("Other", None)]


def test_a_refused_import_leaves_no_new_database(database: Sqlite) -> None:
    [line] = refused(command("import", database, "-", stdin=b"Store\nA\n"))
    assert "nothing was imported" in line
    *_, line = refused(command("import", database, "-", stdin=b"name,address\n,1\n"))
    where = f"into the new database {database.path}"
    remedy = "fix the file, or repeat with --skip-bad"
    assert line == f"storekeeper: -: Nothing was imported {where}: of 1 row, 1 bad; {remedy}"
    assert list(database.path.parent.iterdir()) == []
    assert "1 store created as 1" in said(
        command("import", database, "-", stdin=b"name\nA\n"), database
    )
    assert content(database) == [("A", None)]


def test_a_list_that_somebody_begins_meanwhile_is_not_imported_into(
    database: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Reading.__iter__

    def slowly(rows: Reading) -> Iterator[SheetRow]:
        yield from read(rows)
        fill_with(database, [Payload("Other")])

    monkeypatch.setattr(Reading, "__iter__", slowly)
    [line] = refused(command("import", database, "-", stdin=b"name\nA\n"))
    assert line.startswith(f"storekeeper: {database.path}: there is a file of that name")
    assert content(database) == [("Other", None)]
    assert [each.name for each in database.path.parent.iterdir()] == [database.path.name]


def test_a_file_without_a_second_line_does_not_fill_the_memory(
    tmp_path: Path, database: Sqlite
) -> None:
    (tmp_path / "long.csv").write_text("name,address\nA," + "x" * 5_000_000)
    [line] = refused(command("import", database, str(tmp_path / "long.csv")))
    assert "line 2: longer than 4,194,304 characters; nothing was imported" in line
    [line] = refused(command("import", database, "/dev/zero"))
    assert "neither CSV, XLSX nor JSON lines" in line


def test_an_import_from_standard_input_takes_a_file_there(database: Sqlite, tmp_path: Path) -> None:
    (tmp_path / "stores.csv").write_text("name,address\nA,1\n")
    with (tmp_path / "stores.csv").open("rb") as file:
        process = start("import", "--create", "--database", database.url, "-", stdin=file)
    assert process.wait(30) == 0
    assert content(database) == [("A", "1")]


@pytest.mark.parametrize("source", ["-", "/dev/stdin"])
def test_an_import_that_waits_for_its_source_can_be_interrupted(
    database: Sqlite, source: str
) -> None:
    fill_with(database, [Payload("There before")])
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", buffering=0) as feeding, TemporaryFile() as said:
        with os.fdopen(reading, "rb") as pipe:
            process = start(
                "import", "--create", "--database", database.url, source, stdin=pipe, stderr=said
            )
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
        [line] = refused(
            command("import", database, str(tmp_path / "stores.csv"), "--add", "--yes")
        )
        assert line == f"storekeeper: {database.path}: The disk is full; nothing was imported"
        assert content(database) == [("There before", None)]


def test_an_import_into_a_damaged_database_is_refused_in_one_line(database: Sqlite) -> None:
    fill_with(database, [Payload("There before", "x" * 100)] * 2500)
    with database.path.open("r+b") as file:
        file.seek(20 * 4096)
        file.write(b"\xff" * (database.path.stat().st_size - file.tell()))
    [line] = refused(command("import", database, "-", stdin=b"name,address\nA,\n"))
    reason = "The database is damaged: database disk image is malformed"
    assert (
        line
        == f"storekeeper: {database.path}: {reason}; it is unknown whether the stores were imported"
    )


def test_an_import_whose_temporary_folder_is_full_is_refused_and_says_so(
    tmp_path: Path, database: Sqlite
) -> None:
    (tmp_path / "stores.csv").write_text("name,address\n" + f"Imported,{'x' * 1000}\n" * 4000)
    fill_with(database, [Payload("There before")])
    with mounted(tmp_path / "temporary", "size=1m") as full:
        arguments = ["--add", "--yes", "--database", database.url, str(tmp_path / "stores.csv")]
        done = run_process("import", *arguments, env={"TMPDIR": str(full)})
        reason = (
            "The disk with the folder of temporary files is full (TMPDIR names another);"
            " nothing was imported"
        )
        assert refused(done) == [f"storekeeper: {database.path}: {reason}"]
    assert content(database) == [("There before", None)]


COFFEE = "Store Number,Store Name,Street Address,City,Postcode\n" + "".join(
    f"{number},{'A name that is rather too long: ' if number % 12 == 0 else 'Store '}{number},"
    f"{number} Road,Town,\n"
    for number in range(1, 2001)
)
MAPPED = (
    "--match=Store Number",
    "--map=name=Store Name",
    "--map=address={Street Address}, {City} {Postcode}",
)


def test_a_long_list_with_names_that_are_too_long_is_told_in_few_lines_and_imported_in_any_way(
    tmp_path: Path, database: Sqlite
) -> None:
    file, rejects = tmp_path / "coffee.csv", tmp_path / "rejects.csv"
    file.write_text(COFFEE)
    groups, line = refused(command("import", database, str(file), *MAPPED))
    assert groups == (
        "166 names have more than 30 characters: line 13 'A name that is rather too long: 12'"
        " (34), line 25 'A name"
        " that is rather too long: 24' (34), line 37 'A name that is rather too long: 36' (34),"
        " and 163 more"
    )
    assert (
        ": of 2,000 rows, 166 bad; fix the file, or repeat with --cut-names or --skip-bad" in line
    )
    done = command("import", database, str(file), *MAPPED, "--rejects", str(rejects))
    assert (
        "1,834 stores created as 1 to 1834, 0 replaced, 0 unchanged, 166 bad, skipped" in done.said
    )
    rejected = rejects.read_text(encoding="utf-8-sig").splitlines()
    assert rejects.read_bytes().startswith(BOM)
    assert len(rejected) == 167
    assert rejected[0] == "Store Number,Store Name,Street Address,City,Postcode,problem"
    assert rejected[1].startswith("12,A name that is rather too long: 12,12 Road,Town,,")
    fixed = rejects.read_text(encoding="utf-8-sig").replace(
        "A name that is rather too long: ", "Short "
    )
    rejects.write_text(fixed, encoding="utf-8-sig")
    done = command("import", database, str(rejects), *MAPPED, "--yes")
    assert "Ignored columns: problem" in done.said
    assert "166 stores created as 1835 to 2000" in done.said
    again = command("import", database, str(file), *MAPPED, "--cut-names", "--dry-run")
    assert "166 names were cut: line 13" in again.said
    assert "0 stores created, 166 replaced, 1,834 unchanged" in again.said
    assert content(database)[0] == ("Store 1", "1 Road, Town")


def test_many_new_stores_in_a_list_with_stores_are_asked_for_or_said(
    tmp_path: Path, database: Sqlite
) -> None:
    fill_with(database, [Payload("There before")])
    file = tmp_path / "stores.csv"
    file.write_text("name\n" + "New\n" * 11)
    [line] = refused(command("import", database, "--add", str(file)))
    adds = "adds 11 stores, which cannot be deleted, to a list of"
    assert (
        line == f"storekeeper: the import {adds} 1: repeat with --yes to allow that; nothing was"
        " imported"
    )
    for typed, status, count in ((b"n\n", 2, 1), (b"\n", 2, 1), (b"y\n", 0, 12)):
        done = run_on_terminal(
            "import", "--create", "--database", database.url, "--add", str(file), typed=typed
        )
        assert done.returncode == status
        assert f"The import {adds} 1. Continue? [y/N]".encode() in done.stderr
        assert len(content(database)) == count
    assert command("import", database, "--add", "--yes", str(file)).returncode == 0


def test_a_first_list_that_others_begin_meanwhile_is_not_added_to_unasked(
    tmp_path: Path, database: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is the user asked then: the import has the lock of all writers."""
    fill_with(database, [])
    (tmp_path / "stores.csv").write_text(
        "name\n" + "".join(f"New {number}\n" for number in range(11))
    )
    monkeypatch.setattr(import_review, "tell", lambda _: fill_with(database, [Payload("Other")]))
    done = command("import", database, "--match", "name", str(tmp_path / "stores.csv"))
    [line] = refused(done)
    assert line.endswith(
        "to a list of 1, because other clients wrote meanwhile: repeat it; nothing was imported"
    )
    assert content(database) == [("Other", None)]


def test_a_dry_run_into_no_database_makes_none(tmp_path: Path, database: Sqlite) -> None:
    file = tmp_path / "stores.csv"
    rows = [f"New{number or ''},1 Road,7\n" for number in range(20)]
    file.write_text("name,address,Fax\n" + "".join(rows))
    done = command("import", database, "--dry-run", str(file))
    ignored, lost, *lines = done.said.splitlines()
    assert (ignored, lost) == ("Ignored columns: Fax", import_review.NO_KEYS)
    assert (done.returncode, lines[0]) == (0, "line 2: 1 new → 'New', '1 Road'")
    assert lines[-2] == "and 12 more"
    assert lines[-1].startswith(
        "Dry run: 20 stores created as 1 to 20, 0 replaced, 0 unchanged if imported into the new"
    )
    assert not database.path.exists()
    assert refused(command("import", database, "--match", "id", "--add", str(file)))
    assert (
        "--map: each of id, name"
        in refused(command("import", database, "--map", "x=1", str(file)))[0]
    )


TITLED = (
    "Filialen, Stand 12. 11.;;;\r\n;;;\r\nalle Länder;;;\r\nFiliale;Straße;Ort;Telefon\r\n"
    "Nord;Am Tor 1;Köln;022\r\n"
)


def test_titles_above_the_columns_are_no_rows_and_rejects_need_no_options(
    tmp_path: Path, database: Sqlite
) -> None:
    file, rejects = tmp_path / "titled.csv", tmp_path / "rejects.csv"
    file.write_bytes((TITLED + ";Weg 2;Düren;\r\n").encode("cp1252"))
    [line] = refused(command("import", database, str(file), "--encoding=cp1252"))
    assert "the columns are Filiale, Straße, Ort, Telefon: repeat with --map name=Filiale" in line
    assert '--map address="{Straße}, {Ort}"; nothing' in line
    options = (
        "--encoding=cp1252",
        "--map=name=Filiale",
        "--map=address={Straße}, {Ort}",
        "--match=Filiale",
    )
    done = command("import", database, str(file), *options, "--rejects", str(rejects))
    assert done.returncode == 0
    told = done.stderr.decode()
    assert "1 Filiale is missing: line 6" in told
    assert "Rows 1 to 3 are above the names of the columns, so not imported: " in told
    fixed = rejects.read_text(encoding="utf-8-sig").splitlines()
    assert fixed == [
        "Filiale,Straße,Ort,Telefon,problem",
        ',Weg 2,Düren,,"""name"" is required. ""Filiale"" is required"',
    ]
    rejects.write_text(f"{fixed[0]}\nSüd{fixed[1]}\n", encoding="utf-8-sig")
    assert command("import", database, str(rejects), *options).returncode == 0
    assert content(database) == [("Nord", "Am Tor 1, Köln"), ("Süd", "Weg 2, Düren")]


def test_a_file_whose_columns_are_not_found_below_its_titles_is_refused_with_the_first(
    database: Sqlite,
) -> None:
    for lines in (["Stores"] * 20 + ["name,address"], ["Stores", "A", "B"], ["Stores"]):
        [line] = refused(command("import", database, "-", stdin="\n".join(lines).encode()))
        assert "say which columns are name and address; " in line
        assert "Stores" in line


def test_a_look_prints_the_line_that_imports_the_file(database: Sqlite) -> None:
    file = ROOT / "tests" / "sheets" / "files" / "10c-german-title.csv"
    look = command("import", database, str(file), "--look").stdout.decode()
    assert look.startswith(
        "csv, 20 rows, encoding cp1252, semicolon between cells, header in row 3"
    )
    [latin] = [line for line in look.splitlines() if "Bäckerei Größe 0;" in line]
    assert latin.startswith("perhaps cp1252 or cp1254 or ")
    assert not database.path.exists()
    [line] = refused(command("import", database, str(file)))
    for said in (look, line):
        assert "--encoding cp1252" in said
        assert '--map name=Filialname --map address="{Straße}, {PLZ} {Ort}"' in said
    options = shlex.split(look.rpartition("import with: ")[2])
    assert command("import", database, str(file), *options).returncode == 0
    assert content(database)[0] == ("Bäckerei Größe 0", "Königsallee 0, 01067 Düsseldorf")


def test_a_first_nightly_file_adopts_the_stores_that_are_like_its_rows(database: Sqlite) -> None:
    """Otherwise each store of a list that was kept by hand would be there twice."""
    fill_with(database, [Payload("Harbour", "1 Quay"), Payload("Mill"), Payload("Twin")])
    rows = b"Number,name,address\n7, harbour ,1  QUAY\n8,New,\n"
    of = ("import", database, "-", "--match", "key:Number")
    done = command(*of, "--adopt", "--dry-run", stdin=rows)
    assert done.returncode == 0
    assert content(database) == [("Harbour", "1 Quay"), ("Mill", None), ("Twin", None)]
    done = command(*of, "--adopt", stdin=rows)
    assert b"1 store created as 4, 1 replaced, 1 of them with a new key" in done.stdout
    after = [("Harbour", "1 Quay"), ("Mill", None), ("Twin", None), ("New", None)]
    assert content(database) == after
    assert b"0 stores created, 0 replaced, 2 unchanged" in command(*of, stdin=rows).stdout
    both = b"Number,name\n20,Mill\n21,mill\n"
    lines = command(*of, "--adopt", stdin=both)
    assert lines.returncode == 2
    assert b"nothing was imported" in lines.stderr.lower()
    assert content(database) == after


def test_stores_that_are_matched_by_id_get_the_keys_of_a_column(database: Sqlite) -> None:
    fill_with(database, [Payload("Harbour"), Payload("Mill")])
    rows = b"id,name,Number\n1,Harbour,7\n2,Mill,8\n"
    done = command("import", database, "-", "--match", "id", "--attach", "Number", stdin=rows)
    assert b"0 stores created, 2 replaced" in done.stdout
    by_key = b"Number,name\n8,Old Mill\n"
    done = command("import", database, "-", "--match", "key:Number", stdin=by_key)
    assert b"0 stores created, 1 replaced" in done.stdout
    taken = b"id,name,Number\n1,Harbour,8\n"
    of = ("import", database, "-", "--match", "id", "--attach")
    assert b"8" in command(*of, "Number", stdin=taken).stderr
    [line] = refused(command(*of, "Nowhere", stdin=rows))
    assert "Nowhere" in line
    assert content(database) == [("Harbour", None), ("Old Mill", None)]

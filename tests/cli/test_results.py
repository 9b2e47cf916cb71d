"""Results are on stdout, notes on stderr; with --json a result is one object, as documented."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from jsonschema import Draft202012Validator

from storekeeper import cli
from storekeeper.api.routes import docs
from storekeeper.cli import tokens
from storekeeper.cli.results import RESULTS
from tests.harness.command import Done, run
from tests.harness.databases import Sqlite
from tests.harness.process import free_port

SCHEMAS = json.loads(docs.encoded_document())["components"]["schemas"]
SHEET = (
    "id,name,address\n1,Harbour,1 Quay Road\n,Station,\n,A name that is much too long for one,\n"
)
IMPORT = ["--match=id", "--skip-bad"]
IGNORED = "1 name has more than 30 characters: line 4"
SETTLED = "Token ci is revoked: within 0 s, requests with it are refused"


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "SETTLE_DELAY", 0)


@pytest.fixture
def database(tmp_path: Path) -> Sqlite:
    (tmp_path / "sheet.csv").write_text(SHEET)
    return Sqlite(tmp_path)


def reporting(database: Sqlite) -> Iterator[tuple[str, list[str], str, str]]:
    """Yield what to run on one list after the other: the command, its arguments, how its result
    begins, and its only note."""
    folder = database.path.parent
    sheet, backup = str(folder / "sheet.csv"), str(folder / "backup.db")
    of = ["--database", database.url]
    name = str(database.path)
    yield "create", ["--examples", *of], f"A new list with 3 example stores is in {name}", ""
    yield "token add", ["ci", "--scope=read", *of], "skt_", "Token ci may read"
    yield "token list", of, "NAME", ""
    yield "token revoke", ["ci", *of], "Requests with token ci are now", SETTLED
    yield "import", [sheet, "--look", *of], "csv, 3 rows", ""
    yield "import", [sheet, *IMPORT, "--dry-run", *of], "line 2: 1 'Main Street'", IGNORED
    yield "import", [sheet, *IMPORT, *of], "1 store created as 4, 1 replaced", IGNORED
    yield "undo", of, "FROM", ""
    first, last = imported(database)
    yield "undo", [first, last, "--dry-run", *of], "store 4 stays as it is: the import", ""
    yield "undo", [first, last, *of], "store 4 stays as it is: the import", ""
    yield "export", [str(folder / "all.csv"), *of], f"4 stores exported from {name}", ""
    yield "backup", [backup, *of], "4 stores and 6 changes of", ""
    yield "verify", [backup], f"{backup} is valid", ""
    yield "copy", [database.url, f"sqlite:///{folder}/copy.db"], "4 stores and 6 changes copied", ""
    yield "restore", [backup, *of], "4 stores and 6 changes restored", ""
    yield "epoch", of, "", ""


def imported(database: Sqlite) -> list[str]:
    """Return the cursors of the latest import."""
    listed = run("undo", "--json", "--database", database.url).stdout
    latest = json.loads(listed)["imports"][0]
    return [latest["from"], latest["to"]]


def split(command: str, args: list[str]) -> list[str]:
    return [*command.split(), *args]


def test_results_are_on_stdout_and_notes_on_stderr(database: Sqlite) -> None:
    for command, args, result, note in reporting(database):
        done = run(*split(command, args))
        assert done.returncode == 0, (command, done)
        assert done.stdout.decode().startswith(result), (command, done)
        assert done.stdout.endswith(b"\n")
        assert_noted(done, note)


def assert_noted(done: Done, note: str) -> None:
    """The notes are those expected, in any case one."""
    lines = [line for line in done.stderr.decode().splitlines() if "of the list not in" not in line]
    assert len(lines) == bool(note)
    assert all(line.startswith(note) for line in lines)


def test_with_json_a_result_is_one_object_with_the_documented_fields(database: Sqlite) -> None:
    seen = set()
    for command, args, _, note in reporting(database):
        done = run(*split(command, [*args, "--json"]))
        assert done.returncode == 0, (command, done)
        assert done.stdout.count(b"\n") == 1
        assert_noted(done, note)
        seen.add(command)
        assert_documented(command, args, json.loads(done.stdout))
    # These two ask a service; `test_ready.py` and the tests of the kit have them.
    assert seen | {"ready", "check"} == RESULTS.keys() == set(commands_with_json())


def assert_documented(command: str, args: list[str], result: Any) -> None:
    if command == "import" or (command == "undo" and not args[0].startswith("--")):
        name = "Look" if "--look" in args else {"import": "Imported", "undo": "Undone"}[command]
        schema = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": SCHEMAS}}
        Draft202012Validator(schema).validate(result)
        if name == "Imported":
            [problem] = result["problems"]
            assert problem["row"]["name"].startswith("A name"), "with the cells of the row"
            assert len(result["changes"]) == 2
        return
    [kind] = [each for each in RESULTS[command] if not isinstance(each, str)][:1]
    msgspec.convert(result, kind)
    assert list(result) == [field.encode_name for field in msgspec.structs.fields(kind)]


def commands_with_json() -> Iterator[str]:
    root: Any = typer.main.get_command(cli.app)
    for name, command in root.commands.items():
        below = getattr(command, "commands", {})
        for path, each in below.items() or [("", command)]:
            if any("--json" in parameter.opts for parameter in each.params):
                yield f"{name} {path}".strip()


def failing(database: Sqlite) -> Iterator[tuple[str, list[str]]]:
    """Yield a use of each command that is refused."""
    folder = database.path.parent
    of = ["--database", database.url]
    bad = folder / "bad.csv"
    bad.write_text("id,name\n1,\n")
    missing = f"sqlite:///{folder}/missing.db"
    yield "create", of
    yield "token add", ["ci", *of]
    yield "token list", ["--database", missing]
    yield "token revoke", ["nobody", *of]
    yield "import", [str(folder / "missing.csv"), *of]
    yield "import", [str(folder / "missing.csv"), "--look", *of]
    yield "import", [str(bad), "--match=id", *of]
    yield "undo", ["1.abcdefgh", *of]
    yield "undo", ["1.abcdefgh", "1.abcdefgh", *of]
    yield "export", [str(folder / "all.pdf"), *of]
    yield "copy", [database.url, database.url]
    yield "backup", [str(bad), *of]
    yield "verify", [str(folder / "missing.db")]
    yield "restore", [str(folder / "missing.db"), *of]
    yield "epoch", ["--database", missing]
    yield "ready", ["ftp://127.0.0.1"]
    yield "check", ["ftp://127.0.0.1"]


def test_an_error_is_one_line_on_stderr_and_nothing_on_stdout(database: Sqlite) -> None:
    assert run("create", "--database", database.url).returncode == 0
    before = database.changes()
    seen = set()
    for command, args in failing(database):
        seen.add(command)
        for more in ([], ["--json"]):
            done = run(*split(command, [*args, *more]))
            assert (done.returncode, done.stdout) == (2, b""), (command, done)
            *notes, line = done.stderr.decode().splitlines()
            assert line.startswith("storekeeper: "), command
            # Before an import is refused, it says what is wrong with the rows.
            assert not notes or "bad.csv" in line, (command, notes)
    assert seen == RESULTS.keys()
    assert database.changes() == before


def test_a_service_that_is_not_there_is_told_as_json_too() -> None:
    done = run("ready", f"http://127.0.0.1:{free_port()}", "--json")
    assert (done.returncode, done.stderr) == (1, b"")
    assert json.loads(done.stdout) | {"reason": ""} == {
        "ready": False,
        "status": None,
        "reason": "",
    }


def test_a_result_that_cannot_be_printed_is_a_note_and_for_programs_an_error(
    database: Sqlite,
) -> None:
    """A backup that was made must not look like one that failed, and nothing not like a result."""
    of = ["--database", database.url]
    assert run("create", *of).returncode == 0
    with Path("/dev/full").open("wb") as full:
        done = run("backup", str(database.path.with_name("one.db")), *of, stdout=full)
        assert (done.returncode, b"backed up into" in done.stderr) == (0, True)
        done = run("backup", str(database.path.with_name("two.db")), "--json", *of, stdout=full)
    assert done.returncode == 2
    said = b"storekeeper: done, but the result cannot be printed: No space left on device\n"
    assert done.stderr == said
    assert database.path.with_name("two.db").exists()


def test_what_is_on_stdout_already_has_no_result_beside_it(database: Sqlite) -> None:
    of = ["--database", database.url]
    sheet = str(database.path.with_name("sheet.csv"))
    assert run("create", "--examples", *of).returncode == 0
    for args in (["export", "-"], ["import", sheet, *IMPORT, "--rejects", "/dev/stdout"]):
        done = run(*args, "--json", *of)
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"storekeeper: --json: " in done.stderr
        done = run(*args, *of)
        assert done.returncode == 0, done
        assert done.stdout.count(b"\n") == (4 if "export" in args else 2)

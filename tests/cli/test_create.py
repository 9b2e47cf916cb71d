"""`create`, and `--create`: what begins a list, what is said where there is none."""

from collections.abc import Callable
from pathlib import Path

import pytest

from storekeeper.domain.errors import Missing
from storekeeper.domain.stores import EXAMPLES
from storekeeper.storage import databases
from tests.harness.command import run, run_on_terminal
from tests.harness.databases import Database, Sqlite
from tests.harness.process import refused
from tests.harness.transfers import content

ROW = b"name,address\nFirst,\n"


@pytest.fixture
def database(tmp_path: Path) -> Sqlite:
    """A database that is not there."""
    return Sqlite(tmp_path)


@pytest.mark.parametrize(
    ("option", "variable", "count"),
    [([], None, 3), (["--no-examples"], None, 0), ([], "false", 0), (["--examples"], "no", 3)],
)
def test_a_new_list_has_the_examples_or_none_and_is_made_once(
    database: Sqlite, option: list[str], variable: str | None, count: int
) -> None:
    env = {"STOREKEEPER_DATABASE": database.url}
    if variable:
        env["STOREKEEPER_EXAMPLES"] = variable
    done = run("create", *option, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    of = "with 3 example stores" if count else "without stores"
    assert done.stdout.decode() == f"A new list {of} is in {database.path}\n"
    assert content(database) == [(one.name, one.address) for one in EXAMPLES[:count]]
    before = database.path.read_bytes()
    [line] = refused(run("create", *option, env=env))
    assert line == f"storekeeper: {database.path}: there is a file of that name: name a new one"
    assert database.path.read_bytes() == before


def test_a_list_that_is_there_in_postgresql_is_not_made_again(
    new_database: Callable[[], Database],
) -> None:
    url = new_database().url
    assert run("create", "--database", url).returncode == 0
    before = databases.epoch(url, renew=False)
    [line] = refused(run("create", "--database", url))
    assert "there is a" in line
    assert databases.epoch(url, renew=False) == before


COMMANDS = [
    ["serve", "--port=0"],
    ["serve", "--port=0", "--workers=2", "--examples"],
    ["export"],
    ["changes"],
    ["epoch"],
    ["epoch", "--new"],
    ["token", "list"],
    ["token", "add", "name", "--scope=read"],
    ["token", "revoke", "name"],
    ["import", "-"],
    ["import", "-", "--dry-run"],
    ["import", "-", "--yes", "--match=name"],
]


def test_a_list_that_is_not_there_is_refused_in_one_line_that_names_the_ways_out(
    new_database: Callable[[], Database],
) -> None:
    for command in COMMANDS:
        database = new_database()
        name = databases.database(database.url).name
        ways = ["storekeeper create"] + [", or import --create"] * (command[0] == "import")
        [line] = refused(run(*command, "--database", database.url, stdin=ROW))
        assert line == f"storekeeper: {Missing(name, ''.join(ways))}", command
        assert "(storekeeper restore)" in line
        assert not databases.database(database.url).exists(), command


def test_an_empty_file_in_the_place_of_a_list_is_refused_and_left_there(database: Sqlite) -> None:
    database.path.touch()
    for command in (*COMMANDS, ["create"], ["serve", "--create"], ["import", "--create", "-"]):
        assert refused(run(*command, "--database", database.url, stdin=ROW)), command
        assert database.path.read_bytes() == b"", command


def test_only_a_yes_or_an_option_lets_an_import_begin_a_list(database: Sqlite) -> None:
    file = database.path.with_name("stores.csv")
    file.write_bytes(ROW)
    command = ("import", "--database", database.url, str(file))
    for typed in (b"n\n", b"\n"):
        done = run_on_terminal(*command, typed=typed)
        assert done.returncode == 2
        question = (
            f"There is no {database.path}: the import begins a new list there. Continue? [y/N]"
        )
        assert question.encode() in done.stderr
        assert not database.path.exists()
    assert run_on_terminal(*command, "--dry-run", typed=b"").returncode == 0
    assert not database.path.exists()
    assert run_on_terminal(*command, typed=b"y\n").returncode == 0
    assert content(database) == [("First", None)]
    assert run(*command, "--create", "--match=name").returncode == 0, "it uses what is there"
    assert content(database) == [("First", None)]


def test_what_an_import_cannot_read_begins_no_list(database: Sqlite) -> None:
    for data in (b"", b"Store\nA\n", b"name,name\nA,B\n"):
        refused(run("import", "--create", "--database", database.url, "-", stdin=data))
    assert not database.path.exists()


def test_the_one_list_that_is_made_unasked_is_that_of_a_service_which_is_told_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same file, when it is named, is not made; nor does an import make it."""
    monkeypatch.chdir(tmp_path)
    named = "sqlite:///storekeeper.db"
    assert refused(run("serve", "--port=0", "--database", named))
    assert refused(run("serve", "--port=0", env={"STOREKEEPER_DATABASE": named}))
    assert refused(run("import", "-", stdin=ROW))
    assert not list(tmp_path.iterdir())

"""`undo`: the imports that it lists, what it undoes and says, and what it refuses."""

import re
from pathlib import Path

import pytest

from storekeeper.domain.stores import Payload
from tests.harness.command import Done
from tests.harness.databases import Sqlite
from tests.harness.process import refused
from tests.harness.transfers import command, content, fill_with

OLD, NEW = "1 Old Road", "2 New Road"
BEFORE = [("A", OLD), ("B", OLD)]
AFTER = [("A", NEW), ("Bb", OLD), ("New", None)]


@pytest.fixture
def database(tmp_path: Path) -> Sqlite:
    """A list that an import changed: it replaced two stores and created one."""
    made = Sqlite(tmp_path)
    fill_with(made, [Payload(*each) for each in BEFORE])
    file = tmp_path / "night.csv"
    file.write_text(f"id,name,address\n1,A,{NEW}\n2,Bb,{OLD}\n,New,\n")
    assert command("import", made, str(file), "--match", "id").returncode == 0
    return made


def said(done: Done) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.said.splitlines()


def recorded(database: Sqlite) -> list[list[str]]:
    """Return what the command lists, without its head: the columns of each line."""
    done = command("undo", database)
    assert done.returncode == 0
    head, *lines = done.stdout.decode().splitlines()
    assert head.split() == ["FROM", "TO", "AT", "WHAT", "FILE", "BY"]
    return [re.split(r" {2,}", line.strip()) for line in lines]


def test_an_import_that_is_listed_can_be_undone_and_its_undo_too(database: Sqlite) -> None:
    first, last, _, what, file, *_ = recorded(database)[0]
    assert (what, file) == ("import", "night.csv")
    dry = said(command("undo", database, first, last, "--dry-run"))
    assert dry[0] == "store 3 stays as it is: the import created it"
    assert dry[1].startswith("Dry run: 2 stores as before the import, 1 kept if undone in ")
    assert content(database) == AFTER
    kept, done = said(command("undo", database, first, last))
    assert (kept, content(database)) == (dry[0], [*BEFORE, ("New", None)])
    way_back = done.partition("undo this with storekeeper undo ")[2].split()
    assert recorded(database)[0][:2] == way_back
    assert recorded(database)[0][3].startswith("undo of ")
    said(command("undo", database, *way_back))
    assert content(database) == AFTER


def test_what_was_changed_since_stays_and_is_told(database: Sqlite) -> None:
    first, last, *_ = recorded(database)[0]
    edit = b"id,name\n2,Corrected\n"
    said(command("import", database, "-", "--match", "id", stdin=edit))
    lines = said(command("undo", database, first, last))
    assert lines[0] == "store 2 stays as it is: its name changed since"
    assert content(database) == [("A", OLD), ("Corrected", OLD), ("New", None)]


def test_a_range_that_is_not_one_import_is_refused_in_one_line(database: Sqlite) -> None:
    first, last, *_ = recorded(database)[0]
    seq = int(first.partition(".")[0])
    epoch = first.partition(".")[2]
    for words, why in (
        ((first,), "TO is missing"),
        ((first, "soon"), "TO: not a cursor: 'soon'; a cursor looks like 17.abcdefgh"),
        (("now", last), "FROM: not a cursor: 'now'"),
        ((first, f"{seq + 1}.{epoch}"), "the first and the last change of one import or undo"),
        ((f"1.{epoch}", last), "the first and the last change of one import or undo"),
        ((f"{seq}.abcdefgh", last), "nothing was undone"),
        ((first, f"{seq + 90}.{epoch}"), "nothing was undone"),
    ):
        [line] = refused(command("undo", database, *words))
        assert why in line, words
    assert content(database) == AFTER
    assert len(database.changes()) == 5


def test_a_list_without_imports_has_none_to_undo(tmp_path: Path) -> None:
    """A list that was moved or is missing is told as by every command."""
    database = Sqlite(tmp_path)
    [line] = refused(command("undo", database))
    assert "there is no such database" in line or "create" in line
    assert not database.path.exists()

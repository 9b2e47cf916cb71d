"""Ctrl-C during `import` and `copy`: before COMMIT nothing is done, from COMMIT on everything;
either is said."""

import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from storekeeper.cli import backups, imports, results
from storekeeper.cli.terminal import ignore_interrupts, print_result
from storekeeper.domain.stores import Payload
from storekeeper.storage import databases
from tests.harness.command import Done, run
from tests.harness.databases import Database, Sqlite
from tests.harness.transfers import fill_with

MOMENTS = {"a row": 130, "before COMMIT": 130, "COMMIT": 0, "after COMMIT": 0}
"""Where Ctrl-C is pressed, and the exit status."""

MODULES = (imports, backups)


def interrupt(*_: object) -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(params=MOMENTS)
def moment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Press Ctrl-C at this moment of the next command."""
    name = str(request.param)
    if name == "a row":
        monkeypatch.setattr(imports, "PRINT_ROWS", 1)
        for module in MODULES:
            monkeypatch.setattr(module, "progress", lambda *_: nullcontext(interrupt))
    elif name == "after COMMIT":

        def interrupted(message: str) -> None:
            interrupt()
            print_result(message)

        monkeypatch.setattr(results, "print_result", interrupted)
    else:
        calls = (
            (interrupt, ignore_interrupts)
            if name == "before COMMIT"
            else (ignore_interrupts, interrupt)
        )
        for module in MODULES:
            monkeypatch.setattr(module, "ignore_interrupts", lambda: [call() for call in calls])
    return name


def assert_said(done: Done, moment: str, what: str) -> None:
    [line] = done.said.splitlines()
    assert done.returncode == MOMENTS[moment]
    assert bool(done.stderr) == bool(done.returncode)
    interrupted = f"Interrupted: nothing was {what} into "
    assert line.startswith(interrupted if done.returncode else ("3 stores created", "3 stores and"))


def test_an_import_that_is_interrupted_says_what_it_did(
    tmp_path: Path, new_database: Callable[[], Database], moment: str
) -> None:
    database = new_database()
    fill_with(database, [Payload("There before")])
    file = tmp_path / "stores.csv"
    file.write_text("name,address\nA,\nB,\nC,\n")
    assert_said(
        run("import", "--create", "--database", database.url, str(file), "--add"),
        moment,
        "imported",
    )
    assert len(database.changes()) == (1 if MOMENTS[moment] else 4)


def test_a_copy_that_is_interrupted_says_what_it_did(
    tmp_path: Path, new_database: Callable[[], Database], moment: str
) -> None:
    (tmp_path / "source").mkdir()
    source, target = Sqlite(tmp_path / "source"), new_database()
    fill_with(source, [Payload("A"), Payload("B"), Payload("C")])
    assert_said(run("copy", source.url, target.url), moment, "copied")
    if isinstance(target, Sqlite):
        is_kept = not MOMENTS[moment]
        assert [path.name for path in target.path.parent.iterdir()] == ["stores.db"] * is_kept
    if MOMENTS[moment]:
        assert not databases.database(target.url).exists(), "no list was begun"
    else:
        assert target.changes() == source.changes()

"""What was exported comes back: an import of any format makes no change, and undoes one."""

import json
from pathlib import Path

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from storekeeper.domain.stores import Payload
from storekeeper.sheets import FIELDS
from tests.harness.command import run
from tests.harness.databases import Database, Sqlite
from tests.harness.process import refused
from tests.harness.transfers import TRICKY, command, content, fill_with

FORMATS = (("all.csv",), ("excel.csv", "--excel"), ("all.xlsx",), ("all.jsonl",))
SHORT = [each for each in TRICKY if len(each.address or "") <= 32_767]
"""What a cell of XLSX can have."""


def test_an_export_that_is_imported_makes_no_change(tmp_path: Path, database: Database) -> None:
    """Also of a store whose name has blanks at its ends, which a file has not."""
    payloads = [*SHORT, Payload("Empty", ""), Payload("Controls \x01\x1f\x7f", "_x0041_ _xFFFE_")]
    fill_with(database, payloads)
    of = ("--database", database.url)
    for name, *more in FORMATS:
        file = str(tmp_path / name)
        assert run("export", *of, file, *more).returncode == 0
        for match in ("id", "name"):
            said = run("import", *of, file, "--match", match).said
            assert f"0 stores created, 0 replaced, {len(payloads)} unchanged" in said, name
    assert len(database.changes()) == len(payloads)


def test_an_export_makes_the_same_list_again_with_the_keys_of_the_other_system(
    tmp_path: Path,
) -> None:
    one = Sqlite(tmp_path)
    command(
        "import", one, "-", "--match", "Nr", stdin=b"Nr,name,address\n007,A,1\n1e5,B,\n=7,C,0\n"
    )
    for name, *more in FORMATS:
        file, two = str(tmp_path / name), Sqlite(tmp_path / f"folder of {name}")
        two.path.parent.mkdir()
        assert command("export", one, file, *more, "--with", "Nr").returncode == 0
        assert "3 stores created" in command("import", two, file, "--match", "Nr").said, name
        assert "3 unchanged" in command("import", two, file, "--match", "nr").said, name
        assert "3 unchanged" in command("import", one, file, "--match", "Nr").said, name


@pytest.mark.parametrize("column", [*FIELDS, "Version", "key:x", " KEY:Address"])
def test_a_column_of_keys_that_is_called_like_a_field_comes_back_beside_it(
    tmp_path: Path, database: Database, column: str
) -> None:
    named = column.strip().removeprefix("key:").removeprefix("KEY:")
    rows = f"key:{named},name,address\nA7,One,1 Road\nB8,Two,2 Road\n".encode()
    of, match = ("--database", database.url), ("--match", f"key:{named}")
    assert run("import", *of, "--create", "-", *match, stdin=rows).returncode == 0
    stores = content(database)
    assert len(stores) == 2
    for name, *more in FORMATS if column == "address" else FORMATS[:1]:
        file = str(tmp_path / name)
        for asked in (named, f"key:{named}"):
            done = run("export", *of, file, *more, "--force", "--with", asked)
            assert done.returncode == 0, done.stderr
        done = run("import", *of, file, *match)
        assert "0 stores created, 0 replaced, 2 unchanged" in done.said, (name, done.said)
        two = Sqlite(tmp_path / f"folder of {name}")
        two.path.parent.mkdir()
        assert command("import", two, "--create", file, *match).returncode == 0
        assert content(two) == stores
    lines = run("export", *of, "--format", "jsonl", "--with", named).stdout.splitlines()
    assert [json.loads(line)["address"] for line in lines] == [store[1] for store in stores]


@pytest.mark.parametrize("column", ["address", " Version", "ADDRESS "])
def test_rows_are_matched_by_no_address_and_no_version(database: Database, column: str) -> None:
    fill_with(database, [Payload("A", "1 Road")])
    [line] = refused(
        run("import", "--database", database.url, "-", "--match", column, stdin=b"name\nB\n")
    )
    field = column.strip().casefold()
    assert f"rows cannot be matched by their {field}" in line
    assert f"key:{field} if it is called like that; nothing was imported" in line
    assert content(database) == [("A", "1 Road")]


TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufffe\uffff"), max_size=30
)


LINE_ENDS = "\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""What Python takes for the end of a line; in a quoted cell it ends none."""


@settings(max_examples=5, phases=[Phase.explicit, Phase.generate])  # each one takes a second
@example([(f"{end},{end}", f"|{end}|{end}|") for end in LINE_ENDS])
@example([(f"a{end}", None) for end in LINE_ENDS])
@given(st.lists(st.tuples(TEXTS.filter(bool), st.none() | TEXTS), min_size=1, max_size=20))
def test_any_texts_come_back_as_they_are(
    tmp_path_factory: pytest.TempPathFactory, stores: list[tuple[str, str | None]]
) -> None:
    folder = tmp_path_factory.mktemp("texts")
    database = Sqlite(folder)
    fill_with(database, [Payload(*store) for store in stores])
    for name, *more in FORMATS:
        file = str(folder / name)
        assert command("export", database, file, *more).returncode == 0
        done = command("import", database, file, "--match", "id")
        assert f"{len(stores)} unchanged" in done.said, name


def test_the_export_of_an_earlier_version_writes_only_with_ignore_version(tmp_path: Path) -> None:
    """Its rows equal their base, so a merge keeps what the list has now (decision 59)."""
    database, undo = Sqlite(tmp_path), tmp_path / "undo.csv"
    fill_with(database, [Payload("A", "1"), Payload("B", "2")])
    done = command(
        "import", database, "-", "--match", "id", stdin=b"id,name,address\n1,Wrong,\n2,Wrong,\n"
    )
    before = done.said.partition("version ")[2].partition(" ")[0]
    assert command("export", database, str(undo), "--at", before).returncode == 0
    of = ("import", database, str(undo), "--match", "id")
    assert "0 replaced, 2 unchanged" in command(*of).said
    assert content(database) == [("Wrong", None), ("Wrong", None)]
    done = command(*of, "--on-conflict", "ignore-version")
    assert "0 stores created, 2 replaced" in done.said
    assert content(database) == [("A", "1"), ("B", "2")]

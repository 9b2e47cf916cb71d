"""The round trip through a real spreadsheet: what an export has comes back from LibreOffice as
it was."""

import re
import shutil
import subprocess
from pathlib import Path

from storekeeper.domain.stores import Payload
from storekeeper.sheets.protocol import Layout
from storekeeper.sheets.records import open_sheet
from storekeeper.sheets.rows import SheetRows
from storekeeper.storage import databases
from tests.harness.databases import Database, Sqlite
from tests.harness.machine import need
from tests.harness.transfers import command, content, fill_with

STORES = [
    Payload("00123", "1/2"),
    Payload("=1+1", "TRUE"),
    Payload("1e5"),
    Payload("Zürich", "1-2"),
]
EPOCHS = (
    "d2222222 x2222222 mar23456 dec22222 may27777 am222222 january7 inf22222 nan22222"
    " eur22222 true2222 p2222222"
)
"""Those that begin like numbers, dates and so on."""
FILTERS = {"xlsx": "xlsx", "csv": "csv:Text - txt - csv (StarCalc):44,34,76"}
"""What LibreOffice is told: CSV with commas, quotes, and UTF-8."""


def converted(file: Path, format: str) -> Path:
    """Open a file in LibreOffice, and save it in another format."""
    program = shutil.which("soffice") or need("soffice", "there is no LibreOffice")
    home = (
        file.parents[1] / "profile"
    )  # for all tests of a process: to make one takes longer than to convert
    target = file.parent / "saved"
    options = [
        f"-env:UserInstallation=file://{home}",
        "--headless",
        "--convert-to",
        FILTERS[format],
    ]
    subprocess.run(
        [program, *options, "--outdir", str(target), str(file)],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return target / file.with_suffix(f".{format}").name


def test_no_epoch_makes_a_number_of_a_version(database: Database) -> None:
    """As 5.222222e2 is one, which a spreadsheet would save as 522.2222."""
    fill_with(database, [])
    renew = databases.database(database.url).renew_epoch
    with databases.write_session(database.url) as session:
        epochs = {str(epoch) for _ in range(300) for (epoch,) in session.execute(renew)}
    assert len(epochs) == 300
    assert all(re.fullmatch("[a-df-z][a-z2-7]{7}", epoch) for epoch in epochs)


def test_a_version_is_a_word_to_a_spreadsheet(tmp_path: Path) -> None:
    versions = [f"{seq}.{epoch}" for epoch in EPOCHS.split() for seq in (0, 5, 31, 123456789012)]
    file = tmp_path / "stores.csv"
    file.write_text("name,version\n" + "".join(f"Store,{version}\n" for version in versions))
    with converted(file, "xlsx").open("rb") as saved:
        assert [row.version for row in SheetRows(open_sheet(saved), Layout())] == versions


def test_an_export_comes_back_from_a_spreadsheet_without_a_change(tmp_path: Path) -> None:
    database = Sqlite(tmp_path)
    fill_with(database, STORES)
    file = tmp_path / "stores.xlsx"
    assert command("export", database, str(file)).returncode == 0
    said = command("import", database, str(converted(file, "csv")), "--match", "id").said
    assert "0 stores created, 0 replaced, 4 unchanged" in said


def test_an_edit_in_a_spreadsheet_meets_what_others_have_changed(tmp_path: Path) -> None:
    database = Sqlite(tmp_path)
    fill_with(database, [Payload("One"), Payload("Two")])
    file = tmp_path / "stores.csv"
    assert command("export", database, str(file)).returncode == 0
    file.write_text(re.sub("(One|Two)", r"\1 by Bob", file.read_text()))
    command("import", database, "-", "--match", "id", stdin=b"id,name\n1,One by Anna\n")
    saved = converted(file, "xlsx")
    said = command("import", database, str(saved), "--match", "id").stderr.decode()
    assert "1 row is in conflict: its store has changed since: line 2 (store 1)" in said
    assert (
        command("import", database, str(saved), "--match", "id", "--on-conflict", "skip").returncode
        == 0
    )
    assert content(database) == [("One by Anna", None), ("Two by Bob", None)]

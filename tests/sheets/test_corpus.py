"""Files of all programs are imported as they are, or refused in a few lines, with nothing half
done."""

from collections.abc import Callable
from pathlib import Path

import pytest

from storekeeper.domain.stores import Payload
from tests.harness.databases import Sqlite
from tests.harness.transfers import command, content, fill_with
from tests.sheets.corpus import CORPUS, File

MAX_LINES = 25


@pytest.mark.parametrize("make", CORPUS.values(), ids=CORPUS)
def test_a_file_is_imported_as_it_is_or_refused_in_a_few_lines(
    tmp_path: Path, make: Callable[[], File]
) -> None:
    file, database = make(), Sqlite(tmp_path)
    fill_with(database, [Payload("There before")])
    (tmp_path / "file").write_bytes(file.data)
    done = command("import", database, "--add", *file.options, str(tmp_path / "file"))
    said = done.stderr.decode()
    assert done.returncode == (2 if file.stores is None else 0), said
    assert file.says in said
    assert len(said.splitlines()) <= MAX_LINES
    assert "Traceback" not in said
    assert content(database) == [("There before", None), *(file.stores or [])]

"""`POST /api/imports` of files that are made to stop or to fill the service."""

import io
import sys
import zipfile
from pathlib import Path
from urllib.parse import quote

import pytest

from storekeeper.api.routes import imports
from storekeeper.log.events import Event
from tests.harness.in_process import Inside, exchange, inside
from tests.harness.linux import peak_memory
from tests.harness.process import Response, Running
from tests.harness.wire import request
from tests.sheets.corpus import bomb, workbook

CSV = "text/csv"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


async def post(service: Inside, query: str, body: bytes | str, kind: str = CSV) -> Response:
    data = body.encode() if isinstance(body, str) else body
    fields = (f"Content-Type: {kind}", f"Content-Length: {len(data)}")
    return await exchange(service, request("POST", f"/api/imports?{query}", None, *fields) + data)


async def count(service: Inside) -> int:
    return len((await exchange(service, request("GET", "/api/stores"))).json)


def wide_workbook(cells: int) -> bytes:
    """Return a workbook of some KiB with one row of cells of 1 MiB each."""
    source, file = io.BytesIO(workbook(["name"], ["A"])), io.BytesIO()
    text = b"<sst><si><t>name</t></si><si><t>" + b"x" * 2**20 + b"</t></si></sst>"
    head = b'<row><c t="s"><v>0</v></c></row>'
    row = b"<row>" + b'<c t="s"><v>1</v></c>' * cells + b"</row>"
    parts = {
        "xl/sharedStrings.xml": text,
        "xl/worksheets/sheet1.xml": b"<worksheet><sheetData>"
        + head
        + row
        + b"</sheetData></worksheet>",
    }
    with zipfile.ZipFile(source) as good, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bad:
        for name in good.namelist():
            bad.writestr(name, parts.get(name) or good.read(name))
    return file.getvalue()


KEY = "[" * 987 + "]" * 987
MIB = 2**20
REFUSED: list[tuple[str, str, str, int, str]] = [
    ("commas", "map=address={a} {b}&dry-run=true", f'name,a,b\nStore,"{"," * MIB}",\n', 200, ""),
    (
        "a thousand",
        "map=address=" + "{a}" * 1000,
        f"name,a\nS,{'x' * MIB}\n",
        422,
        "more than 1 MiB",
    ),
    ("a hundred", "map=address=" + "{a}" * 100, f"name,a\nS,{'x' * MIB}\n", 422, "more than 1 MiB"),
    ("columns", "map=name=" + "{x}" * 2500, "x" + "," * 1_000_000 + "\n", 400, "16,384 columns"),
    ("no mark", "encoding=utf-16", "name\nStore\n", 400, "try encoding=utf-16-le"),
    ("no mark, 32", "encoding=utf-32", "name\nSto\n", 400, "try encoding=utf-32-le"),
    ("a long first line", "", "name," + "x" * (MIB + 1) + "\nStore,\n", 400, "field larger"),
    ("a deep key", "match=k", f'{{"name":"A","k":{KEY}}}\n', 422, "must be a string"),
    ("a null in a version", "match=name", '{"name":"A","version":"1\\u0000"}\n', 422, "version"),
    ("a null in a key", "match=k", '{"name":"A","k":"1\\u0000"}\n', 422, "null"),
    (
        "an encoding that does not exist",
        "encoding=cp12345",
        "name\nA\n",
        400,
        "must be the name of an encoding",
    ),
    (
        "much of little",
        "map=address=" + "{a}" * 800,
        "name,a\n" + f"S,{'x' * 1200}\n" * 400,
        400,
        "268,435,456 bytes",
    ),
]


@pytest.mark.parametrize(
    ("query", "body", "status", "says"),
    [case[1:] for case in REFUSED],
    ids=[case[0] for case in REFUSED],
)
async def test_what_a_file_may_cost_is_bounded_and_the_next_one_is_read_at_once(
    tmp_path: Path, query: str, body: str, status: int, says: str
) -> None:
    parts = [part.partition("=") for part in query.split("&")]
    asked = "&".join(f"{key}={quote(value, safe='{}')}" for key, _, value in parts)
    async with inside(tmp_path) as service:
        done = await post(service, asked, body)
        assert (done.status, says in done.body.decode()) == (status, True), done.body[:500]
        assert await count(service) == 0
        assert (await post(service, "", "name\nStore\n")).status == 200


def test_a_small_file_takes_no_memory_of_the_service(fresh: Running) -> None:
    """A row of 300 MiB from which it wants a name, and a workbook of 2 GiB."""
    before = peak_memory(fresh)
    for body, status in ((wide_workbook(300), 400), (bomb(), 400)):
        done = fresh.request("POST", "/api/imports", body, {"content-type": XLSX})
        assert done.status == status, done.body[:500]
    assert peak_memory(fresh) - before < 50 * 2**20


async def test_a_reader_that_ends_early_is_no_fault_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[tuple[Event, str]] = []
    monkeypatch.setattr(imports, "emit", lambda event, why: logged.append((event, why)))
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o755)
    async with inside(tmp_path) as service:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(program))
            failed = await post(service, "", "name\nStore\n")
        assert (failed.status, failed.json["outcome"]) == (503, "none")
        assert logged == [(Event.READER_ENDED, "SIGKILL")]
        assert (await post(service, "", "name\nStore\n")).status == 200


async def test_an_import_that_takes_too_long_frees_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    limits = imports._LIMITS._replace(seconds=0.2)
    async with inside(tmp_path) as service:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(program))
            patch.setattr(imports, "_LIMITS", limits)
            late = await post(service, "", "name\nStore\n")
        assert (late.status, late.json["outcome"]) == (503, "none")
        assert "storekeeper import" in late.json["message"]
        assert (await post(service, "", "name\nStore\n")).status == 200


async def test_an_import_that_is_not_decided_in_time_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "PLAN_TIMEOUT", -1)
    async with inside(tmp_path) as service:
        late = await post(service, "", "name\nStore\n")
        assert (late.status, late.json["outcome"]) == (503, "none")
        assert await count(service) == 0

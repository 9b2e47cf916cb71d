"""/api/export in one process: slow readers, a full folder of temporary files, HEAD."""

import asyncio
import gc
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from storekeeper.api.routes import exports
from storekeeper.concurrency import slow_readers
from storekeeper.domain.stores import Payload
from storekeeper.http.connection import Connection
from tests.harness.in_process import (
    Inside,
    Line,
    exchange,
    inside,
    last_response,
    receive,
    some_stores,
    tick,
    until,
)
from tests.harness.loading import add_all
from tests.harness.machine import mounted
from tests.harness.metrics import parse, series
from tests.harness.wire import request

FORMATS = ("csv", "jsonl", "xlsx")
MIB = 2**20
LARGE = [Payload(f"Store {number}", "x" * (MIB - 100)) for number in range(2)]


async def begun(service: Inside) -> tuple[Connection, Line]:
    """Return the connection of a client that has begun to read an export, and reads no further."""
    connection, line = service.connect()
    line.stuck = True
    receive(connection, request("GET", "/api/export"))
    await until(lambda: connection.flow.write_paused or connection.exchange is None)
    assert connection.flow.write_paused, line.sent
    return connection, line


async def refused(service: Inside) -> float:
    """Return how many exports were refused or broken off, as the metrics say."""
    text = (await exchange(service, request("GET", "/metrics"))).body.decode()
    return parse(text)[series("refused_total", reason="exports")]


async def read_on(connection: Connection, line: Line) -> None:
    """Have a client read all that comes."""
    line.stuck = False
    line.client_reads(line.unread)
    await until(lambda: connection.exchange is None)


# Slow readers.


async def test_slow_readers_keep_nobody_from_an_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that has read nothing for longest gives way, and does not take it for whole."""
    monkeypatch.setattr(exports, "MAX_SENT", 3)
    async with inside(tmp_path) as service:
        await add_all(service.collection, LARGE)
        whole = (await exchange(service, request("GET", "/api/export"))).body
        readers = [await begun(service) for _ in range(exports.MAX_SENT)]
        full = await exchange(service, request("GET", "/api/export"))
        assert (full.status, b'"outcome":"none"' in full.body) == (503, True)
        assert await refused(service) == 1
        now = time.monotonic()
        monkeypatch.setattr(slow_readers, "monotonic", lambda: now + 100)
        await read_on(*readers[0])
        for _ in range(3):
            assert (await exchange(service, request("GET", "/api/export"))).body == whole
        assert await refused(service) == 1, "the first one made room"
        readers[0] = await begun(service)
        assert (await exchange(service, request("GET", "/api/export"))).body == whole
        assert await refused(service) == 2
        for connection, line in readers:
            await read_on(connection, line)
        assert [line.aborted for _, line in readers].count(True) == 1
        assert not readers[0][1].aborted


async def test_one_that_reads_a_part_now_and_then_gives_way_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "MAX_SENT", 1)
    async with inside(tmp_path) as service:
        await add_all(service.collection, LARGE)
        connection, line = await begun(service)
        now = time.monotonic()
        for seconds in range(1, 12):
            monkeypatch.setattr(slow_readers, "monotonic", lambda at=now + seconds: at)
            line.client_reads(line.unread)
            await until(lambda: connection.flow.write_paused)
        assert (await exchange(service, request("GET", "/api/export"))).status == 200
        await read_on(connection, line)
        assert line.aborted


async def test_a_client_that_leaves_makes_room_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that leaves before the response, or asks with HEAD; whatever the collector does."""
    monkeypatch.setattr(exports, "MAX_SENT", 1)
    monkeypatch.setattr(exports, "MAX_WRITTEN", 1)
    async with inside(tmp_path) as service:
        await add_all(service.collection, LARGE)
        application: Any = service.service.runtime.application
        exporting = application._planners["export"].__self__
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                connection, line = await begun(service)
                line.abort()
                await until(lambda: not exporting._sent._kept)
                head = await exchange(service, request("HEAD", "/api/export"))
                assert head.status == 200
                await until(lambda: not exporting._sent._kept)
                connection, line = service.connect()
                receive(connection, request("GET", "/api/export?q=nothing"))
                await tick()
                line.abort()
                await until(lambda: not exporting._writing)
                await tick()
                await until(lambda: not exporting._sent._kept)
        finally:
            gc.enable()
        assert await refused(service) == 0


async def test_no_more_than_four_are_written_at_once(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        await add_all(service.collection, LARGE)
        lines = [service.connect() for _ in range(exports.MAX_WRITTEN + 2)]
        for connection, _ in lines:
            receive(connection, request("GET", "/api/export?q=nothing"))
        await until(lambda: all(connection.exchange is None for connection, _ in lines))
        got = [last_response(line).status for _, line in lines]
        assert got == [200] * exports.MAX_WRITTEN + [503, 503]
        assert await refused(service) == 2


# A folder of temporary files that is full.


@contextmanager
def small_folder(folder: Path, size: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Have temporary files in a folder of their own that has little room."""
    with mounted(folder, f"size={size}") as small:
        monkeypatch.setattr(tempfile, "tempdir", str(small))
        yield small
        monkeypatch.setattr(tempfile, "tempdir", None)


def used(folder: Path) -> int:
    found = os.statvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_bsize


@pytest.mark.parametrize("size", ["4k", "64k", "400k", "700k"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_full_folder_of_temporary_files_is_503_and_nothing_stays(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    size: str,
) -> None:
    """Where the sheet does not fit, where its file does not, where nothing does."""
    stores = [Payload(f"Store {number}", os.urandom(500).hex()) for number in range(500)]
    async with inside(tmp_path) as service:
        await add_all(service.collection, stores)
        with small_folder(tmp_path / "small", size, monkeypatch) as small:
            for method in ("GET", "HEAD"):
                for format in FORMATS:
                    got = await exchange(service, request(method, f"/api/export?format={format}"))
                    fits = got.status == 200 and size == "700k" and format != "xlsx"
                    assert fits or got.status == 503, (method, format, got.body)
                    assert fits or method == "HEAD" or b'"outcome":"none"' in got.body
                    assert list(small.iterdir()) == []
                    await until(lambda: used(small) == 0)
            if size != "4k":
                for format in FORMATS:
                    got = await exchange(
                        service, request("GET", f"/api/export?q=nothing&format={format}")
                    )
                    assert got.status == 200
    assert "event=bug" not in capfd.readouterr().err


# What a spreadsheet makes of it.


async def test_an_export_opens_right_and_is_named_by_its_date_and_search(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        await add_all(service.collection, [Payload("=1+1", "\t-2"), Payload("Café", None)])
        today = datetime.now(UTC).date().isoformat()
        plain = await exchange(service, request("GET", "/api/export"))
        marked = await exchange(service, request("GET", "/api/export?bom=true"))
        assert plain.headers["formula-cells"] == "2"
        assert b"\xef\xbb\xbf" not in plain.body
        assert b"\n\xef\xbb\xbfid,name" in marked.body
        name = plain.headers["content-disposition"]
        assert name[:28] == f'attachment; filename="stores-{today}.csv"'[:28]
        found = await exchange(service, request("GET", "/api/export?q=caf%C3%A9&format=jsonl"))
        assert "formula-cells" not in found.headers
        assert found.headers["content-disposition"].endswith("-caf%C3%A9.jsonl")
        found = await exchange(service, request("GET", "/api/export?q=1%2B1"))
        assert found.headers["content-disposition"].endswith('-1-1.csv"')


async def test_an_export_has_the_columns_of_outside_keys_that_are_asked_for(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        for name, column in (("A", "ID"), ("B", "Store No")):
            text = f"{column},name\n7,{name}\n"
            query = f"match=key:{column.replace(' ', '+')}"
            fields = ("Content-Type: text/csv", f"Content-Length: {len(text)}")
            sent = request("POST", f"/api/imports?{query}", None, *fields) + text.encode()
            await until_imported(service, sent)
        for query in ("with=all", "with=id&with=Store+No"):
            got = await exchange(service, request("GET", f"/api/export?{query}"))
            header, one, two = [line for line in got.body.decode().splitlines() if "," in line]
            assert header == "id,name,address,version,key:ID,Store No"
            assert (one.split(",")[4:], two.split(",")[4:]) == (["7", ""], ["", "7"])
        none = await exchange(service, request("GET", "/api/export?with=all&with=No"))
        assert none.status == 200
        bad = await exchange(service, request("GET", "/api/export?with=ID&with=No"))
        assert (bad.status, bad.json["validation"]["keys"]) == (400, ["with"])


async def until_imported(service: Inside, sent: bytes) -> None:
    """Send an import; again, while the thread of the one before has its file."""
    for _ in range(200):
        done = await exchange(service, sent)
        if done.status != 503:
            break
        await asyncio.sleep(0.01)
    assert done.status == 200, done.body


# HEAD.


async def test_head_responds_as_get(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        await add_all(service.collection, [Payload("Long", "x" * 32_768)])
        for query in (
            *(f"?format={format}" for format in FORMATS),
            "?q=nothing&format=xlsx",
            "?at=0&format=xlsx",
            "?at=9",
            "?with=Nothing",
            "?format=pdf",
        ):
            get, head = [
                await exchange(service, request(method, f"/api/export{query}"))
                for method in ("GET", "HEAD")
            ]
            assert head.status == get.status, query
            assert head.headers == get.headers, query
            assert head.body == b""
        assert (await exchange(service, request("HEAD", "/api/export?format=xlsx"))).status == 400


# Time.


async def test_an_export_that_takes_too_long_is_503_whatever_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As rows are read, also those that a search does not find."""
    monkeypatch.setattr(exports, "WRITE_TIMEOUT", -1)  # looked at after 256 rows
    async with inside(tmp_path) as service:
        await add_all(service.collection, [Payload("A")] * 256)
        for method in ("GET", "HEAD"):
            for query in ("", "?q=nothing", "?format=xlsx", "?at=256"):
                got = await exchange(service, request(method, f"/api/export{query}"))
                assert got.status == 503, (method, query)


# Some stores.


async def test_an_export_has_only_the_stores_that_are_named(tmp_path: Path) -> None:
    some_stores(tmp_path, 4)
    async with inside(tmp_path) as service:

        async def exported(query: str) -> Any:
            return await exchange(service, request("GET", f"/api/export?{query}"))

        async def ids(query: str) -> list[str]:
            return re.findall(r"^(\d+),Store", (await exported(query)).body.decode(), re.MULTILINE)

        assert await ids("ids=3,1,99") == ["1", "3"]
        assert await ids("ids=") == ["1", "2", "3", "4"]
        for bad in ("ids=a", "ids=1,", "ids=" + ",".join(["1"] * 1001), "ids=9223372036854775808"):
            assert (await exported(bad)).json["validation"]["keys"] == ["ids"]
        for other in ("q=a", "at=1"):
            assert (await exported(f"ids=1&{other}")).json["validation"]["keys"] == ["ids"]

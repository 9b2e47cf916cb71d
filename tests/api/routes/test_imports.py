"""`POST /api/imports`: one at a time, bodies that go to a file, reports about rows."""

import asyncio
import io
import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path
from socket import socket

import pytest
import xlsxwriter  # type: ignore[import-untyped]  # it has no types

from storekeeper.sheets.look import as_query
from tests import ROOT
from tests.harness.cases import case
from tests.harness.databases import Database
from tests.harness.in_process import (
    Inside,
    exchange,
    inside,
    receive,
    settled,
    some_stores,
    statuses,
    tick,
    until,
)
from tests.harness.linux import memory
from tests.harness.machine import mounted
from tests.harness.process import Response, Running, serving
from tests.harness.tokens import add_token
from tests.harness.wire import chunked, request

CSV = "Content-Type: text/csv"
MIXED = "Content-Type: multipart/mixed; boundary=b"
XLSX = "Content-Type: application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def head(query: str, length: int, *fields: str) -> bytes:
    return request("POST", f"/api/imports?{query}", None, *fields, f"Content-Length: {length}")


async def send(
    service: Inside, query: str, body: bytes | str, *fields: str, kind: str = CSV
) -> Response:
    """Send an import; again, while the thread of the one before has not let go of its file."""
    data = body.encode() if isinstance(body, str) else body
    for _ in range(100):
        response = await exchange(service, head(query, len(data), kind, *fields) + data)
        if response.status != 503:
            break
        await asyncio.sleep(0.01)
    return response


async def names(service: Inside) -> list[str]:
    return [
        store["name"] for store in (await exchange(service, request("GET", "/api/stores"))).json
    ]


def workbook(*rows: list[str]) -> bytes:
    file = io.BytesIO()
    with xlsxwriter.Workbook(file) as book:
        sheet = book.add_worksheet()
        for number, row in enumerate(rows):
            sheet.write_row(number, 0, row)
    return file.getvalue()


async def test_the_response_has_the_counts_the_version_and_the_changes(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        first = await send(service, "", "name,address\nAlpha,1 Road\nBeta,\n")
        assert first.status == 200
        version = first.json["version"]
        assert first.headers["etag"] == f'"{version}"'
        assert first.json == {
            "dryRun": False,
            "rows": 2,
            "created": 2,
            **dict.fromkeys(("replaced", "unchanged", "conflicts", "bad", "missing"), 0),
            **dict.fromkeys(("repeated", "adopted"), 0),
            "from": f"1.{version.partition('.')[2]}",
            "to": version,
            "version": version,
            **{name: [] for name in ("unused", "dropped", "notes")},
            "problems": [],
            "changes": [
                {"line": 2, "id": 1, "old": None, "new": {"name": "Alpha", "address": "1 Road"}},
                {"line": 3, "id": 2, "old": None, "new": {"name": "Beta", "address": None}},
            ],
        }
        assert (await exchange(service, request("GET", "/api/stores"))).headers[
            "etag"
        ] == f'"{version}"'
        again = (await send(service, "match=id&dry-run", "id,name\n1,Uno\n2,Beta\n9,No\n")).json
        counts = {"dryRun": True, "replaced": 1, "unchanged": 1, "bad": 1}
        assert counts.items() <= again.items()
        told = {
            "line": 4,
            "id": None,
            "column": "id",
            "value": "9",
            "reason": "unknown_store",
            "message": '"id" names no store',
        }
        assert again["problems"] == [told | {"row": {"id": "9", "name": "No"}}]
        assert await names(service) == ["Alpha", "Beta"]


async def test_rows_that_are_bad_or_in_conflict_refuse_the_import_with_the_problems(
    tmp_path: Path,
) -> None:
    async with inside(tmp_path) as service:
        version = (await send(service, "", "name\nAlpha\nBeta\n")).json["version"]
        await send(service, "match=id", "id,name\n1,By Anna\n")
        text = f"id,name,version\n1,By Bob,{version}\n2,{'x' * 31},{version}\n"
        refused = await send(service, "match=id", text)
        assert (refused.status, refused.json["statusCode"]) == (422, 422)
        assert refused.json["message"] == "Nothing was imported: of 2 rows, 1 bad and 1 in conflict"
        problems = [(each["line"], each["id"], each["column"]) for each in refused.json["problems"]]
        assert problems == [(2, 1, "version"), (3, 2, "name")]
        assert await names(service) == ["By Anna", "Beta"]
        done = (await send(service, "match=id&skip-bad=true&on-conflict=overwrite", text)).json
        assert (done["replaced"], done["bad"], len(done["problems"])) == (1, 1, 1)
        assert await names(service) == ["By Bob", "Beta"]


async def test_columns_are_mapped_and_names_cut_as_the_query_says(tmp_path: Path) -> None:
    text = "Nr;Filiale;Straße;Ort\n7;Kiosk am Marktplatz in der Altstadt;Markt 1;\n".encode(
        "cp1252"
    )
    async with inside(tmp_path) as service:
        refused = await send(service, "match=Nr&map=name%3DFiliale", text)
        assert (refused.status, refused.json["validation"]) == (
            400,
            {"source": "query", "keys": ["encoding"]},
        )
        query = (
            "match=nr&map=name%3DFiliale&map=address%3D%7BStra%C3%9Fe%7D,+%7BOrt%7D"
            "&encoding=cp1252&cut-names"
        )
        done = (await send(service, query, text)).json
        assert done["changes"][0]["new"] == {
            "name": "Kiosk am Marktplatz in der Alt",
            "address": "Markt 1",
        }
        [problem] = done["problems"]
        assert problem["message"] == 'The name was cut to "Kiosk am Marktplatz in der Alt"'


async def test_a_workbook_is_read_whatever_its_size(tmp_path: Path) -> None:
    rows = [
        ["id", "name", "address"],
        *(["", f"Store {number}", f"{number} Road"] for number in range(2000)),
    ]
    async with inside(tmp_path) as service:
        done = await send(service, "", workbook(*rows), kind=XLSX)
        assert (done.status, done.json["created"], len(done.json["changes"])) == (200, 2000, 1000)
        small = await send(service, "match=name", workbook(["name"], ["Store 7"]), kind=XLSX)
        assert (small.status, small.json["unchanged"], small.json["missing"]) == (200, 1, 1999)


WRONG: list[tuple[str, str, str]] = [
    ("add&match=id", "name\nA\n", "add"),
    ("on-conflict=fight", "name\nA\n", "on-conflict"),
    ("encoding=rot13", "name\nA\n", "encoding"),
    ("header=yes", "name\nA\n", "header"),
    ("map=name", "name\nA\n", "map"),
    ("map=name%3DA&map=name%3DB", "name\nA\n", "map"),
    ("map=name%3D%7BA", "A\nB\n", "map"),
    ("map=name%3DNone", "A\nB\n", "map"),
    ("match=None", "name\nB\n", "match"),
    ("match=address", "name,address\nB,1\n", "match"),
    ("match=+Version&dry-run", "name,version\nB,\n", "match"),
    ("match=key:", "name,key:\nB,1\n", "match"),
    ("", "Shop\nB\n", "map"),
    ("dry-run=perhaps", "name\nA\n", "dry-run"),
    ("add&add", "name\nA\n", "add"),
    ("", "id,name\n1,A\n", "match"),
]
NO_SHEETS = [b"", b"\0\0", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"PK\x03\x04 no workbook", b"%PDF-1.4"]
NO_TYPES = [
    ("Content-Type: application/xml",),
    ("Content-Type: text/csv; charset=iso-2022-jp",),
    ("Content-Type: text/plain",),
    (CSV, "Content-Encoding: gzip"),
]


async def test_a_query_a_body_or_a_type_that_is_wrong_is_refused_by_its_name(
    tmp_path: Path,
) -> None:
    some_stores(tmp_path, 1)
    async with inside(tmp_path) as service:
        for query, text, key in WRONG:
            with case((query, text)):
                refused = await send(service, query, text)
                assert (refused.status, refused.json["validation"]["source"]) == (400, "query")
                assert key in refused.json["validation"]["keys"]
        for body in NO_SHEETS:
            with case(body):
                refused = await send(service, "add", body)
                assert (refused.status, refused.json["validation"]) == (
                    400,
                    {"source": "payload", "keys": []},
                )
        for kind, *more in NO_TYPES:
            assert (await send(service, "add", b"name\nA\n", *more, kind=kind)).status == 415
        assert (await exchange(service, request("GET", "/api/imports"))).headers[
            "allow"
        ] == "POST, OPTIONS"
        assert await names(service) == ["Store 0"]


async def test_a_look_says_what_a_file_is_and_sent_back_it_is_the_import(tmp_path: Path) -> None:
    text = (
        "Filialen 2026;;;\n;;;\nNr.;Filiale;Straße;Ort\n7;Café Größe;Weg 1;Köln\n8;Ost;Weg 2;Bonn\n"
    )
    async with inside(tmp_path) as service:
        look = await send(service, "look", text.encode("cp1252"))
        assert (look.status, "etag" in look.headers, await names(service)) == (200, False, [])
        assert look.json["unsaid"] == ["encoding", "map", "match"]
        assert look.json["encodings"][0] == {
            "encoding": "cp1252",
            "example": "7;Café Größe;Weg 1;Köln",
        }
        assert look.json["parameters"] == {
            "encoding": "cp1252",
            "delimiter": ";",
            "header-row": "3",
            "map": ["name=Filiale", "address={Straße}, {Ort}"],
            "match": "Nr.",
        }
        assert look.json["sample"][0] == {"line": 4, "cells": ["7", "Café Größe", "Weg 1", "Köln"]}
        refused = await send(service, "", text.encode("cp1252"))
        line = refused.json["message"].rpartition(": try ")[2]
        assert (refused.status, await names(service)) == (400, [])
        done = await send(service, line, text.encode("cp1252"))
        assert (done.status, done.json["created"]) == (200, 2)
        changes = await exchange(service, request("GET", "/api/stores/1"))
        assert changes.json == {"id": 1, "name": "Café Größe", "address": "Weg 1, Köln"}
        known = (await send(service, f"look&{line}", text.encode("cp1252"))).json
        assert (known["match"]["value"], known["unsaid"]) == ("Nr.", [])


FILES = ROOT / "tests" / "sheets" / "files"
SHEETS = {
    "02-snap-historical.csv": "Record ID",
    "06-titles.xls": "No.",
    "07-formulas.xlsx": "Store No",
    "09b-active-second.xlsx": "name",
    "10b-german-sep.csv": "Filiale Nr.",
    "11-unicode.txt": "name",
    "14-dupes.csv": "Store No",
    "23-no-header.csv": "name",
    "30-own-id-sorted.csv": "key:ID",
}
LOCKED = {
    "21-html.xls": "This is a web page",
    "22-list.pdf": "This is a PDF",
    "27b-encrypted.xlsx": "This workbook has a password",
}


async def test_what_a_look_proposes_for_real_sheets_is_an_import(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        for name, match in SHEETS.items():
            with case(name):
                data = (FILES / name).read_bytes()
                look = (await send(service, "look", data)).json
                assert look["match"]["value"] == match
                query = as_query(look["parameters"])
                done = await send(service, f"dry-run&skip-bad&{query}", data)
                assert done.status == 200, done.body
                assert done.json["created"] >= look["rows"] - 4
                refused = await send(service, "dry-run&skip-bad", data)
                assert (refused.status, refused.json["message"].count(": try ")) == (400, 1)
        for name, sentence in LOCKED.items():
            refused = await send(service, "look", (FILES / name).read_bytes())
            assert (refused.status, refused.json["message"][: len(sentence)]) == (400, sentence)
        assert await names(service) == []


async def test_an_import_depends_on_the_tag_and_is_carried_out_once_with_its_key(
    tmp_path: Path,
) -> None:
    async with inside(tmp_path) as service:
        version = (await send(service, "", "name\nAlpha\n")).json["version"]
        stale = await send(service, "add", "name\nBeta\n", 'If-Match: "0.abcdefgh"')
        assert (stale.status, stale.headers["etag"]) == (412, f'"{version}"')
        key = (f'If-Match: "{version}"', "Idempotency-Key: night-7")
        done = await send(service, "add", "name\nBeta\n", *key)
        replay = await send(service, "add", "name\nBeta\n", *key)
        assert (replay.status, replay.headers["idempotent-replayed"]) == (200, "true")
        counts = {
            name: value for name, value in done.json.items() if name not in ("problems", "changes")
        }
        assert (replay.json, replay.headers["etag"]) == (counts, done.headers["etag"])
        assert (await send(service, "add", "name\nGamma\n", *key)).status == 422
        assert (await send(service, "add&skip-bad", "name\nBeta\n", *key)).status == 422
        assert await names(service) == ["Alpha", "Beta"]


async def test_the_report_and_its_replay_say_what_the_file_has_besides_its_rows(
    tmp_path: Path,
) -> None:
    text = "Our stores\n\nname,address,Suite,Phone\nAlpha,1 Road,2,555\nTotal: 1 store,,,\n"
    query, key = "header-row=3&map=name=name&map=address=address", "Idempotency-Key: once"
    async with inside(tmp_path) as service:
        for target, fields in ((f"{query}&dry-run", ()), (query, (key,)), (query, (key,))):
            done = (await send(service, target, text, *fields)).json
            assert done["created"] == 2
            assert (done["unused"], done["dropped"]) == (["Suite", "Phone"], ["Suite"])
            above, *sums = done["notes"]
            assert above == "Row 1 is above the names of the columns, so not imported: Our stores"
            is_replay = "changes" not in done  # whose rows are not read
            told = ["Row 5 looks like a sum, but is read as a store: Total: 1 store"]
            assert sums == ([] if is_replay else told)
        assert is_replay
        assert await names(service) == ["Alpha", "Total: 1 store"]


async def test_an_import_needs_a_token_that_may_write_and_its_changes_say_whose(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/stores.db"
    reader, writer = (
        f"Authorization: Bearer {add_token(url, scope, scope)}" for scope in ("read", "write")
    )
    async with inside(tmp_path, auth="writes") as service:
        for fields, status in (((), 401), ((reader,), 403)):
            connection, line = service.connect()
            receive(connection, head("", 20_000, CSV, *fields))
            await tick()
            assert statuses(line) == [status], "before its body is read"
        assert (await send(service, "", "name\nAlpha\n", writer)).json["created"] == 1
        changes = (await exchange(service, request("GET", "/api/changes", None, writer))).json[
            "changes"
        ]
        assert [change["by"] for change in changes] == ["write"]


async def test_a_body_over_the_limit_is_refused_by_its_length_and_in_chunks(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        assert (await exchange(service, head("add", 64 * 2**20 + 1, CSV))).status == 413
        connection, line = service.connect()
        whole = chunked(b"x" * 2**20, target="/api/imports?add", fields=f"{CSV}\r\n".encode())
        begun, _, chunk = whole.removesuffix(b"0\r\n\r\n").partition(b"\r\n\r\n")
        receive(connection, begun + b"\r\n\r\n")
        for _ in range(64):
            receive(connection, chunk)
            await until(lambda: not connection.unread)
        assert line.sent == b""
        receive(connection, b"1\r\nx\r\n")
        await settled(connection)
        assert statuses(line) == [413]


def test_a_long_body_takes_no_memory_of_the_service_and_does_not_keep_others_waiting(
    fresh: Running,
) -> None:
    row = b"Store," + b"x" * 2000 + b"\n"
    before = memory(fresh.process.pid)
    with fresh.socket() as client:
        client.sendall(head("", 8 + 20_000 * len(row), CSV) + b"name,at\n")
        for _ in range(20):
            client.sendall(row * 1000)
        assert memory(fresh.process.pid) - before < 20 * 2**20
        client.settimeout(0.001)
        slowest, count = 0.0, 0
        while not (answer := received(client)):
            began = time.monotonic()
            assert fresh.request("GET", "/api/stores?limit=1").status == 200
            slowest, count = max(slowest, time.monotonic() - began), count + 1
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert count > 1
        assert slowest < 2.0


def received(client: socket) -> bytes:
    try:
        return client.recv(1000)
    except TimeoutError:
        return b""


def test_imports_into_several_workers_are_done_one_after_the_other_or_refused(
    database: Database, tmp_path: Path
) -> None:
    """Each process takes one at a time; the database orders those of several."""

    def post(name: bytes) -> list[int]:
        while True:
            done = service.request(
                "POST", "/api/imports?add", b"name\n" + name * 1000, {"content-type": "text/csv"}
            )
            if done.status == 200:
                return [change["id"] for change in done.json["changes"]]
            assert (done.status, done.json["outcome"]) == (503, "none")
            time.sleep(0.02)

    with (
        serving(tmp_path, "--workers", "2", database=database.url) as service,
        ThreadPoolExecutor() as pool,
    ):
        firsts = sorted(ids[0] for ids in pool.map(post, [b"A\n", b"B\n", b"C\n", b"D\n"]))
        assert firsts == list(range(1, 4001, 1000))
        stores = service.request("GET", "/api/stores").json
        assert "".join(store["name"] for store in stores[::1000]) in map(
            "".join, permutations("ABCD")
        )


@pytest.mark.parametrize(
    ("after", "message"),
    [(11, "Nothing of the request came for 10 s"), (121, "within 120 seconds")],
)
async def test_a_body_that_stands_still_or_takes_too_long_is_refused(
    tmp_path: Path, after: float, message: str
) -> None:
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        receive(connection, head("add", 100_000, CSV) + b"name\n")
        connection.sweep(connection.reader.began + 9)
        assert line.sent == b""
        connection.reader.heard += after - 1 if after > 100 else 0
        connection.sweep(connection.reader.began + after)
        await settled(connection)
        assert line.sent.startswith(b"HTTP/1.1 408 ")
        assert message.encode() in line.sent
        assert (await send(service, "add", b"name\n" + b"Store\n" * 1500)).status == 200, (
            "the slot is not free"
        )


async def test_a_body_for_which_there_is_no_space_is_refused(tmp_path: Path) -> None:
    with mounted(tmp_path / "temporary", "size=1m") as full, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(full))
        async with inside(tmp_path) as service:
            connection, line = service.connect()
            receive(connection, head("add", 9_000_000, CSV))
            for _ in range(300):
                if not line.sent:
                    receive(connection, b"x" * 16_000)
            assert line.sent.startswith(b"HTTP/1.1 503 ")
            assert b"No space left on device" in line.sent


async def test_decisions_come_with_the_file_and_hold_for_the_version_that_was_seen(
    tmp_path: Path,
) -> None:
    def both(decisions: str, sheet: str) -> bytes:
        parts = [("application/json", decisions), ("text/csv", sheet)]
        text = "".join(f"--b\r\nContent-Type: {kind}\r\n\r\n{part}\r\n" for kind, part in parts)
        return f"{text}--b--\r\n".encode()

    async with inside(tmp_path) as service:
        await send(service, "match=Key", "Key,name,address\n7,Alpha,1 Road\n")
        await send(service, "match=id", "id,name\n1,By Anna\n")
        sheet = "Key,name,address\n7,By source,1 Road\n"
        refused = await send(service, "match=Key", sheet)
        assert refused.status == 422
        [problem] = refused.json["problems"]
        conflict = problem["conflict"]
        assert conflict["fields"] == ["name"]
        assert conflict["base"] == {"name": "Alpha", "address": "1 Road"}
        assert "by" not in conflict
        decision = {"line": 2, "seen": conflict["seen"], "name": "Both"}
        old = {**decision, "seen": f"1.{conflict['seen'].partition('.')[2]}"}
        assert (
            await send(service, "match=Key", both(json.dumps([old]), sheet), kind=MIXED)
        ).status == 422
        done = await send(service, "match=Key", both(json.dumps([decision]), sheet), kind=MIXED)
        assert (done.status, done.json["replaced"]) == (200, 1)
        assert await names(service) == ["Both"]
        undo = f"/api/imports/undo?from={done.json['from']}&to={done.json['to']}"
        undone = await exchange(service, request("POST", undo))
        assert (undone.status, undone.json["undone"]) == (200, 1)
        for field, value in (
            *(("line", 0), ("line", 2**40), ("line", 10**30)),
            *(("seen", -1), ("seen", 2**63), ("seen", 10**30), ("seen", "9" * 19), ("seen", None)),
            *(("name", ""), ("name", "x" * 31), ("name", "\ud800"), ("address", "\ud800")),
            *(("address", f"{'x' * 1000}…"), ("row", ["name"]), ("row", ["id"])),
        ):
            bad = both(json.dumps([{**decision, field: value}]), sheet)
            assert (await send(service, "match=Key", bad, kind=MIXED)).status == 400, (field, value)
        unheard = both(json.dumps([decision]), sheet)
        query = "match=Key&on-conflict=ignore-version"
        assert (await send(service, query, unheard, kind=MIXED)).status == 400
        for bad in (b"", b"--b\r\n\r\n[]\r\n--b--\r\n", both("{}", sheet), both("[]", sheet)[:-8]):
            assert (await send(service, "match=Key", bad, kind=MIXED)).status == 400
        assert (await exchange(service, request("POST", "/api/imports/undo?from=1"))).status == 400
        [name] = [
            store["name"] for store in (await exchange(service, request("GET", "/api/stores"))).json
        ]
        assert name == "By Anna"

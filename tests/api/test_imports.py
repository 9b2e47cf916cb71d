"""`POST /api/imports` over sockets: one at a time, bodies that go to a file, what is said of the rows."""

import io
import json
import socket
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter  # type: ignore[import-untyped]  # it has no types

from tests.harness.client import until
from tests.harness.databases import EVERY_KIND
from tests.harness.in_process import inside, settled
from tests.harness.linux import memory
from tests.harness.machine import mounted
from tests.harness.process import Response, Running, serving
from tests.harness.tokens import add_token
from tests.harness.wire import HOST

pytestmark = EVERY_KIND

CSV = {"content-type": "text/csv"}
XLSX = {"content-type": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"}


def send(service: Running, query: str, body: bytes | str, headers: dict[str, str] | None = None) -> Response:
    data = body.encode() if isinstance(body, str) else body
    return service.request("POST", f"/api/imports?{query}", data, CSV | (headers or {}))


def names(service: Running) -> list[str]:
    return [store["name"] for store in service.request("GET", "/api/stores").json]


def workbook(*rows: list[str]) -> bytes:
    file = io.BytesIO()
    with xlsxwriter.Workbook(file) as book:
        sheet = book.add_worksheet()
        for number, row in enumerate(rows):
            sheet.write_row(number, 0, row)
    return file.getvalue()


def test_the_response_has_the_counts_the_version_and_the_changes(fresh: Running) -> None:
    first = send(fresh, "", "name,address\nAlpha,1 Road\nBeta,\n")
    assert first.status == 200
    assert first.headers["etag"] == f'"{first.json["version"]}"'
    version = first.json["version"]
    assert first.json == {
        "dryRun": False,
        "rows": 2,
        "created": 2,
        "replaced": 0,
        "unchanged": 0,
        "conflicts": 0,
        "bad": 0,
        "missing": 0,
        "version": version,
        "problems": [],
        "changes": [
            {"line": 2, "id": 1, "old": None, "new": {"name": "Alpha", "address": "1 Road"}},
            {"line": 3, "id": 2, "old": None, "new": {"name": "Beta", "address": None}},
        ],
    }
    assert version == fresh.request("GET", "/api/stores").headers["etag"].strip('"')
    again = send(fresh, "match=id&dry-run", "id,name\n1,Uno\n2,Beta\n9,No\n")
    assert {name: again.json[name] for name in ("dryRun", "replaced", "unchanged", "bad")} == {
        "dryRun": True,
        "replaced": 1,
        "unchanged": 1,
        "bad": 1,
    }
    assert again.json["problems"] == [
        {
            "line": 4,
            "id": None,
            "column": "id",
            "value": "9",
            "message": '"id" names no store',
            "row": {"id": "9", "name": "No"},
        }
    ]
    assert names(fresh) == ["Alpha", "Beta"]


def test_rows_that_are_bad_or_in_conflict_refuse_the_import_with_the_problems(fresh: Running) -> None:
    version = send(fresh, "", "name\nAlpha\nBeta\n").json["version"]
    send(fresh, "match=id", "id,name\n1,By Anna\n")
    text = f"id,name,version\n1,By Bob,{version}\n2,{'x' * 31},{version}\n"
    refused = send(fresh, "match=id", text)
    assert (refused.status, refused.json["statusCode"]) == (422, 422)
    assert refused.json["message"] == "Nothing was imported: of 2 rows, 1 bad and 1 in conflict"
    assert [(each["line"], each["id"], each["column"]) for each in refused.json["problems"]] == [
        (2, 1, "version"),
        (3, 2, "name"),
    ]
    assert names(fresh) == ["By Anna", "Beta"]
    done = send(fresh, "match=id&skip-bad=true&on-conflict=overwrite", text).json
    assert (done["replaced"], done["bad"], len(done["problems"])) == (1, 1, 1)
    assert names(fresh) == ["By Bob", "Beta"]


def test_columns_are_mapped_and_names_cut_as_the_query_says(fresh: Running) -> None:
    text = "Nr;Filiale;Straße;Ort\n7;Kiosk am Marktplatz in der Altstadt;Markt 1;\n".encode("cp1252")
    refused = send(fresh, "match=Nr&map=name%3DFiliale", text)
    assert (refused.status, refused.json["validation"]) == (400, {"source": "query", "keys": ["encoding"]})
    query = "match=nr&map=name%3DFiliale&map=address%3D%7BStra%C3%9Fe%7D,+%7BOrt%7D&encoding=cp1252&cut-names"
    done = send(fresh, query, text).json
    assert done["changes"][0]["new"] == {"name": "Kiosk am Marktplatz in der Alt", "address": "Markt 1"}
    assert [each["message"] for each in done["problems"]] == ['The name was cut to "Kiosk am Marktplatz in der Alt"']


def test_a_workbook_is_read_whatever_its_size(fresh: Running) -> None:
    rows = [["id", "name", "address"], *(["", f"Store {number}", f"{number} Road"] for number in range(2000))]
    done = fresh.request("POST", "/api/imports", workbook(*rows), XLSX)
    assert (done.status, done.json["created"], len(done.json["changes"])) == (200, 2000, 1000)
    small = fresh.request("POST", "/api/imports?match=name", workbook(["name"], ["Store 7"]), XLSX)
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
    ("", "Shop\nB\n", "map"),
    ("dry-run=perhaps", "name\nA\n", "dry-run"),
    ("add&add", "name\nA\n", "add"),
    ("", "id,name\n1,A\n", "match"),
]


@pytest.mark.parametrize(("query", "text", "key"), WRONG)
def test_what_the_query_says_wrong_is_said(service: Running, query: str, text: str, key: str) -> None:
    service.request("POST", "/api/stores", {"name": "There before"})
    refused = send(service, query, text)
    assert (refused.status, refused.json["validation"]["source"]) == (400, "query")
    assert key in refused.json["validation"]["keys"]


@pytest.mark.parametrize(
    "body", [b"", b"\0\0", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"PK\x03\x04 no workbook", b'name\n"A']
)
def test_a_body_that_is_no_sheet_is_a_bad_payload(service: Running, body: bytes) -> None:
    refused = send(service, "add", body)
    assert (refused.status, refused.json["validation"]) == (400, {"source": "payload", "keys": []})


def test_only_csv_and_xlsx_without_a_coding_are_taken(service: Running) -> None:
    for headers in (
        {"content-type": "application/json"},
        {"content-type": "text/plain"},
        CSV | {"content-encoding": "gzip"},
    ):
        assert service.request("POST", "/api/imports?add", b"name\nA\n", headers).status == 415
    assert service.request("GET", "/api/imports").headers["allow"] == "POST, OPTIONS"


def test_an_import_depends_on_the_tag_and_is_carried_out_once_with_its_key(fresh: Running) -> None:
    version = send(fresh, "", "name\nAlpha\n").json["version"]
    stale = send(fresh, "add", "name\nBeta\n", {"if-match": '"0.abcdefgh"'})
    assert (stale.status, stale.headers["etag"]) == (412, f'"{version}"')
    key = {"if-match": f'"{version}"', "idempotency-key": "night-7"}
    done = send(fresh, "add", "name\nBeta\n", key)
    replay = send(fresh, "add", "name\nBeta\n", key)
    assert (replay.status, replay.headers["idempotent-replayed"]) == (200, "true")
    assert replay.json == {name: value for name, value in done.json.items() if name not in ("problems", "changes")}
    assert replay.headers["etag"] == done.headers["etag"]
    assert send(fresh, "add", "name\nGamma\n", key).status == 422
    assert send(fresh, "add&skip-bad", "name\nBeta\n", key).status == 422
    assert names(fresh) == ["Alpha", "Beta"]


def test_an_import_needs_a_token_that_may_write_and_its_changes_say_whose(tmp_path: Path) -> None:
    with serving(tmp_path, "--auth", "writes") as service:
        url = url_of(service)
        reader, writer = add_token(url, "reader", "read"), add_token(url, "writer", "write")
        time.sleep(1)
        body = "name\n" + "Alpha\n" * 3000  # more than is read before the token is looked at
        assert send(service, "", body).status == 401
        assert send(service, "", body, {"authorization": f"Bearer {reader}"}).status == 403
        good = {"authorization": f"Bearer {writer}"}
        assert send(service, "", body, good).json["created"] == 3000
        changes = service.request("GET", "/api/changes?limit=1", headers=good).json["changes"]
        assert changes[0]["by"] == "writer"


def url_of(service: Running) -> str:
    args = service.process.args
    assert isinstance(args, list)
    return str(args[args.index("--database") + 1])


@contextmanager
def uploading(service: Running, length: int, query: str = "add") -> Iterator[socket.socket]:
    """Begin to send a body of that length."""
    with service.socket() as client:
        head = f"POST /api/imports?{query} HTTP/1.1\r\n".encode() + HOST
        client.sendall(head + b"Content-Type: text/csv\r\nContent-Length: %d\r\n\r\n" % length + b"name\n")
        yield client


def answer(client: socket.socket) -> tuple[int, dict[str, Any]]:
    data = b""
    while b"\r\n\r\n" not in data or not data.endswith(b"}"):
        part = client.recv(65536)
        assert part, data
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def test_a_second_import_is_refused_before_its_body_is_read_until_the_first_one_is_over(fresh: Running) -> None:
    length = 100_000
    with uploading(fresh, length):

        def taken() -> bool:
            with uploading(fresh, length, "dry-run&add") as second:
                second.settimeout(0.5)
                try:
                    status, body = answer(second)
                except TimeoutError:
                    return False
                assert (status, body["outcome"]) == (503, "none")
                return True

        until(taken)
        assert send(fresh, "add", "name\nSmall\n").status == 503
    until(lambda: send(fresh, "add&dry-run", "name\nSmall\n").status == 200)  # the first client has gone
    with uploading(fresh, length) as client:
        client.sendall(b"Store\n" * 16_665 + b"Stor\n")
        status, body = answer(client)
        assert (status, body["rows"]) == (200, 16_666)


def test_a_body_over_the_limit_is_refused_by_its_length_and_in_chunks(service: Running) -> None:
    with uploading(service, 64 * 2**20 + 1) as client:
        assert answer(client)[0] == 413
    with service.socket() as client:
        head = (
            b"POST /api/imports?add HTTP/1.1\r\n"
            + HOST
            + b"Content-Type: text/csv\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        client.sendall(head)
        chunk = b"x" * 2**20
        for _ in range(65):
            client.sendall(b"%x\r\n" % len(chunk) + chunk + b"\r\n")
        assert answer(client)[0] == 413
    assert service.request("GET", "/test").status == 200


def test_a_long_body_takes_no_memory_of_the_service(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        before = memory(service.process.pid)
        with uploading(service, 60 * 2**20, "add&dry-run") as client:
            line = b"Store," + b"x" * 1000 + b"\n"
            client.sendall(b"ignored,address\n")
            for _ in range(50):
                client.sendall(line * 1000)
            assert memory(service.process.pid) - before < 30 * 2**20
        until(lambda: send(service, "add&dry-run", "name\nSmall\n").status == 200)


def test_an_import_does_not_keep_others_from_reading_and_writing(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        body = "name,address\n" + "Store,1 Road\n" * 100_000
        with uploading(service, len(body), "add") as client:
            client.sendall(body[5:].encode())
            slowest, count = 0.0, 0
            client.settimeout(0.001)
            while True:
                began = time.monotonic()
                assert service.request("GET", "/test").status == 200
                slowest = max(slowest, time.monotonic() - began)
                count += 1
                try:
                    if client.recv(1):
                        break
                except TimeoutError:
                    continue
            assert count > 1
            assert slowest < 2.0


def test_imports_into_several_workers_are_done_one_after_the_other_or_refused(tmp_path: Path) -> None:
    """Each process takes one at a time; the database orders those of several."""

    def post(name: str) -> list[int]:
        while True:
            done = send(service, "add", "name\n" + f"{name}\n" * 3000)
            if done.status == 200:
                return [change["id"] for change in done.json["changes"]]
            assert (done.status, done.json["outcome"]) == (503, "none")

    with serving(tmp_path, "--workers", "2") as service, ThreadPoolExecutor() as pool:
        firsts = sorted(ids[0] for ids in pool.map(post, "ABCDEF"))
        assert firsts == list(range(1, 18_001, 3000))
        assert "".join(names(service)[::3000]) in map("".join, permutations("ABCDEF"))


@pytest.mark.parametrize(
    ("after", "message"), [(11, "Nothing of the request came for 10 s"), (121, "within 120 seconds")]
)
async def test_a_body_that_stands_still_or_takes_too_long_is_refused(
    tmp_path: Path, after: float, message: str
) -> None:
    head = b"POST /api/imports?add HTTP/1.1\r\n" + HOST + b"Content-Type: text/csv\r\nContent-Length: 100000\r\n\r\n"
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        connection.data_received(head + b"name\n")
        connection.sweep(connection.reader.began + 9)
        assert line.sent == b""
        connection.reader.heard += after - 1 if after > 100 else 0
        connection.sweep(connection.reader.began + after)
        await settled(connection)
        assert line.sent.startswith(b"HTTP/1.1 408 ")
        assert message.encode() in line.sent
        again, answer = service.connect()  # and the slot is free
        again.data_received(head.replace(b"100000", b"9000"))
        again.data_received(b"name\n" + b"Store\n" * 1499 + b"\n")
        await settled(again)
        assert answer.sent.startswith(b"HTTP/1.1 200 ")


async def test_a_body_for_which_there_is_no_space_is_refused(tmp_path: Path) -> None:
    head = b"POST /api/imports?add HTTP/1.1\r\n" + HOST + b"Content-Type: text/csv\r\nContent-Length: 9000000\r\n\r\n"
    with mounted(tmp_path / "temporary", "size=1m") as full, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(full))
        async with inside(tmp_path) as service:
            connection, line = service.connect()
            connection.data_received(head)
            for _ in range(300):
                if not line.sent:
                    connection.data_received(b"x" * 16_000)
            assert line.sent.startswith(b"HTTP/1.1 503 ")
            assert b"No space left on device" in line.sent

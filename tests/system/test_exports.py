"""Exports of a service and of the command, on each kind of database: the same bytes, of one moment."""

import csv
import io
import json
from pathlib import Path

import pytest

from storekeeper import databases
from storekeeper.api import exports
from storekeeper.stores import Payload
from tests.harness.command import run
from tests.harness.databases import Database
from tests.harness.process import Running, serving
from tests.harness.transfers import TRICKY, fill_with
from tests.oracles.promises import until

TYPES = {
    "csv": "text/csv; charset=utf-8",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "jsonl": "application/jsonl",
}
STORES = [*TRICKY[:6], *TRICKY[7:], *(Payload(f"Zürich {number}") for number in range(2500))]


def add_keys(database: Database, *rows: tuple[int, str, str]) -> None:
    with databases.database(database.url).opened(write=True) as execute:
        for row in rows:
            execute("INSERT INTO external_ids (store_id, column_name, value) VALUES ($1, $2, $3)", row)


def listed(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode(), newline="")))


class TestExports:
    """Whatever holds the stores is exported so."""

    def test_the_route_sends_what_the_command_writes(self, database: Database, tmp_path: Path) -> None:
        fill_with(database, STORES)
        add_keys(database, (3, "Store Number", "007"), (5, "Store Number", "=1"), (5, "ERP", "x"))
        with serving(tmp_path, database=database.url) as service:
            version = service.request("GET", "/api/stores?limit=1").headers["etag"].strip('"')
            for query, options in {
                "": [],
                "q=ZURICH+17": ["--q", "ZURICH 17"],
                "q=3": ["--q", "3"],
                "q=007": ["--q", "007"],
                "with=store+number": ["--with", "store number"],
                "at=4": ["--at", "4"],
                f"at=0.{version.partition('.')[2]}": ["--at", "0"],
                "at=2000-01-01T00:00:00Z": ["--at", "2000-01-01T00:00:00Z"],
                "at=4&with=ERP": ["--at", "4", "--with", "ERP"],
            }.items():
                for format, type in TYPES.items():
                    done = run("export", "--database", database.url, "--format", format, *options)
                    assert done.returncode == 0, done.stderr
                    got = service.request("GET", f"/api/export?format={format}&{query}")
                    assert got.status == 200
                    assert got.body == done.stdout, (query, format)
                    assert got.headers["content-type"] == type
                    assert got.headers["content-disposition"] == f'attachment; filename="stores.{format}"'
                    assert got.headers["cache-control"] == "no-cache"
                    is_now = "at" not in query
                    tag = f'"{version}"' if is_now else None
                    assert got.headers.get("etag") == tag or "at" in query or "with" in query
            assert service.request("GET", "/api/export").body == run("export", "--database", database.url).stdout

    def test_an_export_has_every_store_once_with_the_version_of_the_list(
        self, database: Database, tmp_path: Path
    ) -> None:
        fill_with(database, STORES)
        with serving(tmp_path, database=database.url) as service:
            version = service.request("GET", "/api/stores?limit=1").headers["etag"].strip('"')
            rows = listed(service.request("GET", "/api/export").body)
            stores = service.request("GET", "/api/stores").json
            expected = [{**store, "id": str(store["id"]), "address": store["address"] or ""} for store in stores]
            assert rows == [{**store, "version": version} for store in expected]
            lines = service.request("GET", "/api/export?format=jsonl").body.splitlines()
            assert [json.loads(line) for line in lines] == [{**store, "version": version} for store in stores]

    def test_the_past_is_exported_with_its_version(self, database: Database, tmp_path: Path) -> None:
        fill_with(database, [Payload("A", "1"), Payload("B")])
        with serving(tmp_path, database=database.url) as service:
            service.request("PUT", "/api/stores/1", {"name": "Z"})
            was = listed(service.request("GET", "/api/export?at=2").body)
            assert [(row["id"], row["name"], row["address"], row["version"][:2]) for row in was] == [
                ("1", "A", "1", "2."),
                ("2", "B", "", "2."),
            ]
            assert service.request("GET", "/api/export?at=9").status == 400
            assert service.request("GET", "/api/export?at=1.aaaaaaaa").status == 410

    def test_the_keys_of_outside_systems_stand_beside_their_stores(self, database: Database, tmp_path: Path) -> None:
        fill_with(database, [Payload("A"), Payload("B"), Payload("C")])
        add_keys(database, (1, "Store Number", "007"), (3, "Store Number", "9"), (2, "ERP", "x"))
        with serving(tmp_path, database=database.url) as service:
            rows = listed(service.request("GET", "/api/export?with=STORE%20NUMBER").body)
            assert [(row["id"], row["Store Number"]) for row in rows] == [("1", "007"), ("2", ""), ("3", "9")]
            refused = service.request("GET", "/api/export?with=Nummer")
            assert (refused.status, refused.json["validation"]) == (400, {"source": "query", "keys": ["with"]})
            assert "ERP, Store Number" in refused.json["message"]

    def test_a_poller_gets_304_until_something_changes(self, database: Database, tmp_path: Path) -> None:
        fill_with(database, [Payload("A")])
        with serving(tmp_path, database=database.url) as service:
            tag = service.request("GET", "/api/export").headers["etag"]
            unchanged = service.request("GET", "/api/export", None, {"If-None-Match": tag})
            assert (unchanged.status, unchanged.body) == (304, b"")
            service.request("PUT", "/api/stores/1", {"name": "B"})
            assert service.request("GET", "/api/export", None, {"If-None-Match": tag}).status == 200

    def test_head_has_the_fields_of_get_and_leaves_no_export_under_way(
        self, database: Database, tmp_path: Path
    ) -> None:
        fill_with(database, [Payload("A")])
        with serving(tmp_path, database=database.url) as service:
            for _ in range(exports.MAX_EXPORTS * 2):
                head = service.request("HEAD", "/api/export?format=xlsx")
                assert (head.status, head.headers["content-type"]) == (200, TYPES["xlsx"])
            assert service.request("GET", "/api/export").status == 200


@pytest.mark.parametrize(
    ("query", "keys"),
    [("format=xls", ["format"]), ("format=", None), ("q=a&q=b", ["q"]), ("with=" + "x" * 201, ["with"])],
)
def test_a_query_of_an_export_that_breaks_rules_is_refused(
    service: Running, query: str, keys: list[str] | None
) -> None:
    got = service.request("GET", f"/api/export?{query}")
    assert got.status == (400 if keys else 200)
    assert not keys or got.json["validation"] == {"source": "query", "keys": keys}


def test_slow_readers_of_exports_keep_no_more_than_four_files(fresh: Running) -> None:
    """Whoever goes away makes room, at once or when the connection is closed."""
    for number in range(16):
        fresh.request("POST", "/api/stores", {"name": f"Store {number}", "address": "x" * (2**20 - 100)})
    readers = [fresh.socket() for _ in range(exports.MAX_EXPORTS)]
    for reader in readers:
        reader.sendall(b"GET /api/export HTTP/1.1\r\nHost: a\r\n\r\n")
        assert reader.recv(12) == b"HTTP/1.1 200"
    refused = fresh.request("GET", "/api/export")
    assert (refused.status, refused.json["outcome"]) == (503, "none")
    for reader in readers:
        reader.close()
    until(lambda: fresh.request("GET", "/api/export?q=nothing").status == 200)

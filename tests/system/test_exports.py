"""Exports of a service and of the command, on each kind of database: the same bytes, of one
moment."""

import csv
import io
import json
import re
from collections.abc import Iterator

import pytest

from storekeeper.domain.stores import Payload
from storekeeper.storage import databases
from tests.harness.command import run
from tests.harness.databases import KINDS, Database, postgres
from tests.harness.process import Running, serving
from tests.harness.transfers import TRICKY, fill_with

TYPES = {
    "csv": "text/csv; charset=utf-8",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "jsonl": "application/jsonl",
}
DAY = r"\d{4}-\d\d-\d\d"
STORES = [*TRICKY[:6], *TRICKY[7:], *(Payload(f"Zürich {number}") for number in range(1100))]


KEYS = [
    (1, "Store Number", "007"),
    (3, "Store Number", "9"),
    (5, "Store Number", "=1"),
    (5, "ERP", "x"),
]


@pytest.fixture(scope="module", params=KINDS)
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Running, Database]]:
    """A service with these stores and keys of outside systems, once on each kind of database."""
    if request.param == "postgres":
        postgres()
    folder = tmp_path_factory.mktemp("exports")
    with KINDS[request.param](folder) as database:
        fill_with(database, STORES)
        with databases.write_session(database.url) as session:
            for row in KEYS:
                session.execute(
                    "INSERT INTO external_ids (store_id, column_name, value) VALUES ($1, $2, $3)",
                    row,
                )
        with serving(folder, database=database.url) as service:
            yield service, database


def version(service: Running) -> str:
    return service.request("GET", "/api/stores?limit=1").headers["etag"].strip('"')


def listed(service: Running, query: str) -> list[dict[str, str]]:
    data = service.request("GET", f"/api/export?{query}").body
    return list(csv.DictReader(io.StringIO(data.decode(), newline="")))


def test_the_route_sends_what_the_command_writes(exported: tuple[Running, Database]) -> None:
    service, database = exported
    now = version(service)
    for query, options in {
        "": [],
        "q=ZURICH+17": ["--q", "ZURICH 17"],
        "q=3": ["--q", "3"],
        "q=007": ["--q", "007"],
        "with=store+number": ["--with", "store number"],
        "at=4": ["--at", "4"],
        f"at=0.{now.partition('.')[2]}": ["--at", "0"],
        "at=2000-01-01T00:00:00Z": ["--at", "2000-01-01T00:00:00Z"],
        "at=4&with=ERP": ["--at", "4", "--with", "ERP"],
    }.items():
        word = f"-{'-'.join(options[1].split())}" if "--q" in options else ""
        for format in TYPES if query in {"", "at=4&with=ERP"} else ["csv"]:
            done = run("export", "--database", database.url, "--format", format, *options)
            assert done.returncode == 0, done.stderr
            got = service.request("GET", f"/api/export?format={format}&{query}")
            assert got.status == 200
            assert got.body == done.stdout, (query, format)
            assert got.headers["content-type"] == TYPES[format]
            named = got.headers["content-disposition"]
            assert re.fullmatch(
                rf'attachment; filename="stores-{DAY}{word}\.{format}"', named, re.IGNORECASE
            )
            assert got.headers["cache-control"] == "no-cache"
            assert got.headers.get("etag") == f'"{now}"' or "at" in query or "with" in query
    assert (
        service.request("GET", "/api/export").body
        == run("export", "--database", database.url).stdout
    )


def test_an_export_has_every_store_once_with_the_version_of_the_list(
    exported: tuple[Running, Database],
) -> None:
    service, _ = exported
    more = {"version": version(service)}
    stores = service.request("GET", "/api/stores").json
    expected = [
        {**store, "id": str(store["id"]), "address": store["address"] or "", **more}
        for store in stores
    ]
    assert listed(service, "") == expected
    lines = service.request("GET", "/api/export?format=jsonl").body.splitlines()
    assert [json.loads(line) for line in lines] == [{**store, **more} for store in stores]


def test_the_past_is_exported_with_its_version(exported: tuple[Running, Database]) -> None:
    service, _ = exported
    service.request("PUT", "/api/stores/1", {"name": "Z"})
    was = listed(service, "at=2")
    assert [(row["id"], row["name"], row["address"], row["version"][:2]) for row in was] == [
        (str(id), store.name, store.address or "", "2.")
        for id, store in enumerate(STORES[:2], start=1)
    ]
    assert service.request("GET", "/api/export?at=9999").status == 400
    assert service.request("GET", "/api/export?at=1.aaaaaaaa").status == 410


def test_the_keys_of_outside_systems_stand_beside_their_stores(
    exported: tuple[Running, Database],
) -> None:
    service, _ = exported
    rows = listed(service, "with=STORE%20NUMBER")
    assert {int(row["id"]): row["Store Number"] for row in rows if row["Store Number"]} == {
        1: "007",
        3: "9",
        5: "=1",
    }
    refused = service.request("GET", "/api/export?with=Nummer")
    assert (refused.status, refused.json["validation"]) == (
        400,
        {"source": "query", "keys": ["with"]},
    )
    assert "ERP, Store Number" in refused.json["message"]


def test_a_poller_gets_304_until_something_changes(exported: tuple[Running, Database]) -> None:
    """One of now, one of the past; only the first changes."""
    service, _ = exported
    past = ["/api/export?at=2", "/api/export?at=0", "/api/export?at=2000-01-01T00:00:00Z"]
    targets = ["/api/export", "/api/export?at=", "/api/export?format=xlsx", *past]
    tags = {target: service.request("GET", target).headers["etag"] for target in targets}
    for target, tag in tags.items():
        for method in ("GET", "HEAD"):
            got = service.request(method, target, None, {"If-None-Match": tag})
            assert (got.status, got.body, got.headers["etag"]) == (304, b"", tag), target
        other = service.request("GET", target, None, {"If-None-Match": '"9.abcdefgh"'})
        assert (other.status, other.headers["etag"]) == (200, tag), target
    service.request("PUT", "/api/stores/1", {"name": tags["/api/export"]})
    for target, tag in tags.items():
        got = service.request("GET", target, None, {"If-None-Match": tag})
        assert got.status == (304 if target in past else 200), target


def test_a_moment_that_is_none_is_refused_whatever_tag_is_sent(
    exported: tuple[Running, Database],
) -> None:
    service, _ = exported
    for at, status in (("9999", 400), ("1.aaaaaaaa", 410), ("2100-01-01T00:00:00Z", 400)):
        for tags in ({}, {"If-None-Match": '"1.aaaaaaaa"'}):
            assert service.request("GET", f"/api/export?at={at}", None, tags).status == status


def test_a_query_of_an_export_that_breaks_rules_is_refused(
    exported: tuple[Running, Database],
) -> None:
    service, _ = exported
    for query, key in (("format=xls", "format"), ("q=a&q=b", "q"), ("with=" + "x" * 201, "with")):
        got = service.request("GET", f"/api/export?{query}")
        assert (got.status, got.json["validation"]) == (400, {"source": "query", "keys": [key]})
    assert service.request("GET", "/api/export?format=").status == 200

"""The feed over real sockets (decisions 40, 41, 45, 51); `domain/test_collection_changes.py` has
both databases."""

import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from storekeeper.domain.changes import DEFAULT_LIMIT
from storekeeper.domain.stores import Payload
from tests.harness.asgi import asked
from tests.harness.cases import case
from tests.harness.client import load
from tests.harness.databases import Database
from tests.harness.events import Listener, Message
from tests.harness.in_process import inside
from tests.harness.process import Running, assert_nothing_logged, serving
from tests.harness.wire import assert_error, assert_invalid, dial, request

EVENTS = {"accept": "text/event-stream"}


@pytest.fixture(scope="module")
def epoch(service: Running) -> str:
    """The epoch of the module's service, which has a few stores and changes."""
    for number in range(1, 4):
        service.request("POST", "/api/stores", {"name": f"Store {number}"})
    service.request("PUT", "/api/stores/2", {"name": "Store 2", "address": "2 Road"})
    return str(pages(service)["next"].partition(".")[2])


def pages(service: Running, query: str = "") -> Any:
    response = service.request("GET", f"/api/changes{query}")
    assert response.status == 200
    return response.json


def head(service: Running) -> int:
    return int(pages(service, "?after=now")["head"])


def write(service: Running, address: str, store: int = 1) -> None:
    done = service.request(
        "PUT", f"/api/stores/{store}", {"name": f"Store {store}", "address": address}
    )
    assert done.status == 200


def seqs(page: Any) -> list[int]:
    return [change["seq"] for change in page["changes"]]


# Pages.


def test_a_page_has_what_each_store_became_and_what_it_was(service: Running, epoch: str) -> None:
    response = service.request("GET", "/api/changes?after=2&limit=2")
    changes = response.json["changes"]
    times = [change.pop("at") for change in changes]
    assert changes == [
        {
            "seq": 3,
            "type": "created",
            "store": {"id": 3, "name": "Store 3", "address": None},
            "previous": None,
        },
        {
            "seq": 4,
            "type": "replaced",
            "store": {"id": 2, "name": "Store 2", "address": "2 Road"},
            "previous": {"name": "Store 2", "address": None},
        },
    ]
    assert response.json["next"] == f"4.{epoch}"
    assert response.json["head"] == head(service)
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time) for time in times)
    assert times == sorted(times)
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert "authorization" in response.headers["vary"]
    assert b": " not in response.body


def test_page_after_page_is_every_change_once(service: Running, epoch: str) -> None:
    del epoch
    for number in range(DEFAULT_LIMIT):
        write(service, f"{number} Road")
    last = head(service)
    for limit in ("", "&limit=", "&limit=7", "&limit=1000"):
        found, after = list[int](), "0"
        while page := seqs(body := pages(service, f"?after={after}{limit}")):
            found, after = found + page, body["next"]
            assert len(page) <= int(limit.removeprefix("&limit=") or DEFAULT_LIMIT)
        assert found == list(range(1, last + 1))
    assert len(pages(service)["changes"]) == DEFAULT_LIMIT
    assert len(pages(service, "?limit=1000")["changes"]) == last > DEFAULT_LIMIT
    assert len(pages(service, "?limit=101&order=desc")["changes"]) == DEFAULT_LIMIT + 1


def test_the_cursor_of_an_empty_page_is_the_one_that_was_sent(service: Running, epoch: str) -> None:
    last = head(service)
    for after in (f"{last}.{epoch}", str(last), "now"):
        assert pages(service, f"?after={after}") == {
            "changes": [],
            "next": f"{last}.{epoch}",
            "head": last,
        }
    assert pages(service, f"?after=2.{epoch}&store=3&limit=1")["next"] == f"3.{epoch}"
    assert pages(service, f"?after=3.{epoch}&store=3")["next"] == f"3.{epoch}"
    assert pages(service, "?after=1&order=desc") == {
        "changes": [],
        "next": f"1.{epoch}",
        "head": last,
    }


def test_in_order_desc_it_is_a_history(service: Running, epoch: str) -> None:
    write(service, "A", 3)
    write(service, "B", 3)
    last = head(service)
    for query in ("", "&after=now", "&after="):
        assert seqs(pages(service, f"?order=desc&limit=2{query}")) == [last, last - 1]
    newest, *older = pages(service, "?order=desc&store=3")["changes"]
    assert (newest["store"]["address"], newest["previous"]["address"]) == ("B", "A")
    assert [change["seq"] for change in older] == [last - 1, 3]
    found, after = list[int](), "now"
    while page := pages(service, f"?order=desc&limit=9&after={after}"):
        found, after = found + seqs(page), page["next"]
        if not page["changes"]:
            break
    assert found == list(range(last, 0, -1))
    assert after == f"1.{epoch}"


BAD = [
    *(
        (f"after={value}", ["after"])
        for value in ("x", "-1", "007", "+7", "7.", "7.ABCDEFGH", "1e3", "NOW", "%32.")
    ),
    *((f"after={value}", ["after"]) for value in ("9" * 5000, 2**63, "7.abcdefgh.1", "7.abcdefg")),
    *((f"limit={value}", ["limit"]) for value in ("0", "1001", "-1", "x")),
    *((f"order={value}", ["order"]) for value in ("down", "ASC")),
    *((f"store={value}", ["store"]) for value in ("x", "-1", "9" * 5000)),
    ("after=1&after=1", ["after"]),
    ("store=x&limit=x&after=x&order=x", ["after", "limit", "store", "order"]),
]


def test_a_bad_parameter_is_400(service: Running) -> None:
    for query, keys in BAD:
        for headers in ({}, EVENTS):
            with case(query):
                response = service.request("GET", f"/api/changes?{query}", headers=headers)
                assert_error(response, 400, validation={"source": "query", "keys": keys})


def test_unknown_parameters_are_ignored_and_empty_ones_absent(service: Running, epoch: str) -> None:
    del epoch
    assert pages(service, "?name=x&at=1&after=&limit=&store=&order=&x")["changes"][0]["seq"] == 1


def test_a_cursor_of_another_epoch_or_beyond_the_latest_change_is_410(
    service: Running, epoch: str
) -> None:
    last = head(service)
    for after in (
        "1.abcdefgh",
        f"{last}.abcdefgh",
        f"{last + 1}",
        f"{last + 1}.{epoch}",
        str(2**63 - 1),
    ):
        for order in ("asc", "desc"):
            response = service.request("GET", f"/api/changes?order={order}&after={after}")
            assert_error(response, 410, cursor=f"{last}.{epoch}")


def test_an_idle_poll_is_304(service: Running, epoch: str) -> None:
    target = f"/api/changes?after={head(service)}.{epoch}"
    tag = service.request("GET", target).headers["etag"]
    idle = service.request("GET", target, headers={"if-none-match": f"W/{tag}"})
    assert (idle.status, idle.body, idle.headers["etag"]) == (304, b"", tag)
    assert "authorization" in idle.headers["vary"]
    write(service, "idle no more")
    changed = service.request("GET", target, headers={"if-none-match": tag})
    assert (changed.status, len(changed.json["changes"])) == (200, 1)
    full = changed.headers["etag"]
    assert service.request("GET", target, headers={"if-none-match": full}).status == 304
    write(service, "and again")
    assert service.request("GET", target, headers={"if-none-match": full}).status == 200
    assert service.request("GET", target, headers={"if-none-match": '"malformed'}).status == 200


async def test_a_page_is_at_most_one_mebibyte_but_has_one_change(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        for address in ("x" * 400_000, "y" * 400_000, "z" * 400_000, "\x01" * 170_000):
            body = json.dumps({"name": "Large", "address": address}).encode()
            assert (await asked(service, "POST", "/api/stores", body)).status == 200
        found, after = list[list[int]](), "0"
        for _ in range(3):
            response = await asked(service, "GET", "/api/changes", query=f"after={after}".encode())
            assert len(response.body) <= 2**20
            found, after = [*found, seqs(response.json)], response.json["next"]
        assert found == [[1, 2], [3], [4]]


def test_a_list_read_in_pages_goes_on_from_the_tag_of_its_first_page(
    service: Running, epoch: str
) -> None:
    """The last page's tag would miss what changed on pages that had been read already."""
    del epoch
    first = service.request("GET", "/api/stores?limit=2")
    write(service, "changed meanwhile")
    last = service.request("GET", "/api/stores?limit=1000&after=2")
    mirror = {store["id"]: store for store in chain(first.json, last.json)}

    def follow(tag: str) -> dict[int, Any]:
        body = pages(service, f"?after={tag.strip(chr(34))}")
        return mirror | {change["store"]["id"]: change["store"] for change in body["changes"]}

    everything = {store["id"]: store for store in service.request("GET", "/api/stores").json}
    assert follow(first.headers["etag"]) == everything
    assert follow(last.headers["etag"]) != everything


# Server-sent events.


def test_a_stream_has_all_changes_and_goes_on(service: Running, epoch: str) -> None:
    expected = pages(service, "?limit=1000")["changes"]
    with Listener(service) as listener:
        assert listener.status == 200
        assert listener.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert listener.headers["cache-control"] == "no-cache, no-transform"
        assert listener.headers["x-accel-buffering"] == "no"
        assert "authorization" in listener.headers["vary"]
        first, *messages = listener.until(lambda message: message.id == f"{len(expected)}.{epoch}")
        assert first == Message("", f"0.{epoch}")
        assert messages == [
            Message("change", f"{change['seq']}.{epoch}", change) for change in expected
        ]
        for number in range(3):
            write(service, f"while a client listens {number}")
            [change] = listener.changes(1)
            assert change == pages(service, "?order=desc&limit=1")["changes"][0]


def test_the_bytes_of_a_stream(service: Running, epoch: str) -> None:
    asked = request(
        "GET", f"/api/changes?after=2.{epoch}", None, "Accept: text/event-stream"
    ).replace(b"HTTP/1.1", b"HTTP/1.0")
    with service.socket() as client:
        client.sendall(asked)
        received = b""
        while received.count(b"\n\n") < 2:
            received += client.recv(65536)
    start, _, body = received.partition(b"\r\n\r\n")
    assert b"\r\nconnection: close" in start
    assert b"transfer-encoding" not in start
    change = (
        json.dumps(pages(service, "?after=2&limit=1")["changes"][0])
        .replace(": ", ":")
        .replace(", ", ",")
    )
    expected = f"retry: 2000\nid: 2.{epoch}\n\nid: 3.{epoch}\nevent: change\ndata: {change}\n\n"
    assert body.startswith(expected.encode())


def test_last_event_id_comes_before_after(service: Running, epoch: str) -> None:
    for sent, begin in ((f"3.{epoch}", 4), ("2", 3), ("", 2)):
        with Listener(service, "?after=1", {"last-event-id": sent}) as listener:
            assert listener.changes(1)[0]["seq"] == begin


def test_a_stream_that_cannot_go_on_is_reset_and_goes_on_from_now(
    service: Running, epoch: str
) -> None:
    for last_id in ("1.abcdefgh", "999999999", "x", "9" * 5000, "007", "\u00e4"):
        with Listener(
            service, headers={"last-event-id": last_id.encode().decode("latin-1")}
        ) as listener:
            present = f"{head(service)}.{epoch}"
            assert next(iter(listener)) == Message("reset", present, {"cursor": present})
            write(service, f"after {last_id[:10]}")
            assert listener.changes(1)[0]["store"]["address"] == f"after {last_id[:10]}"
    with Listener(service, "?after=1.abcdefgh") as listener:
        assert next(iter(listener)).event == "reset"


def test_a_stream_from_now_begins_with_the_next_change(service: Running, epoch: str) -> None:
    last = head(service)
    with Listener(service, "?after=now") as listener:
        assert next(iter(listener)) == Message("", f"{last}.{epoch}")
        write(service, "the next one")
        assert listener.changes(1)[0]["seq"] == last + 1


def test_a_stream_of_one_store_has_no_other_changes(service: Running, epoch: str) -> None:
    del epoch
    with Listener(service, "?store=3") as listener:
        before = pages(service, "?store=3&limit=1000")["changes"]
        assert listener.changes(len(before)) == before
        for store in (1, 3, 2, 3):
            write(service, "by turns", store)
            write(service, "there and back", store)
        assert [change["store"]["id"] for change in listener.changes(4)] == [3] * 4


def test_a_stream_has_order_asc_alone(service: Running) -> None:
    response = service.request("GET", "/api/changes?order=desc", headers=EVENTS)
    assert_invalid(response, '"order" must be asc for a stream of events', ["order"], "query")
    with Listener(service, "?order=asc&limit=1") as listener:
        assert listener.status == 200


STREAMS = ["text/event-stream", "TEXT/Event-Stream", "*/*, text/event-stream;q=0.1"]
STREAMS += ["text/event-stream; charset=utf-8", "application/json,\ttext/event-stream"]
NO_STREAMS = ["", "*/*", "text/*", "application/json", "text/event-streams", ",;,;q="]
NO_STREAMS += ["text/event-stream;q=0", "text/event-stream ; q=0.00", "x/text/event-stream"]


def test_who_names_server_sent_events_gets_them(service: Running) -> None:
    for accept in (*STREAMS, *NO_STREAMS):
        with case(accept):
            response = service.request("HEAD", "/api/changes", headers={"accept": accept})
            assert (response.status, response.body) == (200, b"")
            kind = "text/event-stream" if accept in STREAMS else "application/json"
            assert response.headers["content-type"] == f"{kind}; charset=utf-8"
            assert ("transfer-encoding" in response.headers) == (accept in STREAMS)


def test_a_request_behind_a_stream_ends_it_and_gets_its_response(service: Running) -> None:
    asked = request("GET", "/api/changes?after=now", None, "Accept: text/event-stream")
    with dial(service) as wire:
        wire.send(asked + asked + request("GET", "/test"))
        first, second, test = (wire.response() for _ in range(3))
    assert first.body == second.body
    assert first.body.startswith(b"retry: 2000\nid: ")
    assert test.body == b"OK"
    assert_nothing_logged(service)


def test_listeners_of_every_worker_have_every_change_and_a_stop_waits_for_none(
    database: Database, tmp_path: Path
) -> None:
    """Their streams end whole, so that clients connect again at once."""
    with serving(tmp_path, "--workers=2", database=database.url) as service:
        listeners = [Listener(service) for _ in range(8)]
        for number in range(10):
            service.request("POST", "/api/stores", {"name": f"Store {number}"})
        load(database.url, [Payload("Imported")])
        for listener in listeners:
            assert [change["seq"] for change in listener.changes(11)] == list(range(1, 12))
        assert service.stop() == 0
        for listener in listeners:
            with listener:
                assert listener.read_to_the_end() == []
                assert listener._response.isclosed()  # behind the last chunk
        assert_nothing_logged(service)

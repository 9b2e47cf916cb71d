"""How a client follows changes, whatever comes and however it is cut."""

import json
from typing import Any

import pytest

from storekeeper.client import Change, NoAccess, Reset, Store, following
from storekeeper.client.core import Reply
from storekeeper.client.following import Follower

EPOCH = "abcdefgh"
JSON = {"content-type": "application/json; charset=utf-8"}
EVENTS = {"content-type": "text/event-stream; charset=utf-8"}
ADDRESS = "1 Road\u2028Town\x85\x0b, Café"
"""It has characters that end a line in Python, but not in a stream."""


def change(seq: int) -> dict[str, Any]:
    store = {"id": 1, "name": f"Name {seq}", "address": ADDRESS}
    return {"seq": seq, "type": "created", "at": "…", "store": store, "previous": None}


def stream(*seqs: int) -> bytes:
    events = [
        f"id: {seq}.{EPOCH}\nevent: change\ndata: {json.dumps(change(seq), ensure_ascii=False)}\n\n"
        for seq in seqs
    ]
    return ("retry: 2000\n\n" + ":\n\n".join(events)).encode()


def page(*seqs: int) -> Reply:
    body = {"changes": [change(seq) for seq in seqs], "next": f"9.{EPOCH}", "head": 9}
    return Reply(200, JSON, json.dumps(body).encode())


def wanted(seq: int) -> Change:
    store = Store(1, f"Name {seq}", ADDRESS)
    return Change(f"{seq}.{EPOCH}", seq, "created", "…", None, store, None)


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_stream_is_read_however_it_is_cut(size: int) -> None:
    follower, data = Follower(f"1.{EPOCH}"), stream(2, 3)
    assert follower.request().target == f"/api/changes?after=1.{EPOCH}"
    assert follower.opened(200, EVENTS)
    found = [
        event
        for start in range(0, len(data), size)
        for event in follower.received(data[start : start + size])
    ]
    assert found == [wanted(2), wanted(3)]
    # What was cut off in the middle comes again.
    assert list(follower.received(stream(4)[:-1])) == []
    follower.lost()
    assert follower.request().target == f"/api/changes?after=3.{EPOCH}"
    assert list(follower.received(stream(4))) == [wanted(4)]


def test_a_reset_is_told_by_a_stream_and_by_a_poll() -> None:
    follower = Follower("9.zzzzzzzz")
    reset = Reset(f"3.{EPOCH}")
    sent = f"id: 3.{EPOCH}\nevent: reset\ndata: {{}}\n\n".encode()
    assert list(follower.received(sent + stream(4))) == [reset, wanted(4)]
    gone = {"statusCode": 410, "message": "The epoch has ended", "cursor": f"3.{EPOCH}"}
    follower = Follower("9.zzzzzzzz")
    assert list(follower.polled(Reply(410, JSON, json.dumps(gone).encode()))) == [reset]
    assert follower.cursor == f"3.{EPOCH}"


@pytest.mark.parametrize(
    ("status", "fields"), [(200, {"content-type": "text/html"}), (503, JSON), (502, {})]
)
def test_it_polls_where_no_stream_gets_through_and_tries_one_again_later(
    monkeypatch: pytest.MonkeyPatch, status: int, fields: dict[str, str]
) -> None:
    follower = Follower(f"1.{EPOCH}")
    follower.request()
    assert not follower.opened(status, fields)
    assert not follower.streams
    assert follower.pause == following.POLL_INTERVAL
    assert follower.request().target == f"/api/changes?after=1.{EPOCH}&limit=1000"
    assert list(follower.polled(page(2, 3))) == [wanted(2), wanted(3)]
    assert list(follower.polled(Reply(200, {"content-type": "text/html"}, b"log in"))) == []
    assert list(follower.polled(Reply(503, JSON, b"{}"))) == []
    assert follower.cursor == f"3.{EPOCH}"
    monkeypatch.setattr(following, "STREAM_AGAIN", 0.0)
    follower.opened(status, fields)
    assert follower.request().fields == {"accept": "text/event-stream"}


def test_a_stream_of_which_nothing_comes_is_one_that_a_proxy_holds_back() -> None:
    follower = Follower(f"1.{EPOCH}")
    follower.request()
    follower.opened(200, EVENTS)
    follower.lost()
    assert not follower.streams
    assert 0 < follower.pause < 1


def test_a_refusal_ends_it() -> None:
    with pytest.raises(NoAccess):
        Follower("1").opened(401, JSON)
    with pytest.raises(NoAccess):
        list(Follower("1").polled(Reply(403, JSON, b'{"message":"no"}')))

"""What the HTTP layer refuses (decision 27), as raw bytes: a table of cases.

A request that two servers could cut differently out of the same bytes is never carried out, and
no request is ever answered twice. Each case begins on a fresh connection, as the only request,
behind a request that is still unanswered, and cut into two packets; every case that is refused
carries a create that must not happen.
"""

from urllib.parse import quote

from tests.harness.cases import case
from tests.harness.client import create as store
from tests.harness.client import nothing_changes
from tests.harness.process import Running
from tests.harness.refused_requests import ACCEPTED, REFUSED, SMUGGLED, get
from tests.harness.wire import HOST, SLOW, assert_error, dial, request


def test_it_is_refused_once_and_changes_nothing_also_when_it_comes_in_two_packets(
    service: Running,
) -> None:
    store(service, "Unchanged")
    for name, (status, data) in REFUSED.items():
        half = len(data) // 2
        with case(name), nothing_changes(service):
            for before, first, rest in (
                (b"", data + SMUGGLED, b""),
                (request("GET", SLOW), data + SMUGGLED, b""),
                (request("GET", "/test"), data[:half], data[half:] + SMUGGLED),
            ):
                with dial(service) as wire:
                    wire.send(before + first)
                    assert not before or wire.response().status == 200
                    wire.send(rest)
                    refused = wire.response()
                    assert_error(refused, status)
                    assert refused.headers["connection"] == "close"
                    wire.assert_closed()


def test_it_is_accepted_and_the_connection_goes_on(service: Running) -> None:
    with dial(service) as wire:
        for name, data in ACCEPTED.items():
            with case(name):
                wire.send(data * 2 + request("GET", "/test"))
                assert [wire.response().body for _ in range(3)] == [b"OK"] * 3


def test_an_absolute_target_means_the_same_as_its_path(service: Running) -> None:
    id = store(service, "Absolute")
    for target in (f"http://elsewhere.example:81/api/stores/{id}", f"HTTP://a/api/stores/{id}?x"):
        with dial(service) as wire:
            wire.send(
                request("GET", target)
                + request("GET", "http://a")
                + request("GET", "http://a?name=x")
            )
            assert wire.response().json["name"] == "Absolute"
            assert_error(wire.response(), 404, "Not Found")
            assert_error(wire.response(), 404, "Not Found")


def test_characters_that_browsers_send_as_they_are_mean_themselves(service: Running) -> None:
    for name in ("Köln", '"<>{}|^\\`', "店"):
        id = store(service, name)
        written = f"/api/stores?name={name}".encode()
        with dial(service) as wire:
            wire.send(get(written) + get(quote(written, safe="/?=").encode()))
            for _ in range(2):
                assert id in [found["id"] for found in wire.response().json]


def test_asterisk_and_connect_have_no_route(service: Running) -> None:
    with dial(service) as wire:
        wire.send(request("OPTIONS", "*") + request("OPTIONS", "/test"))
        assert [wire.response().status for _ in range(2)] == [204, 204]
        wire.send(b"CONNECT http://a/test HTTP/1.1\r\n" + HOST + b"\r\n")
        assert_error(wire.response(), 400)
        wire.assert_closed()

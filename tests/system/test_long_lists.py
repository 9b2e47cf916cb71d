"""Lists that are longer than memory should hold: streamed, in bounded memory, one snapshot."""

import json
from pathlib import Path

import pytest

from storekeeper.domain.stores import Payload
from tests.harness.client import create as store
from tests.harness.client import fill
from tests.harness.linux import peak_memory
from tests.harness.process import Running, serving
from tests.harness.stores import shown
from tests.harness.wire import dial, request, slow_reader

STORES = 32_000
SOME = 30_000
MIB = 2**20


def stores_in(service: Running, target: str) -> int:
    """Read a list as it comes, holding none of it, to its proper end; give how many stores it
    had. Others are served all the while."""
    count = parts = 0
    rest = b""
    with service.socket() as client, dial(service) as other:
        client.sendall(request("GET", target, None, "Connection: close"))
        while data := client.recv(MIB):
            parts += 1
            if parts % 8 == 0:
                other.send(request("GET", f"/api/stores/{parts}"))
                assert other.response().status == 200
            data = rest + data
            count += data.count(b'{"id":')
            rest = data[-5:]  # shorter than what is counted
    assert rest == b"0\r\n\r\n"
    return count


def test_a_list_of_64_megabytes_is_sent_in_little_memory(tmp_path: Path) -> None:
    """All of it, and the half that has one name."""
    fill(tmp_path, (Payload(f"Store {number % 2}", "x" * 2000) for number in range(STORES)))
    with serving(tmp_path) as service:
        before = peak_memory(service)
        assert stores_in(service, "/api/stores") == STORES
        assert stores_in(service, "/api/stores?name=Store%201") == STORES // 2
        assert peak_memory(service) - before < 44 * MIB


@pytest.mark.thorough
def test_a_list_that_streams_while_stores_change_is_one_snapshot(
    fresh: Running, tmp_path: Path
) -> None:
    """Whatever is written while the client reads slowly: it gets what was there when it asked."""
    fill(tmp_path, (Payload(f"Store {number % 10}", "x" * 150) for number in range(SOME)))
    targets = ["/api/stores", "/api/stores?name=Store%207"]
    before = [fresh.request("GET", target).body for target in targets]
    wires = [slow_reader(fresh) for _ in targets]
    for wire, target in zip(wires, targets, strict=True):
        wire.send(request("GET", "/test") + request("GET", target))
        assert wire.response().body == b"OK"
    for id in (1, SOME // 2, SOME - 8, SOME - 2, SOME):
        changed = {"name": "Changed", "address": "while it was read"}
        assert fresh.request("PUT", f"/api/stores/{id}", changed).json["name"] == "Changed"
        assert (
            fresh.request("PUT", f"/api/stores/{id}", changed | {"name": "Store 7"}).status == 200
        )
    assert store(fresh, "Store 7", "is new") == SOME + 1
    for wire, body in zip(wires, before, strict=True):
        with wire:
            assert wire.response().body == body
    after = [json.loads(fresh.request("GET", target).body) for target in targets]
    assert [len(stores) for stores in after] == [SOME + 1, SOME // 10 + 5]
    assert after[0][-1] == after[1][-1] == shown(SOME + 1, "Store 7", "is new")

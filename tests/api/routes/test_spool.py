"""Temporary files of imports and exports: how many there may be at once, and what is not written
into any."""

import gc
from pathlib import Path

import pytest

from storekeeper.api.routes import exports, spool
from storekeeper.api.routes.spool import Spools
from storekeeper.domain.errors import Unavailable
from storekeeper.domain.stores import Payload
from storekeeper.sheets import TYPES
from tests.harness.in_process import exchange, inside
from tests.harness.wire import request


def test_a_file_that_nobody_uses_is_given_back_even_if_it_is_part_of_a_reference_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spool, "COLLECT_INTERVAL", 0)
    spools = Spools(1, "Another one is running")
    cycle: list[object] = [spools.take()]
    with pytest.raises(Unavailable, match="Another one"):
        spools.take()
    cycle.append(cycle)
    del cycle
    spools.take()


async def test_head_of_an_export_writes_no_row_and_leaves_none_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "TIMEOUT", -1)  # looked at after 256 rows
    methods = ["HEAD"] * exports.MAX_EXPORTS * 2 + ["GET"]
    async with inside(tmp_path) as service:
        await service.collection.load([Payload("A")] * 256)
        *heads, get = [
            await exchange(service, request(method, "/api/export?format=xlsx"))
            for method in methods
        ]
    assert {(head.status, head.headers["content-type"]) for head in heads} == {(200, TYPES["xlsx"])}
    assert (get.status, b"too long" in get.body) == (503, True)


def test_a_place_that_is_taken_is_looked_for_among_garbage_only_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full collection takes 15 ms in a process with 3,000 connections."""
    collections: list[None] = []
    monkeypatch.setattr(gc, "collect", lambda: collections.append(None))
    spools = Spools(1, "Another one is running")
    taken = spools.take()
    for _ in range(100):
        with pytest.raises(Unavailable, match="Another one"):
            spools.take()
    assert len(collections) == 1
    taken.release()
    assert spools.take() is not taken

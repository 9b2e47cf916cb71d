"""Temporary files of imports: how many there may be at once."""

import asyncio
import gc
import time
from pathlib import Path

import pytest

from storekeeper.api.routes import imports
from storekeeper.api.routes.spool import Spool, Spools
from storekeeper.domain.errors import Unavailable
from tests.harness.in_process import exchange, inside, settled, statuses, until
from tests.harness.wire import chunked, request


def test_a_place_is_free_once_its_file_is_released_or_nobody_refers_to_it() -> None:
    spools = Spools(1, "Another one is running")
    for release in (Spool.release, lambda _: None):
        taken = spools.take()
        with pytest.raises(Unavailable, match="Another one"):
            spools.take()
        release(taken)
        del taken
    spools.take()


CSV = "Content-Type: text/csv"


def begun(length: int, query: str = "add") -> bytes:
    data = request("POST", f"/api/imports?{query}", None, CSV, f"Content-Length: {length}")
    return data + b"name\n" + b"Store\n" * 2000


def is_slow(*_: object) -> None:
    """Fail on a thread, after the response to its import."""
    time.sleep(0.2)
    raise OSError("the file is closed")


ENDS: dict[str, tuple[bytes, list[int]]] = {
    "is done": (begun(12_005), [200]),
    "is bad": (begun(12_005, "add&map=name=Other"), [400]),
    "has a bad row": (begun(12_006) + b"\xff", [400]),
    "needs something else": (begun(12_005, "match=name&add"), [400]),
    "is slow": (begun(12_005), [503]),
    "is refused by its length": (begun(2**30), [413]),
    "is refused as it comes": (
        chunked(b"name\n", target="/api/imports?add", fields=f"{CSV}\r\n".encode())[:-5] + b"x\r\n",
        [400],
    ),
    "does not come to its end": (begun(13_000), [408]),
    "is left": (begun(13_000), []),
}


@pytest.mark.parametrize("end", ENDS)
async def test_an_import_gives_its_place_back_without_the_garbage_collector(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full collection takes 15 ms in a process with 3,000 connections."""
    data, expected = ENDS[end]
    async with inside(tmp_path) as service:
        monkeypatch.setattr(gc, "collect", NotImplemented)
        gc.disable()
        try:
            with monkeypatch.context() as patched:
                if end == "is slow":
                    patched.setattr(imports, "RESPONSE_TIMEOUT", 0.05)
                    patched.setattr(imports, "_open", is_slow)
                connection, line = service.connect()
                connection.data_received(data)
                if end == "does not come to its end":
                    await until(lambda: not connection.unread)
                    connection.sweep(connection.loop.time() + 1000)
                if end == "is left":
                    await until(lambda: not connection.unread)
                    line.abort()
                    await until(lambda: not service.server_state.connections)
                await settled(connection)
                assert statuses(line) == expected
            if end == "is slow":
                await asyncio.sleep(0.5)
            again = begun(12_005)
            assert (await exchange(service, again)).status == 200
        finally:
            gc.enable()

"""More writes than the disk can take: what cannot be answered in time is refused at once, and
nothing else is."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvloop

from storekeeper.concurrency.batcher import MAX_QUEUED, MAX_WAIT, MIN_QUEUE, Batcher, Queued
from tests.campaigns.load_clients import NEW_STORE
from tests.harness import weakened
from tests.harness.keep_alive import Client
from tests.harness.process import Running, serving

BATCH = 1000


async def serve(requests: Sequence[int], _since: float) -> Sequence[int]:
    return requests


def limit_after(*seconds: float, workers: int = 1) -> int:
    batcher: Batcher[int, int] = Batcher(serve, max_batch=BATCH, workers=workers)
    for took in seconds:
        batcher.record(took)
    return batcher.limit


async def test_who_may_wait_would_be_served_in_time() -> None:
    """Those before its own batch, its own, and the one under way."""
    for took in (0.25, 0.3, 0.5, 0.8, 1.0):
        limit = limit_after(*[took] * 30)
        assert (limit / BATCH + 1) * took <= MAX_WAIT + 0.01
        assert limit == MIN_QUEUE or (limit / BATCH + 1) * took > MAX_WAIT * 0.9


async def test_a_request_keeps_its_first_result_and_one_that_nobody_waits_for_takes_none() -> None:
    served, given_up = (
        Queued(None, 0.0, 0, asyncio.get_running_loop().create_future()) for _ in range(2)
    )
    given_up.future.cancel()
    for result in ("first", "second", OSError()):
        served.settle(result)
        given_up.settle(result)
    assert await served.future == "first"
    assert given_up.future.cancelled()


async def test_a_cold_start_or_one_slow_batch_refuses_nothing() -> None:
    for took in ((), (0.0, 0.001, 0.1), (3.5, *[0.01] * 5)):
        assert limit_after(*took) == MAX_QUEUED
    assert limit_after(100.0) == MIN_QUEUE


async def test_the_pace_is_that_of_all_workers() -> None:
    assert limit_after(1.0, workers=2) == 2 * limit_after(1.0)


# The real thing: 10 writes each 0.1 s.


@contextmanager
def slow(folder: Path, *changes: str) -> Iterator[tuple[Running, Path]]:
    """A service on a disk that is as slow as a file says."""
    file = folder / "seconds"
    file.write_text("0.1")
    environment = weakened.environment("has_a_slow_disk", *changes) | {"SLOW_DISK": str(file)}
    with serving(folder, env=environment, program=weakened.PROGRAM) as service:
        for _ in range(5):
            assert service.request("POST", "/api/stores", {"name": "Before"}).status == 200
        yield service, file


async def _at_once(port: int, count: int) -> list[tuple[int, bytes, float]]:
    clients = [await Client.connect(port) for _ in range(count)]
    began = time.monotonic()

    async def one(client: Client) -> tuple[int, bytes, float]:
        response = await client.exchange("POST", "/api/stores", NEW_STORE)
        return response.status, response.body, time.monotonic() - began

    try:
        return await asyncio.gather(*(one(client) for client in clients))
    finally:
        for client in clients:
            client.close()


def at_once(service: Running, count: int) -> list[tuple[int, bytes, float]]:
    """Send `count` creates at one moment; give status, body and seconds of each."""
    return uvloop.run(_at_once(service.port, count))


def test_the_excess_is_refused_before_what_is_accepted_is_done(tmp_path: Path) -> None:
    """And when the disk is fast again, everything is taken again."""
    with slow(tmp_path) as (service, file):

        def refuses_at_once() -> bool:
            before = len(service.request("GET", "/api/stores").json)
            responses = at_once(service, 400)
            taken = [seconds for status, _, seconds in responses if status == 200]
            refused = [(body, seconds) for status, body, seconds in responses if status == 503]
            assert len(taken) >= MIN_QUEUE
            assert len(taken) + len(refused) == 400
            assert all(
                b'"message":"Too many requests are waiting","outcome":"none"' in body
                for body, _ in refused
            )
            assert len(service.request("GET", "/api/stores").json) == before + len(taken)
            # An order of events, not a time: all were refused before the last of those taken was on
            # the disk.
            return len(refused) > 100 and max(seconds for _, seconds in refused) < max(taken)

        # On a busy machine the clients may be slow, or a batch once more.
        assert any(refuses_at_once() for _ in range(5))
        file.write_text("0")
        assert any({status for status, _, _ in at_once(service, 400)} == {200} for _ in range(5))


@pytest.mark.thorough
def test_that_would_be_seen(tmp_path: Path) -> None:
    """The same with a build that takes all writes: some are refused after much too long a wait."""
    with slow(tmp_path, "takes_all_writes") as (service, _):
        responses = at_once(service, 700)
        assert any(status == 503 and seconds > MAX_WAIT + 1 for status, _, seconds in responses)

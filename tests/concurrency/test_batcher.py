"""Batcher, without a database: whatever happens to a batch, no request waits for ever."""

import asyncio
from collections.abc import Sequence

from storekeeper.concurrency.batcher import QUEUE_TIMEOUT, Batcher
from storekeeper.domain.errors import Unavailable

MIB = 2**20


async def test_what_has_waited_too_long_leaves_nobody_behind_it_without_a_response() -> None:
    go_on = asyncio.Event()

    async def serve(keys: Sequence[int], _since: float) -> Sequence[int]:
        await go_on.wait()
        return keys

    batcher: Batcher[int, int] = Batcher(serve, size=lambda _: MIB)
    first = batcher.add(0)
    await asyncio.sleep(0.01)
    late = [batcher.add(number) for number in range(1, 11)]
    for waiting in batcher._queue:
        waiting.since -= 2 * QUEUE_TIMEOUT  # so much time has passed
    in_time = [batcher.add(number) for number in range(11, 16)]
    go_on.set()
    async with asyncio.timeout(10):
        assert await first == 0
        assert [type(error) for error in await asyncio.gather(*late, return_exceptions=True)] == [
            Unavailable
        ] * 10
        assert await asyncio.gather(*in_time) == [11, 12, 13, 14, 15]
        assert await batcher.add(16) == 16
    # All the room is there again.
    full = [batcher.add(number) for number in range(64)]
    assert await asyncio.gather(*full) == list(range(64))
    await batcher.close()


async def test_as_many_may_wait_as_are_soon_served() -> None:
    async def serve(keys: Sequence[int], _since: float) -> Sequence[int]:
        return keys

    batcher: Batcher[int, int] = Batcher(serve, max_batch=100)
    assert await batcher.add(0) == 0
    assert await asyncio.gather(*map(batcher.add, range(1000))) == list(range(1000))
    await batcher.close()

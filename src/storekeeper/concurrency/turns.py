"""Work that only a few tasks may do at once."""

import asyncio

from storekeeper.domain.errors import Unavailable


class Turns:
    """A context for at most `count` tasks at once. A task that waits for longer than `timeout`
    seconds is refused."""

    def __init__(self, count: int, timeout: float, refusal: str) -> None:
        self._free = asyncio.Semaphore(count)
        self._timeout = timeout
        self._refusal = refusal

    async def __aenter__(self) -> None:
        """Wait for a turn. Raises Unavailable."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._free.acquire()
        except TimeoutError:
            raise Unavailable(self._refusal) from None

    async def __aexit__(self, *_: object) -> None:
        """End the turn."""
        self._free.release()

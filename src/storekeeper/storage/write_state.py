"""Whether this process's writes are refused, and since when; tells the log."""

import asyncio
from collections.abc import Awaitable, Callable

from storekeeper.domain.errors import DISK_STALLED, Unavailable
from storekeeper.log.events import Event, emit

PROBE_BYTES = 2**20
"""Bytes that a probe writes and deletes: on a nearly full disk, a small write may find the last
free pages."""

PROBE_INTERVAL = 5.0
"""Seconds after a probe for which readiness trusts it."""

PROBE_TIMEOUT = 5.0
"""Seconds after which an unfinished probe means that writes are refused."""

CHECK_TIMEOUT = 0.2
"""Seconds that a request for readiness waits for a probe, which goes on without it."""


class WriteState:
    """Writes count as refused from the first refused write until one works. Belongs to the event
    loop.

    `probe` writes PROBE_BYTES to the database and deletes them, behind the writes that wait;
    raises Unavailable if that is refused. Back-pressure is no refusal. `reason` is why writes
    are refused, "" if they are not.
    """

    def __init__(self, probe: Callable[[], Awaitable[None]]) -> None:
        self._probe = probe
        self._loop = asyncio.get_running_loop()
        self.reason = ""
        self._since = self._probe_began = 0.0
        self._probed = -PROBE_INTERVAL
        self._probing: asyncio.Task[None] | None = None

    def refused(self, reason: str) -> None:
        """Record that a write was refused."""
        if not self.reason:
            self._since = self._loop.time()
        self.reason = reason
        emit(Event.WRITES_REFUSED, reason=reason, seconds=round(self._loop.time() - self._since, 1))

    def accepted(self) -> None:
        """Record that a write worked."""
        if self.reason:
            self.reason = ""
            emit(Event.WRITES_ACCEPTED, seconds=round(self._loop.time() - self._since, 1))

    async def refusal(self, *, probe: bool) -> str:
        """Return why writes are refused, "" if they are not; probe after a refusal, or if
        `probe`."""
        now = self._loop.time()
        if (
            (self.reason or probe)
            and self._probing is None
            and now - self._probed >= PROBE_INTERVAL
        ):
            self._probe_began = now
            self._probing = asyncio.create_task(self._run_probe())
        if self._probing is not None:
            await asyncio.wait([self._probing], timeout=CHECK_TIMEOUT)
        if self._probing is not None and self._loop.time() - self._probe_began > PROBE_TIMEOUT:
            self.refused(DISK_STALLED)
        return self.reason

    async def close(self) -> None:
        """Wait for a probe under way; the database must settle it before."""
        if self._probing is not None:
            await asyncio.wait([self._probing])

    async def _run_probe(self) -> None:
        try:
            await self._probe()
        except Unavailable as error:
            self.refused(str(error))
        else:
            self.accepted()
        finally:
            self._probed = self._loop.time()
            self._probing = None

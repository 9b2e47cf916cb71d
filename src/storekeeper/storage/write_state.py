"""Whether this process's writes are refused, and since when; logs that."""

import asyncio
from collections.abc import Awaitable, Callable

from storekeeper.domain.errors import DISK_STALLED, Unavailable
from storekeeper.log.events import Event, emit

PROBE_BYTES = 2**20
"""Bytes that a probe writes and deletes: on a nearly full disk, a small write may find the last
free pages."""

PROBE_INTERVAL = 5.0
"""Seconds for which readiness trusts a probe."""

PROBE_TIMEOUT = 5.0
"""Seconds after which an unfinished probe means that writes are refused."""

RETRY_INTERVAL = 5.0
"""Seconds between two probes while writes are refused, whether or not a client asks."""

CHECK_TIMEOUT = 0.2
"""Seconds that a request for readiness waits for a probe, which then continues without it."""


class WriteState:
    """Writes count as refused from the first refused write until one works. Belongs to the event
    loop.

    `probe` writes PROBE_BYTES to the database and deletes them, after the writes that wait;
    raises Unavailable if that is refused. Back-pressure is not a refusal. `reason` is why writes
    are refused, "" if they are not.
    """

    def __init__(self, probe: Callable[[], Awaitable[None]]) -> None:
        self._probe = probe
        self._loop = asyncio.get_running_loop()
        self.reason = ""
        self._since = self._probe_began = 0.0
        self._probed = -PROBE_INTERVAL
        self._probing: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False

    def refused(self, reason: str) -> None:
        """Record that a write was refused."""
        if not self.reason:
            self._since = self._loop.time()
            self._probe_later()
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
        if (self.reason or probe) and self._loop.time() - self._probed >= PROBE_INTERVAL:
            self._begin_probe()
        if self._probing is not None:
            await asyncio.wait([self._probing], timeout=CHECK_TIMEOUT)
        self._note_stall()
        return self.reason

    def _begin_probe(self) -> None:
        if self._probing is None:
            self._probe_began = self._loop.time()
            self._probing = asyncio.create_task(self._run_probe())

    def _note_stall(self) -> None:
        """Count writes as refused if a probe does not come back."""
        if self._probing is not None and self._loop.time() - self._probe_began > PROBE_TIMEOUT:
            self.refused(DISK_STALLED)

    def _probe_later(self) -> None:
        if not self._closed:
            self._retry = self._loop.call_later(RETRY_INTERVAL, self._probe_again)

    def _probe_again(self) -> None:
        """Probe, and continue to do so until a write works. Otherwise a refusal would outlast its
        cause where no client writes."""
        if self.reason:
            self._note_stall()
            self._begin_probe()
            self._probe_later()

    async def close(self) -> None:
        """Wait for a probe under way, which the database must settle first."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
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

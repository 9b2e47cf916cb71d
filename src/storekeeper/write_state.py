"""Whether this process's writes are refused, and since when; tells the log. Imports the domain and events."""

import asyncio
from collections.abc import Callable

from storekeeper.errors import DISK_STALLED
from storekeeper.events import Event, emit

PROBE_INTERVAL = 1.0
LOG_INTERVAL = 60.0
"""Seconds between two probes while writes are refused, and between two lines of the log that say so."""

MAX_AGE = 5.0
"""Seconds after a probe for which `refusal` trusts it; then it probes anew."""

CHECK_TIMEOUT = 0.2
"""Seconds that `refusal` waits for a probe, which may take longer while the database is locked."""

PROBE_TIMEOUT = 5.0
"""Seconds after which an unfinished probe means that writes are refused: longer than a probe waits for a lock."""


class WriteState:
    """Writes count as refused from the first refused write until a probe succeeds. Belongs to the event loop.

    `begin_probe` starts a probe, a write that changes nothing, at whose end `probed` has to be called. Back-pressure
    is no refusal. `reason` is why writes are refused, "" if they are not.
    """

    def __init__(self, begin_probe: Callable[[], None]) -> None:
        self._begin_probe = begin_probe
        self._loop = asyncio.get_running_loop()
        self.reason = ""
        self._since = self._logged = self._probe_began = 0.0
        self._probed_at = -MAX_AGE
        self._probe: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def refused(self, reason: str) -> None:
        """Record that a write was refused; from now on, probe until one is not."""
        if self._closed:
            return
        began, self.reason = not self.reason, reason
        if began:
            self._since = self._logged = self._loop.time()
            emit(Event.WRITES_REFUSED, reason=reason)
        if self._timer is None:
            self._timer = self._loop.call_later(PROBE_INTERVAL, self._tick)

    def probed(self, reason: str) -> None:
        """Record the end of a probe; `reason` is why it was refused, "" if it was not."""
        if self._probe is not None:
            self._probe.set_result(None)
            self._probe = None
        self._probed_at = self._loop.time()
        if reason:
            self.refused(reason)
        elif self.reason and not self._closed:
            self.reason = ""
            emit(Event.WRITES_ACCEPTED, seconds=round(self._loop.time() - self._since, 1))

    async def refusal(self) -> str:
        """Return why writes are refused, "" if they are not."""
        if not self.reason and self._loop.time() - self._probed_at > MAX_AGE:
            await asyncio.wait([self._start_probe()], timeout=CHECK_TIMEOUT)
            if self._probe is not None and self._loop.time() - self._probe_began > PROBE_TIMEOUT:
                self.refused(DISK_STALLED)
        return self.reason

    def close(self) -> None:
        """Probe no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self._timer = None
        if not self.reason:
            return
        now = self._loop.time()
        if now - self._logged >= LOG_INTERVAL:
            self._logged = now
            emit(Event.WRITES_REFUSED, reason=self.reason, seconds=round(now - self._since, 1))
        self._timer = self._loop.call_later(PROBE_INTERVAL, self._tick)
        self._start_probe()

    def _start_probe(self) -> asyncio.Future[None]:
        if (probe := self._probe) is None:
            self._probe_began = self._loop.time()
            probe = self._probe = self._loop.create_future()
            self._begin_probe()
        return probe

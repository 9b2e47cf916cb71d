"""The clock that dates changes, and whether it can be right. No time is corrected (decision 41)."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from storekeeper.log.events import Event, emit

MAX_ERROR = 24 * 60 * 60 * 1000
"""Milliseconds that the clock may be wrong before that is logged and counted."""

MAX_JUMP = 60 * 1000
"""Milliseconds that the clock may be set ahead or back between two looks before that is logged
and counted."""

_MAX_LOOK = 1000
"""Milliseconds that a look may take; one that takes longer says nothing."""

# It continues while the machine sleeps or the process is stopped. On macOS, CLOCK_MONOTONIC does so
# too.
BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> int:
    """Return the time by the clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _since_boot() -> int:
    """Return how long the machine has run, in milliseconds. No user can set that."""
    return time.clock_gettime_ns(BOOT_CLOCK) // 1_000_000


def utc(at: int) -> str:
    """Return a time in milliseconds since 1970 as people read it, in UTC, to the minute."""
    try:
        return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%dT%H:%M}Z"
    except (ValueError, OverflowError, OSError):  # beyond the year 9999
        return f"{at} ms after 1970"


class ClockWatch:
    """Counts the commits of a process that a wrong clock dated; logs the first for each reason.

    The clock is wrong if it is more than MAX_ERROR before the latest change, or ahead of the time
    since the process started. Either it is wrong now, or it was wrong at the latest change or at
    the start.
    """

    def __init__(self, since_boot: Callable[[], int] = _since_boot) -> None:
        self.wrong_commits = 0
        self.jumps = 0
        """How often the clock was set by more than MAX_JUMP."""
        self._since_boot = since_boot
        self._boot = now() - since_boot()
        """When the machine was started, by the clock when this process was started."""
        self._reason = ""
        """Why the clock was wrong at the latest commit, "" if it was not."""
        self._seen_boot = self._boot

    def look(self) -> None:
        """Take note of a clock that was set since the last look."""
        before = self._since_boot()
        boot = now() - before
        if self._since_boot() - before > _MAX_LOOK:
            return  # the process stood still between the two clocks
        jump = boot - self._seen_boot
        self._seen_boot = boot
        if abs(jump) > MAX_JUMP:
            self.jumps += 1
            emit(Event.CLOCK_JUMPED, seconds=round(jump / 1000))

    def committed(self, clock: int, latest: int) -> None:
        """Check a commit at `clock`; the latest change before it was at `latest`."""
        expected = self._boot + self._since_boot()
        if latest - clock > MAX_ERROR:
            self._report("before the latest change", clock=utc(clock), latest_change=utc(latest))
        elif clock - expected > MAX_ERROR:
            reason = "ahead of the time since the start"
            self._report(reason, clock=utc(clock), expected=utc(expected))
        else:
            self._reason = ""

    def _report(self, reason: str, **times: str) -> None:
        self.wrong_commits += 1
        if reason != self._reason:
            emit(Event.CLOCK_WRONG, reason=reason, **times)
        self._reason = reason


WATCH = ClockWatch()
"""The watch of this process."""

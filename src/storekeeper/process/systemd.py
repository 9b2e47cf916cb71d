"""What the service tells systemd, if that started it (sd_notify(3))."""

import os
import socket
import time
from contextlib import suppress

_FEEDS = 4
"""How often the watchdog is fed within its time: a busy machine may delay a few."""


def notify(message: bytes) -> None:
    """Send a message to systemd; do nothing if there is none."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address.startswith("@"):
        address = address.replace("@", "\0", 1)
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.setblocking(False)
        systemd.sendto(message, address)


class Watchdog:
    """Feeds systemd's watchdog (WatchdogSec= of the unit), if there is one for this process.

    Whatever must not get stuck calls `feed`, from no thread of its own: the event loop, or the
    supervisor of several workers.
    """

    def __init__(self) -> None:
        self._interval = _watchdog_seconds() / _FEEDS
        self._due = 0.0

    def feed(self) -> None:
        """Tell systemd that this process works, unless it was told a moment ago."""
        now = time.monotonic()
        if self._interval and now >= self._due:
            self._due = now + self._interval
            notify(b"WATCHDOG=1")


def _watchdog_seconds() -> float:
    """Return after how many seconds without a message systemd kills this process, 0 if never."""
    if os.environ.get("WATCHDOG_PID") != str(os.getpid()):
        return 0.0
    try:
        return int(os.environ.get("WATCHDOG_USEC", "")) / 1_000_000
    except ValueError:
        return 0.0

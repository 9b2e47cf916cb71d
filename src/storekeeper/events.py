"""The closed list of what may be logged, and how often. Imports `log`; structlog only once something is said."""

import atexit
import os
import sys
from collections import Counter
from enum import StrEnum
from functools import cache
from time import monotonic
from typing import Any

from storekeeper.log import Log

BURST = 10
"""Lines of one event that are written at once; then it is one a second, which says how many were held back."""

FLUSH_TIMEOUT = 0.5
"""Seconds that the end of a process waits for its log."""


class Event(StrEnum):
    """Everything that the service says while it runs; the value is what stands in the log."""

    OPEN_TO_ALL = "open to everybody who can reach this address"
    TOO_MANY_CONNECTIONS = "connection limit reached, closing idle connections"
    SLOW_READERS = "send budget used up, dropping the slowest readers"
    DATABASE_FAILED = "database failed, ending this process"
    DATABASE_DAMAGED = "database is damaged, taking no more writes: restore it from a backup"
    DATABASE_UNREACHABLE = "database cannot be reached, trying again and again"
    DATABASE_REACHABLE = "database can be reached again"
    DATABASE_REFUSED = "database refused a statement"
    WORKER_LOST = "worker lost, starting another"
    WORKER_CANNOT_START = "worker cannot start"
    BUG = "bug"
    SERVER = "server"
    DROPPED = "log lines dropped, nobody read them"


_LEVELS = {
    Event.OPEN_TO_ALL: "warning",
    Event.TOO_MANY_CONNECTIONS: "warning",
    Event.SLOW_READERS: "warning",
    Event.WORKER_LOST: "warning",
    Event.DATABASE_FAILED: "critical",
    Event.DATABASE_DAMAGED: "critical",
    Event.DATABASE_UNREACHABLE: "error",
    Event.DATABASE_REFUSED: "error",
    Event.WORKER_CANNOT_START: "critical",
    Event.BUG: "error",
    Event.SERVER: "warning",
    Event.DROPPED: "warning",
}

held_back: Counter[Event] = Counter()
_due: dict[Event, float] = {}
"""The second from which an event's next line may be written; it may be `BURST` seconds ahead of the clock."""


def emit(event: Event, **fields: Any) -> None:
    """Log an event, one line on stderr. An exception under way, passed as `error`, brings its traceback.

    Nobody waits for it. A log that cannot be written, because its reader has gone, does not read, or its disk is
    full, is no reason to do anything else.
    """
    if not _allowed(event):
        held_back[event] += 1
        return
    if held := held_back.pop(event, 0):
        fields["held_back"] = held
    error = fields.pop("error", None)
    if error is not None:
        fields["exc_info"] = error
    _write(_line(event, fields))


def say(line: str) -> None:
    """Write a line that is no event."""
    _write(f"{line}\n".encode(errors="backslashreplace"))


def say_held_back() -> None:
    """Log, for each event, how many of it were not, as nobody may come who says it."""
    for event, count in list(held_back.items()):
        _write(_line(event, {"held_back": count}))
    held_back.clear()


def flush(timeout: float = FLUSH_TIMEOUT) -> None:
    """Wait until all is written that was logged, but not for long."""
    say_held_back()
    if log := _log():
        log.flush(timeout)


def _allowed(event: Event) -> bool:
    now = monotonic()
    due = max(_due.get(event, 0.0), now - BURST + 1)
    if due > now:
        return False
    _due[event] = due + 1
    return True


def _write(line: bytes) -> None:
    if log := _log():
        log.write(line)


def _line(event: Event, fields: dict[str, Any]) -> bytes:
    level = _LEVELS.get(event, "info")
    try:
        text: str = getattr(_logger(), level)(event.value, **fields)
    except (OSError, ImportError, MemoryError):  # no file can be opened for what that imports
        text = " ".join([f'level={level} event="{event}"', *(f"{name}={value!r}" for name, value in fields.items())])
    return f"{text}\n".encode(errors="backslashreplace")


@cache
def _log() -> Log | None:
    try:
        file = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # there is none: another file may have its number
        return None
    os.register_at_fork(after_in_child=_log.cache_clear)
    atexit.register(flush)
    return Log(file, lambda count: _line(Event.DROPPED, {"lines": count}))


@cache
def _logger() -> Any:
    # Importing structlog takes long; a service that has nothing to say does not pay for it.
    import structlog  # noqa: PLC0415

    return structlog.wrap_logger(
        structlog.ReturnLogger(),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
    )

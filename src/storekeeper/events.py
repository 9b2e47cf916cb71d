"""The closed list of what may be logged. Imports nothing of the project; structlog only once something is said."""

from contextlib import suppress
from enum import StrEnum
from functools import cache
from typing import Any


class Event(StrEnum):
    """Everything that the service says while it runs; the value is what stands in the log."""

    OPEN_TO_ALL = "open to everybody who can reach this address"
    TOO_MANY_CONNECTIONS = "more connections than there is room for"
    SLOW_READERS = "clients that do not read hold too much, giving up the oldest"
    DATABASE_FAILED = "database failed, ending this process"
    DATABASE_DAMAGED = "database is damaged, taking no more writes: restore it from a backup"
    DATABASE_AWAY = "database cannot be reached, trying again and again"
    DATABASE_BACK = "database can be reached again"
    DATABASE_REFUSED = "database refused a statement"
    WORKER_LOST = "worker lost, starting another"
    WORKER_CANNOT_START = "worker cannot start"
    BUG = "bug"
    SERVER = "server"


_LEVELS = {
    Event.OPEN_TO_ALL: "warning",
    Event.TOO_MANY_CONNECTIONS: "warning",
    Event.SLOW_READERS: "warning",
    Event.WORKER_LOST: "warning",
    Event.DATABASE_FAILED: "critical",
    Event.DATABASE_DAMAGED: "critical",
    Event.DATABASE_AWAY: "error",
    Event.DATABASE_REFUSED: "error",
    Event.WORKER_CANNOT_START: "critical",
    Event.BUG: "error",
    Event.SERVER: "warning",
}


def emit(event: Event, **fields: Any) -> None:
    """Log an event, one line on stderr. An exception under way, passed as `error`, brings its traceback.

    A log that cannot be written, because its reader has gone or its disk is full, is no reason to do anything else.
    """
    error = fields.pop("error", None)
    if error is not None:
        fields["exc_info"] = error
    with suppress(OSError, ValueError):
        getattr(_logger(), _LEVELS.get(event, "info"))(event.value, **fields)


@cache
def _logger() -> Any:
    # Importing structlog takes long; a service that has nothing to say does not pay for it.
    import sys  # noqa: PLC0415

    import structlog  # noqa: PLC0415

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    return structlog.get_logger()

"""The events that the service logs, and how often."""

import asyncio
import atexit
import json
import logging
import os
import sys
from collections import Counter
from contextlib import suppress
from contextvars import ContextVar
from enum import Enum
from functools import cache
from time import monotonic
from typing import Any, Literal, cast

from storekeeper.log.thread import Log

BURST = 10
"""Lines of one event that are logged at once. After them, one line a second has the number of
those that were suppressed."""

REMINDER_INTERVAL = 60.0
"""Seconds between two lines of an event of `_REMINDED`."""

FLUSH_TIMEOUT = 0.5
"""Seconds that a process waits at its end for its log to be written."""


class Event(Enum):
    """Every event that the service logs: its level, and its text in the log."""

    RESPONSE = "info", "response"
    STARTED = "info", "started"
    STOPPED = "info", "stopped"
    OPEN_TO_ALL = "warning", "everybody who can reach this address may read and write"
    TOO_MANY_CONNECTIONS = "warning", "connection limit reached, closing idle connections"
    SLOW_READERS = "warning", "send budget used up, closing the slowest readers"
    WRONG_TOKENS = "warning", "requests with wrong tokens were refused"
    DATABASE_FAILED = "critical", "database failed, ending this process"
    DATABASE_DAMAGED = "critical", "database is damaged, refusing writes: restore it from a backup"
    DATABASE_UNREACHABLE = "error", "database unreachable, retrying"
    DATABASE_REACHABLE = "info", "database reachable again"
    DATABASE_REFUSED = "error", "database refused a statement"
    WRITES_REFUSED = "error", "writes are refused"
    WRITES_ACCEPTED = "info", "writes work again"
    CLOCK_WRONG = "warning", "the clock is or was wrong by over a day"
    CLOCK_JUMPED = "warning", "the clock was set by over a minute"
    TOKEN_ADDED = "info", "token added"
    TOKEN_USED = "info", "token used for the first time"
    TOKEN_REVOKED = "info", "token revoked"
    TOKEN_EXPIRED = "info", "token expired"
    TOKEN_LOST = "warning", "token is no longer in the database"
    TOKEN_VALID_AGAIN = "warning", "revoked token is valid again"
    EPOCH_CHANGED = "warning", "epoch changed"
    RESTORED = "warning", "list was restored"
    WORKER_LOST = "warning", "worker lost, starting another"
    WORKER_CANNOT_START = "critical", "worker cannot start"
    READER_ENDED = "error", "the process that reads files ended early"
    BUG = "error", "bug"
    SERVER = "warning", "server"
    DROPPED = "warning", "log lines dropped because nothing read them"


_ENDS = {
    Event.WRITES_ACCEPTED: Event.WRITES_REFUSED,
    Event.DATABASE_REACHABLE: Event.DATABASE_UNREACHABLE,
}
"""Events that end what another one reports: when that begins again, it is logged at once."""

_REMINDED = frozenset(
    (Event.TOO_MANY_CONNECTIONS, Event.SLOW_READERS, Event.WRONG_TOKENS, *_ENDS.values())
)
"""Events that report many requests, or a lasting state."""

_EACH = frozenset(
    (
        Event.RESPONSE,
        Event.TOKEN_ADDED,
        Event.TOKEN_USED,
        Event.TOKEN_REVOKED,
        Event.TOKEN_EXPIRED,
        Event.TOKEN_LOST,
        Event.TOKEN_VALID_AGAIN,
    )
)
"""Events whose every line tells something else, so that none is suppressed."""

request_id = ContextVar("request_id", default=b"")
"""The id of the request that runs; a bug is logged with it."""

suppressed: Counter[Event] = Counter()
_format = "logfmt"
_due: dict[Event, float] = {}
"""For each event, the monotonic time from which its next line may be logged."""


def emit(event: Event, **fields: Any) -> None:
    """Log an event as one line on stderr; an exception in `error` adds its traceback.

    The service never waits for the log: it continues if nothing reads the log, or if its disk is
    full.
    """
    if (ended := _ENDS.get(event)) is not None:
        _due.pop(ended, None)
        suppressed.pop(ended, None)
    if not _allowed(event):
        suppressed[event] += 1
        return
    if event is Event.BUG and (id := request_id.get()):
        fields["request_id"] = id.decode()
    if count := suppressed.pop(event, 0):
        fields["suppressed"] = count
    if error := fields.pop("error", None):
        fields["exc_info"] = error
    write_line(_line(event, fields))


def write_line(line: str) -> None:
    """Write a line that is not about an event."""
    if log := _log():
        log.write(_encoded(line))


def flush() -> None:
    """Wait until all logged lines are written, at most FLUSH_TIMEOUT seconds."""
    for event, count in list(suppressed.items()):  # no later line may report them
        write_line(_line(event, {"suppressed": count}))
    suppressed.clear()
    if log := _log():
        log.flush(FLUSH_TIMEOUT)


def use_format(name: Literal["logfmt", "json"]) -> None:
    """Log in this format from now on. Call this before another thread runs: see `_structlog`."""
    global _format  # noqa: PLW0603 - a process has one log
    _format = name
    _logger.cache_clear()
    with suppress(OSError, ImportError, MemoryError):  # a line is logged without structlog then
        _logger()


def _allowed(event: Event) -> bool:
    if event in _EACH:
        return True
    now = monotonic()
    burst, pause = BURST, 1.0
    if event in _REMINDED:
        burst, pause = 1, REMINDER_INTERVAL
    due = max(_due.get(event, 0.0), now - (burst - 1) * pause)
    if due > now:
        return False
    _due[event] = due + pause
    return True


def _line(event: Event, fields: dict[str, Any]) -> str:
    level, text = event.value
    try:
        return str(getattr(_logger(), level)(text, **fields))
    except (OSError, ImportError, MemoryError):  # no file can be opened to import structlog
        line = f'level={level} event="{text}"'
        for name, value in fields.items():
            line += f" {name}={value!r}"
        return line


def _encoded(line: str) -> bytes:
    if not line.isprintable():  # bytes of a client would move the cursor of a terminal
        line = "".join(map(_printable, line))
    return f"{line}\n".encode()


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


@cache
def _log() -> Log | None:
    try:
        file = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # no stderr: its number may be another file's
        return None
    os.register_at_fork(after_in_child=_log.cache_clear)
    atexit.register(flush)
    return Log(file, lambda count: _encoded(_line(Event.DROPPED, {"lines": count})))


@cache
def _logger() -> Any:
    structlog = _structlog()
    if _format == "json":
        render = structlog.processors.JSONRenderer(_json)
    else:
        render = structlog.processors.LogfmtRenderer(
            key_order=["timestamp", "level", "event"], bool_as_flag=False
        )
    return structlog.wrap_logger(
        structlog.ReturnLogger(),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            render,
        ],
    )


def _json(line: Any, **options: Any) -> str:
    return json.dumps(line, **options).replace("\x7f", r"\u007f")


def _structlog() -> Any:
    """Import structlog, which takes long: a command that logs nothing does not pay for it.

    Half of that time is for Rich, with which structlog would colour tracebacks. Python calls a
    module not installed if None is in its place: so no other thread may import Rich meanwhile.
    """
    modules = cast("dict[str, Any]", sys.modules)
    is_absent = modules.setdefault("rich", None) is None
    try:
        import structlog  # noqa: PLC0415 - see above
    finally:
        if is_absent:
            del modules["rich"]
    return structlog


def bridge_log() -> None:
    """Send the warnings and errors of uvicorn, asyncio and other libraries to the log of the
    service."""
    logging.getLogger().handlers = [_Bridge()]
    logging.getLogger().setLevel(logging.WARNING)


class _Bridge(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        # A second signal cancels what the first one lets finish.
        if not isinstance(error, asyncio.CancelledError):
            emit(Event.SERVER, message=record.getMessage(), error=error)

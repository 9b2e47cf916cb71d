"""How changes are followed: by a stream of events, or, where none gets through, by polls.

No I/O: `sync` and `aio` send the requests, and hand in what comes.
"""

import json
import time
from collections.abc import Iterator, Mapping
from typing import TypeAlias
from urllib.parse import urlencode

from storekeeper.client.core import CHANGES, PAGE, PAUSES, Reply, Request, is_final, refusal
from storekeeper.client.errors import EpochEnded
from storekeeper.client.model import Change, Reset, change_of, changes_of

Event: TypeAlias = Change | Reset

SILENCE = 40.0
"""Seconds without a byte after which a stream is broken: the service sends a comment every 15 s."""

POLL_INTERVAL = 1.0
"""Seconds between two polls that find nothing."""

STREAM_AGAIN = 60.0
"""Seconds of polls after which a stream is tried again."""


class Follower:
    """Where a client has got to in the history, and how it continues."""

    def __init__(self, cursor: str) -> None:
        self.cursor = cursor
        """The cursor of the last event that was returned."""
        self.streams = True
        """Whether the next request is to be a stream."""
        self._failures = 0
        self._heard = False
        self._rest = b""
        self._event: dict[str, str] = {}
        self._polls_until = 0.0

    @property
    def pause(self) -> float:
        """Seconds to wait before the next request."""
        if self._failures:
            return PAUSES[min(self._failures, len(PAUSES)) - 1]
        return 0.0 if self.streams else POLL_INTERVAL

    def request(self) -> Request:
        """Return the next request: a stream if `streams`, otherwise a poll."""
        self._rest, self._event, self._heard = b"", {}, False
        if not self.streams and time.monotonic() >= self._polls_until:
            self.streams = True
        if self.streams:
            query = urlencode({"after": self.cursor})
            return Request("GET", f"{CHANGES}?{query}", {"accept": "text/event-stream"})
        query = urlencode({"after": self.cursor, "limit": PAGE})
        return Request("GET", f"{CHANGES}?{query}")

    def opened(self, status: int, fields: Mapping[str, str]) -> bool:
        """Return whether a stream has begun; raise Refused if the service refuses it."""
        if status == 200 and fields.get("content-type", "").startswith("text/event-stream"):
            return True
        if 400 <= status < 500:
            raise refusal(Reply(status, fields, b""))
        # No stream gets through, or too many clients listen.
        self._poll()
        return False

    def lost(self) -> None:
        """Note that a request got no complete response, or that a stream has ended."""
        # A proxy that holds a stream back sends nothing of it.
        if self.streams and (self._failures or not self._heard):
            self._poll()
        self._failures += 1

    def received(self, part: bytes) -> Iterator[Event]:
        """Yield the events in what has come of a stream."""
        self._failures = 0
        self._heard = True
        # Not `str.splitlines`: an address may contain other line ends.
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            text = line.removesuffix(b"\r").decode()
            if text:
                name, _, value = text.partition(":")
                self._event[name] = value.removeprefix(" ")
                continue
            event = self._take()
            if event is not None:
                self.cursor = event.cursor
                yield event

    def polled(self, reply: Reply) -> Iterator[Event]:
        """Yield the events in the response to a poll; raise Refused if it is a refusal."""
        if not is_final(reply):
            self._failures += 1
            return
        self._failures = 0
        if reply.status >= 400:
            error = refusal(reply)
            if not isinstance(error, EpochEnded):
                raise error
            self.cursor = error.cursor
            yield Reset(error.cursor)
            return
        for change in changes_of(reply.body):
            self.cursor = change.cursor
            yield change

    def _poll(self) -> None:
        self.streams = False
        self._polls_until = time.monotonic() + STREAM_AGAIN

    def _take(self) -> Event | None:
        event, self._event = self._event, {}
        cursor = event.get("id", "")
        if event.get("event") == "reset":
            return Reset(cursor)
        if event.get("event") == "change":
            return change_of(json.loads(event["data"]), cursor.partition(".")[2])
        return None

"""A client that listens to changes, as server-sent events over a real socket. Quick to import."""

import json
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import Any, NamedTuple, Self

from tests.harness.process import TIMEOUT, Running


class Message(NamedTuple):
    """What is between two empty lines; `event` is "" if there is no data, ":" for a comment."""

    event: str
    id: str
    data: Any = None


class Listener:
    """A stream of changes; iterating over it returns each message until the stream ends, complete
    or not.

    Its `cursor` is what a browser would send as Last-Event-ID.
    """

    def __init__(
        self,
        service: Running,
        query: str = "",
        headers: dict[str, str] | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        self._connection = service.connection(timeout)
        self._connection.request(
            "GET", f"/api/changes{query}", headers={"accept": "text/event-stream"} | (headers or {})
        )
        self._response = self._connection.getresponse()
        self.status = self._response.status
        self.headers = {name.lower(): value for name, value in self._response.getheaders()}
        self.cursor = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()
        self._connection.close()

    def __iter__(self) -> Iterator[Message]:
        fields: dict[str, str] = {}
        for line in self._lines():
            if line:
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
                continue
            self.cursor = fields.get("id", self.cursor)
            event = ":" if "" in fields else fields.get("event", "")
            yield Message(event, fields.get("id", ""), json.loads(fields.get("data", "null")))
            fields = {}

    def until(self, done: Callable[[Message], bool]) -> list[Message]:
        """Return all messages up to this one; raise AssertionError if the stream ends, or takes
        long, before that."""
        found = []
        deadline = time.monotonic() + TIMEOUT
        for message in self:
            found.append(message)
            if done(message):
                return found
            assert time.monotonic() < deadline
        raise AssertionError(f"the stream ended after {found}")

    def changes(self, count: int) -> list[Any]:
        """Return the data of this many changes."""
        left = iter(range(count - 1, -1, -1))
        found = self.until(lambda message: message.event == "change" and next(left) == 0)
        return [message.data for message in found if message.event == "change"]

    def read_to_the_end(self) -> list[Message]:
        """Return all messages until the stream ends."""
        return list(self)

    def _lines(self) -> Iterator[str]:
        try:
            while line := self._response.readline():
                yield line.decode().rstrip("\n")
        except (HTTPException, ConnectionError):  # the last message was cut off
            return

"""Domain: changes as clients see them, and cursors."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from storekeeper.domain.errors import EpochEnded
from storekeeper.domain.stores import MAX_INTEGER

DEFAULT_LIMIT = 100
"""Changes of a page, unless the client says otherwise."""

MAX_PAGE_BYTES = 2**20 - 128
"""Bytes of the changes of a page, which has one at least (decision 51); with the rest of its
body they are 1 MiB."""

_CURSOR = re.compile(rb"(0|[1-9][0-9]{0,18})(?:\.([a-z2-7]{8}))?")
_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_encode = msgspec.json.Encoder().encode


class Cursor(NamedTuple):
    """A place in the feed (decision 40): after the change `seq`, None for the latest one.
    `epoch` may be ""."""

    seq: int | None = 0
    epoch: str = ""

    def __str__(self) -> str:
        return f"{self.seq}.{self.epoch}"

    def number(self, version: int, epoch: str) -> int:
        """Return the number of the change that it comes after; raise EpochEnded if a collection
        has no such place."""
        if self.epoch not in ("", epoch) or (self.seq or 0) > version:
            present = f"{version}.{epoch}"
            raise EpochEnded(
                "The cursor is of another history: read the list again, and continue from"
                f" {present}",
                present,
            )
        return version if self.seq is None else self.seq


NOW = Cursor(None)


def parse_cursor(value: bytes) -> Cursor | None:
    """Return the cursor that a text names, `NOW` for "now", or None if it names none."""
    if value == b"now":
        return NOW
    found = _CURSOR.fullmatch(value)
    if found is None or (seq := int(found[1])) > MAX_INTEGER:
        return None
    return Cursor(seq, (found[2] or b"").decode())


class ChangesQuery(NamedTuple):
    """Which changes a page has: the first `limit` after the cursor `after`, of all stores or of
    one.

    With `newest_first`, those before the cursor, the latest first; before `NOW` are all.
    """

    after: Cursor = Cursor()
    limit: int = DEFAULT_LIMIT
    store: int | None = None
    newest_first: bool = False


class Change(NamedTuple):
    """A change, the name of the token that wrote it and the user whom a trusted proxy named, and
    what the store was before it.

    `at` is in milliseconds since 1970. `previous` is the number of the store's change before
    this one, None for the change that created the store.
    """

    seq: int
    id: int
    name: str
    address: str | None
    at: int
    by: str | None
    user: str | None
    previous: int | None
    previous_name: str | None
    previous_address: str | None

    def encode(self, *, with_by: bool) -> bytes:
        """Return the change as JSON; its `by` is shown to clients with a token only (decision
        45)."""
        at = (_1970 + timedelta(milliseconds=self.at)).isoformat(timespec="milliseconds")
        shown: dict[str, Any] = {
            "seq": self.seq,
            "type": "created" if self.previous is None else "replaced",
        }
        shown["at"] = at.replace("+00:00", "Z")
        if with_by and self.by is not None:
            shown["by"] = self.by
        if with_by and self.user is not None:
            shown["user"] = self.user
        shown["store"] = {"id": self.id, "name": self.name, "address": self.address}
        before = {"name": self.previous_name, "address": self.previous_address}
        shown["previous"] = None if self.previous is None else before
        return _encode(shown)


class ChangesPage(NamedTuple):
    """Changes in the order of their query; `version` and `epoch` are the collection's, of the
    same moment."""

    changes: Sequence[Change]
    version: int
    epoch: str

    def encode(self, *, with_by: bool, size: int = 0) -> list[bytes]:
        """Return as many of the changes as a page may have bytes of that has `size` already,
        each as JSON."""
        encoded = list[bytes]()
        for change in self.changes:
            data = change.encode(with_by=with_by)
            if size and size + len(data) > MAX_PAGE_BYTES:
                break
            encoded.append(data)
            size += len(data) + 1  # and a comma
        return encoded

"""Domain: changes as clients see them, and the one statement that selects a page. Imports only the domain."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from storekeeper.tables import MAX_INTEGER

DEFAULT_LIMIT = 100
"""Changes of a page, unless the client says otherwise."""

MAX_PAGE_BYTES = 2**20
"""Bytes at which a page ends; it has one change at least (decision 51)."""

_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_encode = msgspec.json.Encoder().encode


class ChangesQuery(NamedTuple):
    """Which changes a page has: the first `limit` behind the number `after`, of all stores or of one.

    With `newest_first`, those before the number `after`, the latest first.
    """

    after: int = 0
    limit: int = DEFAULT_LIMIT
    store: int | None = None
    newest_first: bool = False


class Change(NamedTuple):
    """A row of `statement`: a change, the name of the token that wrote it, and what the store was before it.

    `at` is in milliseconds since 1970. `previous` is the number of the store's change before this one, None for the
    change that created the store.
    """

    seq: int
    id: int
    name: str
    address: str | None
    at: int
    by: str | None
    previous: int | None
    previous_name: str | None
    previous_address: str | None

    def encode(self, *, with_by: bool) -> bytes:
        """Return the change as JSON; its `by` is shown to clients with a token only (decision 45)."""
        at = (_1970 + timedelta(milliseconds=self.at)).isoformat(timespec="milliseconds")
        shown: dict[str, Any] = {"seq": self.seq, "type": "created" if self.previous is None else "replaced"}
        shown["at"] = at.replace("+00:00", "Z")
        if with_by and self.by is not None:
            shown["by"] = self.by
        shown["store"] = {"id": self.id, "name": self.name, "address": self.address}
        before = {"name": self.previous_name, "address": self.previous_address}
        shown["previous"] = None if self.previous is None else before
        return _encode(shown)


class ChangesPage(NamedTuple):
    """Changes in the order of their query, and the collection's version when they were read, or later."""

    changes: Sequence[Change]
    version: int
    epoch: str

    def encode(self, *, with_by: bool) -> list[bytes]:
        """Return as many of the changes as a page may have bytes of, each as JSON."""
        encoded, size = list[bytes](), 0
        for change in self.changes:
            encoded.append(change.encode(with_by=with_by))
            size += len(encoded[-1])
            if size > MAX_PAGE_BYTES:
                return encoded[:-1] or encoded
        return encoded


def statement(query: ChangesQuery, table: str = "changes") -> tuple[str, tuple[int, ...]]:
    """Return the statement that selects a page, in the words of both databases, and its parameters.

    It finds by the lengths alone where the page ends, so that no content is loaded behind that.
    """
    order, is_behind = ("DESC", "<") if query.newest_first else ("ASC", ">")
    of_store, limit = ("", "$2") if query.store is None else (" AND store_id = CAST($2 AS bigint)", "$3")

    def of(seq: str, column: str) -> str:
        return f"(SELECT {column} FROM {table} AS one WHERE one.seq = {seq})"  # noqa: S608 - of constants alone

    text = f"""WITH page AS (
        SELECT seq, store_id, at, token_number FROM {table} WHERE seq {is_behind} CAST($1 AS bigint){of_store}
        ORDER BY seq {order} LIMIT CAST({limit} AS bigint)),
      pairs AS (
        SELECT page.*, (SELECT max(seq) FROM {table} AS earlier
          WHERE earlier.store_id = page.store_id AND earlier.seq < page.seq) AS previous FROM page),
      sized AS (
        SELECT pairs.*, sum(coalesce({of("pairs.seq", "octet_length(address)")}, 0)
            + coalesce({of("pairs.previous", "octet_length(address)")}, 0))
          OVER (ORDER BY seq {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM pairs)
      SELECT seq, store_id, {of("sized.seq", "name")}, {of("sized.seq", "address")}, at,
        (SELECT name FROM tokens WHERE number = token_number),
        previous, {of("previous", "name")}, {of("previous", "address")}
      FROM sized WHERE coalesce(before, 0) < {MAX_PAGE_BYTES} ORDER BY seq {order}"""  # noqa: S608 - as above
    values = (min(query.after, MAX_INTEGER), *(() if query.store is None else (query.store,)), query.limit)
    return text, values

"""Domain: which stores a read asks for, and at what moment (decisions 38 and 40)."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from storekeeper.domain.changes import NOW, parse_cursor
from storekeeper.domain.errors import EpochEnded, InvalidInput, Unavailable
from storekeeper.domain.parameters import Parameter
from storekeeper.domain.reasons import Reason, Violation
from storekeeper.domain.search import Search
from storekeeper.domain.selection import Selection

_TIME = re.compile(
    rb"([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2})(?:\.([0-9]+))?Z"
)
_1970 = datetime(1970, 1, 1, tzinfo=UTC)


class State(NamedTuple):
    """The collection's numbers: how many stores it has, its version, and the epoch that the
    version belongs to."""

    total: int
    version: int
    epoch: str


class Moment(NamedTuple):
    """A moment of the past (decision 40): the version `seq`, or the latest change up to `time`
    in ms since 1970.

    `epoch` is the one that the client named, "" if it named none. `check_moment` refuses moments
    that the collection does not have.
    """

    seq: int | None = None
    epoch: str = ""
    time: int | None = None


def parse_moment(value: bytes) -> Moment | None:
    """Return the moment that a text names (decision 40), None if it names none. Raises ValueError
    for a day that does not exist."""
    cursor = parse_cursor(value)
    if cursor is not None and cursor != NOW:
        return Moment(*cursor)
    time = _TIME.fullmatch(value)
    if time is None:
        return None
    second = datetime.fromisoformat(time[1].decode() + "+00:00")
    # No change has a finer time than milliseconds, so what is cut off excludes no change.
    milliseconds = (time[2] or b"").ljust(3, b"0")[:3]
    return Moment(time=(second - _1970) // timedelta(milliseconds=1) + int(milliseconds))


AT = Parameter(
    parse_moment,
    "a version, a cursor, or a time in UTC that ends in Z",
    excludes=("name", "q"),
)
"""The moment of a request or a command."""


def check_moment(moment: Moment, version: int, epoch: str, now: int) -> None:
    """Raise EpochEnded if a moment is of another epoch, InvalidInput if it is later than `now`,
    in ms since 1970."""
    if moment.epoch not in ("", epoch):
        raise EpochEnded(
            f"The epoch {moment.epoch} has ended: the collection's is {epoch} now",
            f"{version}.{epoch}",
        )
    if (moment.seq or 0) > version or (moment.time or 0) > now:
        violation = Violation(Reason.IN_FUTURE, "must not be later than now")
        raise InvalidInput("query", {"at": violation})


def check_history(state: State, version: int, epoch: str) -> None:
    """Raise Unavailable if the collection, whose numbers are these now, can no longer be read as of
    `state`."""
    # Otherwise other changes have the same numbers, or will have them.
    if epoch != state.epoch or version < state.version:
        raise Unavailable("The database was restored while the list was read")


class Query(msgspec.Struct, frozen=True):
    """Which stores a list has: all, those of exactly that `name`, code point by code point, or
    those of a `search`.

    Of these, the list has the first `limit` (1 to 1000; None: all) whose ids are greater than
    `after`, which is not negative. With `at`, it has them as they were at that moment; then
    `name` is None. With a search, which may put one store first, there is a limit, but neither a
    name nor a moment. A `selection` filters and sorts these, with a limit, without `at` and
    `after`.
    """

    name: str | None = None
    after: int = 0
    limit: int | None = None
    at: Moment | None = None
    search: Search | None = None
    selection: Selection | None = None

    @property
    def has_filter(self) -> bool:
        """Whether it may leave out stores, besides by `after` and `limit`."""
        if self.selection is not None and self.selection.has_filter:
            return True
        return self.name is not None or self.search is not None

    def found(self, ids: Sequence[int], count: int) -> tuple[list[int], Sequence[int], int | None]:
        """Return the page of a search: which store comes first, which others follow, and
        `Listing.last`.

        `ids` are all that `sql.search_statement` finds, or more than `limit` of them; `count` is
        how many stores there are.
        """
        assert self.search is not None
        assert self.limit is not None
        first: list[int] = []
        if 0 < self.search.id <= count and not self.search.follows:
            first.append(self.search.id)
        room = self.limit - len(first)
        if len(ids) <= room:
            return first, ids, None
        if room == 0:  # the next page begins where this one did
            return first, [], self.after
        return first, ids[:room], ids[room - 1]

    def ids(self, count: int) -> tuple[range, int | None]:
        """Return which of the ids 1 to `count` a query without a name asks for, and
        `Listing.last` for them."""
        end = count
        if self.limit is not None:
            end = min(count, self.after + self.limit)
        last = None if end >= count else end
        return range(self.after + 1, end + 1), last

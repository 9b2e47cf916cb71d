"""Domain: what any database must promise, in words. Imports only the domain.

A developer who adds a database reads this file, then makes `tests/test_collection.py` pass for it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from storekeeper.stores import Payload, Store

T = TypeVar("T")
Answer: TypeAlias = T | asyncio.Future[T]
"""A value that is there now, or a future of it: an embedded database answers reads at once."""

T_co = TypeVar("T_co", covariant=True)


class Pending(Awaitable[T_co], Protocol[T_co]):
    """What is going to have a result or an exception, on the event loop; every `asyncio.Future` is one."""

    def done(self) -> bool:
        """Tell whether it is decided."""
        ...

    def result(self) -> T_co:
        """Give the result, or raise the exception."""
        ...

    def exception(self) -> BaseException | None:
        """Give the exception, if it is one."""
        ...

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Have the callback called, with this, when it is decided; on the event loop, never at once."""
        ...


CREATE = 0
"""The id of a write that creates; the collection assigns the real one."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Stores as JSON in UTF-8, ascending by id: `first` is the inside of an array, `rest` what follows it.

    `rest` is None when `first` is everything. Each part that it gives starts with a comma, so that the
    parts only have to be sent one after another. All parts are of one snapshot, however slowly they are read.
    """

    first: bytes
    rest: AsyncIterator[bytes] | None = None


class Collection(Protocol):
    """One list of stores. Every method belongs to one event loop and does not block it.

    - **Ids** are 1..n without a hole and without a duplicate, in the order of the creates, with any number
      of processes and machines on one database, whatever crashes (decision 25).
    - **Durable:** a write has a result only when the write would survive a power cut.
    - **Atomic:** a write that failed left nothing behind, and its neighbours in a batch are as if it had
      never been. A store and its change are written together.
    - **Linearizable:** a read sees every write that was acknowledged before the read began, by whatever
      process. A listing is one snapshot that does so.
    - **Versions:** every write is one change; changes are numbered 1, 2, 3, … without a hole, and a store's
      `version` is the number of its latest change.
    - **Errors:** `Unavailable`, raised or as the exception of what is pending, whenever the database cannot
      answer; its `outcome` says whether a write may have happened. At most 5 s pass before it (decision 30);
      `load` waits for others for up to a minute, and raises CannotStart if the operator has to change something.
    """

    def get(self, id: int) -> Answer[Store | None]:
        """Give the store of that id, None if there is none. `id` may be any non-negative integer."""
        ...

    def list(self, name: str | None = None) -> Answer[Listing]:
        """Give all stores, or those of exactly that `name`, code point by code point."""
        ...

    def create(self, payload: Payload) -> Pending[Store]:
        """Add a store; its id is the number of stores before, plus one."""
        ...

    def replace(self, id: int, payload: Payload) -> Pending[Store | None]:
        """Replace name and address of a store; None, and nothing changed, if there is none of that id."""
        ...

    async def load(self, payloads: Iterable[Payload], *, only_if_empty: bool = False) -> int:
        """Create all of `payloads` in their order in one transaction, all or none; give how many.

        Reads them once and holds none of them. With `only_if_empty`, a collection that has stores is left
        as it is and the answer is 0.
        """
        ...

    def stamp(self) -> int | None:
        """Give a number that is another one after any write that was acknowledged before this call.

        By whatever process. None, every time, if finding out costs no less than a read. Raises Unavailable.
        """
        ...

    async def check(self) -> None:
        """Return if the collection can be read; raise Unavailable if not. For readiness probes."""
        ...

    async def close(self) -> None:
        """Finish the writes under way, then let go of the database. A second call does nothing."""
        ...

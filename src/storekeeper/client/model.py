"""What the service says, as Python values."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Store:
    """A store. `tag` is the entity tag that it was read with, "" in lists and changes."""

    id: int
    name: str
    address: str | None = None
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """Stores, ascending by id, as of one moment: that of `cursor`, from which `follow`
    continues."""

    stores: tuple[Store, ...]
    cursor: str

    def __iter__(self) -> Iterator[Store]:
        """Return an iterator over the stores."""
        return iter(self.stores)

    def __len__(self) -> int:
        """Return how many stores there are."""
        return len(self.stores)


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one store; `cursor` is its place in the history.

    `type` is `created` or `replaced`, `at` a time in UTC (RFC 3339). `by` names the token that
    wrote it, None if there was none or the reader has none; `user` the person whom a proxy in front
    named. `previous` is the store before, None if the change created it.
    """

    cursor: str
    seq: int
    type: str
    at: str
    by: str | None
    store: Store
    previous: Store | None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Reset:
    """A backup was restored: what was read before may be of another list.

    Read the list again. Changes after `cursor` follow.
    """

    cursor: str


@dataclass(frozen=True, slots=True)
class ChangesPage:
    """Changes in order, and the cursor from which the next page continues."""

    changes: tuple[Change, ...]
    next: str

    def __iter__(self) -> Iterator[Change]:
        """Return an iterator over the changes."""
        return iter(self.changes)

    def __len__(self) -> int:
        """Return how many changes there are."""
        return len(self.changes)


def store_of(body: Mapping[str, Any], tag: str = "") -> Store:
    """Return the store in a part of a response."""
    return Store(body["id"], body["name"], body["address"], tag)


def change_of(body: Mapping[str, Any], epoch: str) -> Change:
    """Return the change in a part of a response."""
    store = store_of(body["store"])
    before = body["previous"]
    previous = None if before is None else Store(store.id, before["name"], before["address"])
    return Change(
        cursor=f"{body['seq']}.{epoch}",
        seq=body["seq"],
        type=body["type"],
        at=body["at"],
        by=body.get("by"),
        store=store,
        previous=previous,
        user=body.get("user"),
    )


def changes_of(content: bytes) -> ChangesPage:
    """Return the page of changes in the body of a response."""
    page = json.loads(content)
    epoch = page["next"].partition(".")[2]
    changes = tuple([change_of(change, epoch) for change in page["changes"]])
    return ChangesPage(changes, page["next"])

"""Domain: commands that write, and the one pure function that decides what a batch writes.

Both databases carry out what `apply` returns; no other code contains a rule of a write.
"""

from collections.abc import Container, Iterable, Mapping
from sys import getsizeof
from typing import NamedTuple, TypeAlias, final

import msgspec

from storekeeper.domain.errors import KeyReused, PreconditionFailed
from storekeeper.domain.stores import Payload, PayloadPatch, Replay, Store

MIN_KEY_AGE = 24 * 60 * 60 * 1000
"""Milliseconds for which an Idempotency-Key is kept, if no more than MAX_KEYS later ones come
(decision 36)."""

MAX_KEYS = 5_000_000
"""Keys that are kept: older ones may be deleted, however young they are."""

MIN_KEYS = 100_000
"""Latest keys that are always kept, whatever the clock says."""

MAX_KEYS_DELETED = 1000
"""Keys that are deleted at once, the oldest, when all of them may go."""

Tags: TypeAlias = frozenset[str]
"""Entity tags with their quotes, as `tag` returns them; `ANY` instead of tags."""

ANY: Tags = frozenset("*")
"""Matches whatever there is (RFC 9110, section 13.1)."""


def tag(version: int, epoch: str) -> str:
    """Return the entity tag of a version (decision 32)."""
    return f'"{version}.{epoch}"'


def matches(tags: Tags, current: str) -> bool:
    """Return whether the current entity tag is one of these."""
    return current in tags or tags == ANY


Key: TypeAlias = tuple[str, int]
"""A client's Idempotency-Key, and a hash of 64 bits of its request: route, id, content, and tags
in If-Match."""


@final
class Create(msgspec.Struct, frozen=True):
    """Add a store; with `if_match`, only if the collection still has one of these tags.

    `token_number` is that of the client's token, 0 for none; `user` is whom a trusted proxy named.
    So in `Replace`.
    """

    payload: Payload
    if_match: Tags | None = None
    key: Key | None = None
    token_number: int = 0
    user: str | None = None


@final
class Replace(msgspec.Struct, frozen=True):
    """Replace the content of the store of that id, a non-negative integer; nothing if there is
    none.

    With `if_match` only if the store has one of these tags, with `if_none_match` only if it has
    none of them.
    """

    id: int
    payload: Payload
    if_match: Tags | None = None
    if_none_match: Tags | None = None
    key: Key | None = None
    token_number: int = 0
    user: str | None = None


@final
class Patch(msgspec.Struct, frozen=True):
    """Change the fields of a store that `patch` has, and keep the others. All else is as in
    Replace."""

    id: int
    patch: PayloadPatch
    if_match: Tags | None = None
    if_none_match: Tags | None = None
    key: Key | None = None
    token_number: int = 0
    user: str | None = None


Command: TypeAlias = Create | Replace | Patch

Result: TypeAlias = Store | PreconditionFailed | KeyReused | None
"""The store as a command left it, None if there is no store of that id, or why nothing was
written."""

ChangeRow: TypeAlias = tuple[int, int, str, str | None, int, int, int, str | None]
"""A row of `storage.sql.CHANGES`, in the order of its columns. It contains the row of its
store."""

PatchRow: TypeAlias = tuple[int, int, str, str | None, int, int]
"""Place and id of a patch, its name and address, and whether, 1 or 0, the store keeps its own
name and its own address instead."""

MAX_KEPT_BYTES = 8 * 2**20
"""Bytes of addresses that the patches of a batch may keep. If they would keep more, the batch is
committed in parts."""

KeyEntry: TypeAlias = tuple[str, int, int]
"""A key to remember, the hash of its request, and the change that is its response."""


class Remembered(NamedTuple):
    """What the database has of an Idempotency-Key: the hash of its request, the id and version
    of its response.

    The hash covers the content, so the response to a request with the same hash has the content
    of that request. The hash of a patch covers only what was sent: `content` is what the store
    became.
    """

    request: int
    id: int
    version: int
    content: Payload | None = None


class Before(msgspec.Struct, frozen=True):
    """The collection before a batch, as the database has it inside the batch's transaction.

    `count` is how many stores there are; `at` is the time of the latest change, in milliseconds
    since 1970. By id, `versions` has the version of each store of `replacements` and `patches`
    that exists. `equal` has the places in the batch of those commands that would change no content.
    `remembered` has each key of `keys_of` that the database has, with its content if it is one of
    `keys_of_patches`. `kept` has, by its place, the name and the address of the store of each
    patch, as far as the patch keeps them.
    """

    count: int
    version: int
    at: int = 0
    epoch: str = ""
    versions: Mapping[int, int] = {}
    equal: Container[int] = ()
    remembered: Mapping[str, Remembered] = {}
    kept: Mapping[int, tuple[str, str | None]] = {}


def replacements(commands: Iterable[Command]) -> list[tuple[int, int, str, str | None]]:
    """Return the place, id and new content of each replace; the database compares them with what
    it has."""
    return [
        (place, command.id, command.payload.name, command.payload.address)
        for place, command in enumerate(commands)
        if type(command) is Replace
    ]


def patches(commands: Iterable[Command]) -> list[PatchRow]:
    """Return the row of each patch; the database compares it with what it has, and gives what the
    patch keeps."""
    return [
        _patch_row(place, command)
        for place, command in enumerate(commands)
        if type(command) is Patch
    ]


def _patch_row(place: int, command: Patch) -> PatchRow:
    sent = command.patch.applied_to("", None)
    keeps_name = int(command.patch.name is msgspec.UNSET)
    keeps_address = int(command.patch.address is msgspec.UNSET)
    return place, command.id, sent.name, sent.address, keeps_name, keeps_address


def keys_of(commands: Iterable[Command]) -> list[str]:
    """Return the keys of a batch, some perhaps twice."""
    return [command.key[0] for command in commands if command.key is not None]


def keys_of_patches(commands: Iterable[Command]) -> list[str]:
    """Return the keys of patches: a replay needs what the store became."""
    return keys_of(command for command in commands if type(command) is Patch)


def memory_size(command: Command) -> int:
    """Return the bytes of memory that a command takes while it waits: its texts and its tags."""
    content = command.patch if type(command) is Patch else command.payload
    kept: list[object] = [content.name, content.address]
    kept += command.if_match or ()
    if type(command) is not Create:
        kept += command.if_none_match or ()
    return sum(map(getsizeof, kept))


def apply(commands: Iterable[Command], before: Before, now: int) -> "Batch":
    """Decide what commands do, one after another, to the collection as it was before them.

    `now` is in milliseconds since 1970; no change is earlier than the one before it (decision
    41). Ids are dense, so the count gives the next one (decision 25).
    """
    batch = Batch(before, now)
    batch.results = [batch.apply_command(place, command) for place, command in enumerate(commands)]
    return batch


class Batch:
    """What a batch of commands does, and the collection's `count`, `version` and `at` after it."""

    def __init__(self, before: Before, now: int) -> None:
        self.count, self.version, self.at = before.count, before.version, max(now, before.at)
        self.results: list[Result] = []
        """What each command led to, in their order."""
        self.changes: list[ChangeRow] = []
        """One for each command that changed something, in the order of their versions."""
        self.keys: list[KeyEntry] = []
        """The keys to remember: each with a store among the results."""
        self.created: dict[int, ChangeRow] = {}
        self.replaced: dict[int, ChangeRow] = {}
        """The latest change of each new store, and of each that existed before, by its id."""
        self._before = before
        self._epoch = before.epoch
        # No clock decides: a key that the database has counts (decision 36).
        self._remembered = dict(before.remembered)

    @property
    def writes(self) -> bool:
        """Whether there is anything to commit (decision 35)."""
        return bool(self.changes or self.keys)

    def apply_command(self, place: int, command: Command) -> Result:
        """Apply the command at that place of the batch; check key, store and tags in the order
        of decision 31."""
        if command.key is None:
            return self._write(place, command)
        key, request = command.key
        if (known := self._remembered.get(key)) is not None:
            if known.request != request:
                return KeyReused("The Idempotency-Key was used for another request: send a new one")
            return self._replay(command, known)
        result = self._write(place, command)
        if isinstance(result, Store):
            content = Payload(result.name, result.address)
            self._remembered[key] = Remembered(request, result.id, result.version, content)
            self.keys.append((key, request, result.version))
        return result

    def _replay(self, command: Command, known: Remembered) -> Replay:
        content = known.content if type(command) is Patch else command.payload
        assert content is not None, "the history has what the store became"
        return Replay(known.id, content.name, content.address, known.version, self._epoch)

    def _write(self, place: int, command: Command) -> Result:
        if type(command) is Create:
            return self._create(command)
        return self._replace(place, command)

    def _create(self, command: Create) -> Result:
        if command.if_match is not None and not matches(
            command.if_match, current := tag(self.version, self._epoch)
        ):
            return PreconditionFailed(
                f"The list has changed: its version is {self.version} now", current
            )
        self.count += 1
        return self._change(self.created, self.count, command.payload, command)

    def _replace(self, place: int, command: Replace | Patch) -> Result:
        id = command.id
        latest = self.replaced if id <= self._before.count else self.created
        if (earlier := latest.get(id)) is not None:
            version, _, name, address, *_ = earlier
            payload = _content(command, name, address)
            equal = name == payload.name and address == payload.address
        elif id in self._before.versions:
            version = self._before.versions[id]
            name, address = self._before.kept.get(place, ("", None))
            payload = _content(command, name, address)
            equal = place in self._before.equal
        else:
            return None
        conditional = command.if_match is not None or command.if_none_match is not None
        if conditional and (refusal := _refusal(command, current := tag(version, self._epoch))):
            return PreconditionFailed(
                f"Store {id} {refusal}: its version is {version} now", current
            )
        if equal:
            return Store(id, payload.name, payload.address, version, self._epoch)
        return self._change(latest, id, payload, command)

    def _change(
        self, latest: dict[int, ChangeRow], id: int, payload: Payload, command: Command
    ) -> Store:
        self.version = version = self.version + 1
        name, address = payload.name, payload.address
        change = (
            version,
            id,
            name,
            address,
            self.at,
            self.count,
            command.token_number,
            command.user,
        )
        latest[id] = change
        self.changes.append(change)
        return Store(id, name, address, version, self._epoch)


def _content(command: Replace | Patch, name: str, address: str | None) -> Payload:
    """Return what a store becomes that has this name and address, as far as the command keeps
    them."""
    if type(command) is Replace:
        return command.payload
    return command.patch.applied_to(name, address)


def _refusal(command: Replace | Patch, current: str) -> str:
    if command.if_none_match is not None and matches(command.if_none_match, current):
        return "matches If-None-Match"
    # Also if the store is what the payload says: two clients with one tag must not both win
    # (decision 34).
    if command.if_match is not None and not matches(command.if_match, current):
        return "has changed"
    return ""

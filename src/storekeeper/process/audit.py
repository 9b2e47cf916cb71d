"""Logs what happens to the tokens and to the history of a collection, by any process.

Commands change these without a service, so each process looks at the database every second, and
compares it with its last look. The processes of one service share what they have logged.
"""

import asyncio
import multiprocessing
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from storekeeper.domain.errors import CannotStart, Unavailable
from storekeeper.domain.tokens import Token, Traces
from storekeeper.log.events import Event, emit
from storekeeper.storage import clock
from storekeeper.storage.collection import Collection

LOOK_INTERVAL = 1.0
"""Seconds between two looks at the tokens and the history, whose changes are logged."""

OVERLAP = 60_000
"""Milliseconds before the last sign of a service for which the next start logs events again: the
service may have ended before it did, and clocks differ."""

MAX_SHARED = 256
"""Events that the processes of a service remember as logged."""


class Facts(msgspec.Struct, frozen=True):
    """What a look found: the time in ms since 1970, the collection's version and epoch, and all
    tokens by their hashes."""

    at: int
    version: int
    epoch: str
    tokens: Mapping[str, Token]


class Finding(NamedTuple):
    """An event to log; `subject` is the hash of a token or an epoch, `at` when it happened in ms
    since 1970, None: not known."""

    event: Event
    subject: str
    at: int | None = None
    fields: Mapping[str, object] = {}


def compare(before: Facts, after: Facts) -> Iterator[Finding]:
    """Yield what happened between two looks."""
    if after.epoch != before.epoch:
        numbers = {"was": before.epoch, "epoch": after.epoch, "version": after.version}
        yield Finding(Event.EPOCH_CHANGED, after.epoch, fields=numbers)
    if after.version < before.version:
        lost = {"version": after.version, "was": before.version}
        yield Finding(Event.RESTORED, after.epoch, fields=lost)
    for hash, token in after.tokens.items():
        yield from _of_token(before.tokens.get(hash), token, before.at, after.at)
    for hash, token in before.tokens.items():
        if hash not in after.tokens:
            yield Finding(Event.TOKEN_LOST, hash, fields={"name": token.name})


def _of_token(was: Token | None, token: Token, since: int, now: int) -> Iterator[Finding]:
    name = {"name": token.name}
    if was is None:
        expires = {} if token.expires is None else {"expires": shown(token.expires)}
        fields = {**name, "scope": token.scope, **expires, **_by(token.created_by)}
        yield Finding(Event.TOKEN_ADDED, token.hash, token.created, fields)
    if token.used is not None and (was is None or was.used is None):
        yield Finding(Event.TOKEN_USED, token.hash, token.used, name)
    was_revoked = was is not None and was.revoked is not None
    if token.revoked is not None and not was_revoked:
        fields = {**name, **_by(token.revoked_by)}
        yield Finding(Event.TOKEN_REVOKED, token.hash, token.revoked, fields)
    if token.revoked is None and was_revoked:
        yield Finding(Event.TOKEN_VALID_AGAIN, token.hash, fields=name)
    if token.expires is not None and since < token.expires <= now and token.revoked is None:
        yield Finding(Event.TOKEN_EXPIRED, token.hash, token.expires, name)


def _by(user: str | None) -> dict[str, object]:
    return {} if user is None else {"by": user}


def as_it_was(facts: Facts, moment: int) -> Facts:
    """Return what a look at an earlier moment would have found, as far as the times of the tokens
    tell."""
    tokens = {
        hash: replace(token, revoked=_up_to(moment, token.revoked))
        for hash, token in facts.tokens.items()
        if token.created <= moment
    }
    return replace(facts, at=moment, tokens=tokens)


def _up_to(moment: int, at: int | None) -> int | None:
    if at is None or at > moment:
        return None
    return at


def last_sign(facts: Facts) -> int:
    """Return since when the log may lack events: a service wrote the latest use of a token, and had
    logged what was before."""
    uses = [token.used for token in facts.tokens.values() if token.used is not None]
    return max((used for used in uses if used <= facts.at), default=0) - OVERLAP


def shown(at: int) -> str:
    """Return a time as the log has it."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


class Shared:
    """What the processes of a service have in common: the last look of any, and the latest events
    that were logged. Raises CannotStart."""

    _AT, _VERSION, _EPOCH, _COUNT, _EVENTS = range(5)

    def __init__(self, workers: int = 1) -> None:
        cells = self._EVENTS + MAX_SHARED
        self._block: Any = [0] * cells
        if workers > 1:
            try:
                self._block = multiprocessing.get_context("spawn").RawArray("Q", cells)
            except OSError as error:
                raise CannotStart(
                    f"no shared memory for workers ({error.strerror}): make space"
                ) from None

    def claim(self, finding: Finding, epoch: str) -> bool:
        """Return whether no process of the service has logged this yet, and note that one has."""
        text = f"{finding.event.name} {finding.subject} {epoch}"
        number = int.from_bytes(sha256(text.encode()).digest()[:8])
        if number in self._block[self._EVENTS :]:
            return False
        count = self._block[self._COUNT]
        self._block[self._EVENTS + count % MAX_SHARED] = number
        self._block[self._COUNT] = count + 1
        return True

    def note(self, facts: Facts) -> None:
        """Remember a look."""
        self._block[self._VERSION] = facts.version
        self._block[self._EPOCH] = int.from_bytes(facts.epoch.encode()[:8])
        self._block[self._AT] = facts.at

    def last(self) -> tuple[int, int, str] | None:
        """Return the time, the version and the epoch of the last look, None if there was none."""
        at, version, epoch = self._block[: self._COUNT]
        if not at:
            return None
        return at, version, epoch.to_bytes(8).decode()


class Audit:
    """One process's looks at its collection."""

    def __init__(self, collection: Collection, shared: Shared) -> None:
        self._collection = collection
        self._shared = shared
        self._traces: Traces | None = None
        self._facts: Facts | None = None

    async def watch(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(LOOK_INTERVAL)
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - the next look may succeed
                emit(Event.BUG, error=error)

    async def look(self) -> None:
        """Log what has happened since the last look, if the database is available."""
        with suppress(Unavailable):
            facts = await self._facts_now()
            findings = await self._before_start(facts)
            findings += compare(self._before(facts), facts)
            for finding in findings:
                if self._shared.claim(finding, facts.epoch):
                    when = {} if finding.at is None else {"at": shown(finding.at)}
                    emit(finding.event, **finding.fields, **when, pid=os.getpid())
            self._facts = facts
            self._shared.note(facts)

    async def _facts_now(self) -> Facts:
        traces = await self._collection.traces()
        tokens: Mapping[str, Token]
        now = clock.now()
        if self._facts is not None and self._traces is not None and traces[1:] == self._traces[1:]:
            tokens = self._facts.tokens
        else:
            tokens = {token.hash: token for token in await self._collection.all_tokens()}
        self._traces = traces
        return Facts(now, traces.version, traces.epoch, tokens)

    def _before(self, facts: Facts) -> Facts:
        """Return what to compare with: the last look, of this process or another one."""
        if self._facts is not None:
            return self._facts
        last = self._shared.last()
        if last is None:
            return as_it_was(facts, last_sign(facts))
        at, version, epoch = last
        return replace(as_it_was(facts, at), version=version, epoch=epoch)

    async def _before_start(self, facts: Facts) -> list[Finding]:
        """Return the restore that was made while no service ran."""
        if self._facts is not None:
            return []
        restored = await self._collection.restored()
        # It is known to the second.
        if restored is None or restored + 1000 <= self._before(facts).at:
            return []
        numbers = {"version": facts.version, "epoch": facts.epoch}
        return [Finding(Event.RESTORED, facts.epoch, restored, numbers)]

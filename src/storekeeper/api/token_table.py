"""What one process knows of tokens, at most MAX_AGE old: no request costs a round trip. Imports `api` and the domain.

`token revoke` returns later than that after its commit: what is sent then finds no process that admits the token.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from storekeeper.api.plan import Claim, Scope
from storekeeper.collection import Eventual
from storekeeper.errors import CannotStart, Unavailable
from storekeeper.events import Event, emit
from storekeeper.http.response import Response, error_response, unavailable
from storekeeper.tokens import USED_INTERVAL, Token

MAX_AGE = 1.0
"""Seconds after which nothing is known any more: the response is 503."""

REFRESH_INTERVAL = 0.3
"""Seconds between two reads of the tokens."""

LOG_INTERVAL = 60.0
"""Seconds within which wrong tokens are logged once."""

RETRY_INTERVAL = 60.0
"""Seconds until a use that could not be written is written again."""

EXPIRED = "it has expired"
_MALFORMED = "it is no token of Storekeeper"
_UNKNOWN = "it is unknown or was revoked"

# Goes on while the machine sleeps, and while this process is stopped; macOS has no other clock than that.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Source(Protocol):
    """Where the tokens are: the collection."""

    def tokens(self) -> Eventual[Sequence[Token]]:
        """Return all tokens."""
        ...

    async def mark_used(self, numbers: Iterable[int], now: int) -> None:
        """Note that tokens are used."""
        ...


class TokenTable:
    """The tokens that are good, by their hashes; a look-up among hashes takes the same time whatever was sent."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._good: dict[str, Token] = {}
        self._read_at = -MAX_AGE
        self._used: set[int] = set()
        self._mark_after = 0.0
        self._marking: asyncio.Task[None] | None = None
        self._logged = -LOG_INTERVAL
        self._wrong = 0

    def admit(self, claim: Claim) -> int | Response:
        """Return the number of the token that is claimed, or the refusal."""
        if not claim.hash:
            return self._refuse(_MALFORMED)
        if time.clock_gettime(_CLOCK) - self._read_at > MAX_AGE:
            return unavailable("The tokens cannot be read now")
        token = self._good.get(claim.hash)
        if token is None:
            return self._refuse(_UNKNOWN)
        if token.expires is not None and token.expires <= time.time() * 1000:
            return self._refuse(EXPIRED)
        if claim.scope == "write" and token.scope != "write":
            return insufficient_scope()
        self._used.add(token.number)
        return token.number

    async def keep_fresh(self) -> None:
        """Read the tokens again and again."""
        while True:
            try:
                await self.refresh()
            except Exception as error:  # noqa: BLE001 - the next one may succeed; until then nothing is admitted
                emit(Event.BUG, error=error)
            await asyncio.sleep(REFRESH_INTERVAL)

    async def refresh(self) -> None:
        """Read the tokens, if the database is available."""
        begun = time.clock_gettime(_CLOCK)
        with suppress(Unavailable):
            found = self._source.tokens()
            tokens = await found if isinstance(found, asyncio.Future) else found
            self._good = {token.hash: token for token in tokens if token.revoked is None}
            self._read_at = begun
            self._mark_used(begun)

    def _mark_used(self, now: float) -> None:
        """Begin to write which tokens were used, at most once in USED_INTERVAL for each."""
        used, self._used = self._used, set()
        today = int(time.time() * 1000)
        due = [token.number for token in self._good.values() if (token.used or 0) <= today - USED_INTERVAL]
        if (numbers := used.intersection(due)) and now >= self._mark_after:
            self._mark_after = now + RETRY_INTERVAL
            self._marking = asyncio.create_task(self._write_used(numbers, today))

    async def _write_used(self, numbers: set[int], now: int) -> None:
        with suppress(Unavailable):
            await self._source.mark_used(sorted(numbers), now)
            self._mark_after = 0.0

    def _refuse(self, reason: str) -> Response:
        self._wrong += 1
        now = time.monotonic()
        if now - self._logged > LOG_INTERVAL:
            emit(Event.WRONG_TOKENS, requests=self._wrong, reason=reason)
            self._logged, self._wrong = now, 0
        return not_good(reason)


UNDECIDED = "Whether there are tokens cannot be read now"


class Undecided:
    """Stands for the tokens while nobody has said who needs one: admits nothing until the database has none."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.is_open = False

    def admit(self, claim: Claim) -> int | Response:
        """Return 0, or the refusal while it is not known whether there are tokens."""
        del claim
        return 0 if self.is_open else unavailable(UNDECIDED)

    async def keep_fresh(self) -> None:
        """Read until it is known whether there are tokens. Raises CannotStart if there are."""
        while not self.is_open:
            await asyncio.sleep(REFRESH_INTERVAL)
            await self.refresh()

    async def refresh(self) -> None:
        """Read whether there are tokens, if the database is available. Raises CannotStart if there are."""
        with suppress(Unavailable):
            found = self._source.tokens()
            refuse_silence(await found if isinstance(found, asyncio.Future) else found)
            self.is_open = True


async def known(source: Source, mode: str | None) -> TokenTable | Undecided | None:
    """Return what a process knows of tokens, None if nobody needs one. Raises CannotStart."""
    if mode == "open":
        return None
    tokens = Undecided(source) if mode is None else TokenTable(source)
    await tokens.refresh()
    return None if isinstance(tokens, Undecided) and tokens.is_open else tokens


def refuse_silence(tokens: Sequence[Token]) -> None:
    """Raise CannotStart if there are tokens: nobody has said who needs one."""
    if tokens:
        raise CannotStart(
            "the database has tokens: say who needs one, with --auth all, --auth writes or --auth open (nobody)"
        )


def needed(scope: Scope) -> Response:
    """Return the refusal of a request without a token."""
    return _challenge(401, "Writing needs a token" if scope == "write" else "Reading needs a token")


def not_good(reason: str) -> Response:
    """Return the refusal of a token that is wrong."""
    return _challenge(401, f"The token is invalid: {reason}", 'error="invalid_token"')


def insufficient_scope() -> Response:
    """Return the refusal of a write by a token that permits reading."""
    return _challenge(403, "The token permits reading alone", 'error="insufficient_scope", scope="write"')


def _challenge(status: int, message: str, error: str = "") -> Response:
    # RFC 6750, section 3.
    value = ", ".join(['Bearer realm="storekeeper"', *([error] if error else [])])
    return error_response(status, message, headers=((b"www-authenticate", value.encode()),))

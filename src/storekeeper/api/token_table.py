"""What a process knows about tokens, at most MAX_AGE old, so that no request costs a round trip.

`token revoke` waits longer than that after its commit: once it returns, no process admits the
token.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

from storekeeper.api.routing import Scope
from storekeeper.domain.errors import Unavailable
from storekeeper.domain.tokens import USED_INTERVAL, Token
from storekeeper.http.response import Response, error_response, unavailable
from storekeeper.log.events import Event, emit
from storekeeper.storage import clock
from storekeeper.storage.clock import BOOT_CLOCK
from storekeeper.storage.collection import Collection

MAX_AGE = 1.0
"""Seconds after which the tokens that were read no longer count: the response is 503 until they
are read again."""

REFRESH_INTERVAL = 0.3
"""Seconds between two reads of the tokens."""

RETRY_INTERVAL = 60.0
"""Seconds until a failed write of uses is tried again."""

UNREAD = "The tokens cannot be read now"


class TokenTable:
    """The valid tokens by their hashes, so that the time of a look-up tells a client nothing about
    them."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._by_hash: dict[str, Token] = {}
        self._names: dict[int, str] = {}
        self._writers: frozenset[int] = frozenset()
        self._read_at = -MAX_AGE
        self._used: set[int] = set()
        self._mark_after = 0.0
        self._marking: asyncio.Task[None] | None = None

    def admit(self, hash: str, scope: Scope) -> int | Response:
        """Return the number of the token with this hash, or the refusal; "" stands for a
        malformed token."""
        if not hash:
            return self._refuse("it is not a Storekeeper token")
        if reason := self.why_unavailable():
            return unavailable(reason)
        token = self._by_hash.get(hash)
        if token is None:
            return self._refuse("it is unknown or was revoked")
        if token.expires is not None and token.expires <= clock.now():
            return self._refuse("it has expired")
        if scope == "write" and token.scope != "write":
            return challenge(
                403,
                "This token is read-only",
                ', error="insufficient_scope", scope="write"',
            )
        self._used.add(token.number)
        return token.number

    def why_unavailable(self) -> str:
        """Return why every token gets a 503 now: they were not read within MAX_AGE; "" if they
        were."""
        if time.clock_gettime(BOOT_CLOCK) - self._read_at > MAX_AGE:
            return UNREAD
        return ""

    def name(self, number: int) -> str:
        """Return the name of a token, or its number if it is no longer valid."""
        return self._names.get(number, f"#{number}")

    def scope(self, number: int) -> Scope:
        """Return the scope of a token; "read" if it is no longer valid."""
        return "write" if number in self._writers else "read"

    async def keep_fresh(self) -> None:
        """Read the tokens again and again."""
        while True:
            await asyncio.sleep(REFRESH_INTERVAL)
            try:
                await self.refresh()
            except Exception as error:  # noqa: BLE001 - the next read may succeed
                emit(Event.BUG, error=error)

    async def refresh(self) -> None:
        """Read the tokens, if the database is available."""
        begun = time.clock_gettime(BOOT_CLOCK)
        with suppress(Unavailable):
            tokens = await self._collection.tokens()
            self._by_hash = {token.hash: token for token in tokens}
            self._names = {token.number: token.name for token in tokens}
            self._writers = frozenset(each.number for each in tokens if each.scope == "write")
            self._read_at = begun
            self._mark_used(begun)

    def _mark_used(self, now: float) -> None:
        """Begin to write which tokens were used, at most once in USED_INTERVAL for each; `now` is
        on BOOT_CLOCK."""
        now_ms = clock.now()
        # If `used` is in the future, the clock was wrong when it was written.
        due = [
            token.number
            for token in self._by_hash.values()
            if abs(now_ms - (token.used or 0)) >= USED_INTERVAL
        ]
        self._used.intersection_update(due)
        if self._used and now >= self._mark_after:
            self._mark_after = now + RETRY_INTERVAL
            self._marking = asyncio.create_task(self._write_used(sorted(self._used), now_ms))

    async def _write_used(self, numbers: Sequence[int], now: int) -> None:
        with suppress(Unavailable):
            await self._collection.mark_used(numbers, now)
            self._mark_after = 0.0

    def _refuse(self, reason: str) -> Response:
        emit(Event.WRONG_TOKENS, reason=reason)
        return challenge(401, f"The token is invalid: {reason}", ', error="invalid_token"')


def challenge(status: int, message: str, error: str = "") -> Response:
    """Return the refusal of a request without a token, or with one that does not suffice."""
    # RFC 6750, section 3.
    value = f'Bearer realm="storekeeper"{error}'.encode()
    return error_response(status, message, headers=b"www-authenticate: %b\r\n" % value)

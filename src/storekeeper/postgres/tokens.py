"""Tokens in the shared collection, also beside running services. Imports psycopg and the domain."""

from collections.abc import Callable

import psycopg

from storekeeper.postgres.load import LOCK_TIMEOUT
from storekeeper.postgres.session import connected
from storekeeper.tables import TOKENS
from storekeeper.tokens import USED_INTERVAL, NameTaken, NoSuchToken, Token

_ALL = f"SELECT {', '.join(TOKENS)} FROM tokens"
_ADD = f"""INSERT INTO tokens ({", ".join(TOKENS)})
  SELECT (SELECT coalesce(max(number), 0) FROM tokens) + 1, %s, %s, %s, %s, %s, NULL, NULL"""
_REVOKE = "UPDATE tokens SET revoked = coalesce(revoked, %s) WHERE name = %s"

STATEMENTS = {
    b"tokens": f"{_ALL} WHERE revoked IS NULL OR number = (SELECT min(number) FROM tokens) ORDER BY number",
    b"used": f"""UPDATE tokens SET used = $2::int8 WHERE number = ANY($1::int8[])
      AND abs($2::int8 - coalesce(used, 0)) >= {USED_INTERVAL}""",
}
"""The statements that a connection has to prepare for tokens."""


def read_tokens(url: str) -> list[Token]:
    """Return all tokens of a prepared database. Raises Unavailable, CannotStart."""
    with connected(url) as connection:
        return [Token(*row) for row in connection.execute(f"{_ALL} ORDER BY number".encode()).fetchall()]


def add_token(url: str, token: Token, show: Callable[[], None]) -> None:
    """Add a token, whose number the database chooses, unless `show` raises. Raises also NameTaken."""
    with connected(url) as connection:
        connection.execute(LOCK_TIMEOUT)
        connection.execute("LOCK TABLE tokens IN SHARE ROW EXCLUSIVE MODE")
        try:
            connection.execute(_ADD.encode(), (token.name, token.scope, token.hash, token.created, token.expires))
        except psycopg.errors.UniqueViolation:
            raise NameTaken(token.name) from None
        show()


def revoke_token(url: str, name: str, now: int) -> None:
    """Revoke a token. Raises also NoSuchToken."""
    with connected(url) as connection:
        connection.execute(LOCK_TIMEOUT)
        if not connection.execute(_REVOKE.encode(), (now, name)).rowcount:
            raise NoSuchToken(name)

"""Tokens in the shared collection, also beside running services. Imports psycopg and the domain."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from storekeeper.errors import Unavailable
from storekeeper.postgres import schema
from storekeeper.postgres.load import commit
from storekeeper.postgres.schema import Connection
from storekeeper.tables import TOKENS
from storekeeper.tokens import USED_INTERVAL, NameTaken, NoSuchToken, Token

_SELECT = f"SELECT {', '.join(TOKENS)} FROM tokens ORDER BY number"
_ADD = f"""INSERT INTO tokens ({", ".join(TOKENS)})
  SELECT (SELECT coalesce(max(number), 0) FROM tokens) + 1, %s, %s, %s, %s, %s, NULL, NULL"""
_REVOKE = "UPDATE tokens SET revoked = coalesce(revoked, %s) WHERE name = %s"

STATEMENTS = {
    b"tokens": _SELECT,
    b"used": f"""UPDATE tokens SET used = $2::int8 WHERE number = ANY($1::int8[])
      AND coalesce(used, 0) <= $2::int8 - {USED_INTERVAL}""",
}
"""The statements that a connection has to prepare for tokens."""


def read(url: str) -> list[Token]:
    """Return all tokens of a prepared database. Raises Unavailable, CannotStart."""
    with _connected(url) as connection:
        return [Token(*row) for row in connection.execute(_SELECT.encode()).fetchall()]


def add(url: str, token: Token, show: Callable[[], None]) -> None:
    """Add a token, whose number the database chooses, unless `show` raises.

    Raises NameTaken, Unavailable, CannotStart.
    """
    with _connected(url) as connection:
        connection.execute("LOCK TABLE tokens IN SHARE ROW EXCLUSIVE MODE")
        try:
            connection.execute(_ADD.encode(), (token.name, token.scope, token.hash, token.created, token.expires))
        except psycopg.errors.UniqueViolation:
            raise NameTaken(token.name) from None
        show()


def revoke(url: str, name: str, now: int) -> None:
    """Revoke a token. Raises NoSuchToken, Unavailable, CannotStart."""
    with _connected(url) as connection:
        if not connection.execute(_REVOKE.encode(), (now, name)).rowcount:
            raise NoSuchToken(name)


@contextmanager
def _connected(url: str) -> Iterator[Connection]:
    conninfo = schema.parameters(url)
    with schema.connect(conninfo) as connection:
        try:
            yield connection
        except psycopg.Error as error:
            raise Unavailable(schema.one_line(error, conninfo)) from None
        commit(connection)

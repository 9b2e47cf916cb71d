"""Tokens in the SQLite collection, also beside a running service. Imports apsw and the domain."""

from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import apsw

from storekeeper.sqlite import schema
from storekeeper.sqlite.columns import as_json
from storekeeper.tables import TOKENS
from storekeeper.tokens import USED_INTERVAL, NameTaken, NoSuchToken, Token

_ALL = f"SELECT {', '.join(TOKENS)} FROM tokens"
_NOT_REVOKED = f"{_ALL} WHERE revoked IS NULL OR number = (SELECT min(number) FROM tokens)"
_ADD = f"""INSERT INTO tokens ({", ".join(TOKENS)})
  SELECT (SELECT ifnull(max(number), 0) FROM tokens) + 1, ?, ?, ?, ?, ?, NULL, NULL"""
_REVOKE = "UPDATE tokens SET revoked = ifnull(revoked, ?) WHERE name = ?"
_USED = f"""UPDATE tokens SET used = ?2 WHERE number IN (SELECT value FROM json_each(?1))
  AND abs(?2 - ifnull(used, 0)) >= {USED_INTERVAL}"""


def read(connection: apsw.Connection, statement: str = _NOT_REVOKED) -> list[Token]:
    """Return what `Collection.tokens` does."""
    return [Token(*row) for row in connection.execute(f"{statement} ORDER BY number")]


def read_tokens(path: Path) -> list[Token]:
    """Return all tokens of a file. Raises CannotStart."""
    with schema.opened(path, write=False) as connection:
        return read(connection, _ALL)


def add_token(path: Path, token: Token, show: Callable[[], None]) -> None:
    """Add a token, whose number the database chooses, unless `show` raises. Raises CannotStart, NameTaken."""
    with schema.opened(path, write=True) as connection, schema.transaction(connection, "IMMEDIATE"):
        try:
            connection.execute(_ADD, (token.name, token.scope, token.hash, token.created, token.expires))
        except apsw.ConstraintError:
            raise NameTaken(token.name) from None
        show()


def revoke_token(path: Path, name: str, now: int) -> None:
    """Revoke a token. Raises CannotStart, NoSuchToken."""
    with schema.opened(path, write=True) as connection:
        connection.execute(_REVOKE, (now, name))
        if not connection.changes():
            raise NoSuchToken(name)


def mark_used(path: Path, numbers: Iterable[int], now: int) -> None:
    """Note that tokens are used, unless that was noted not long ago. Raises apsw's errors."""
    with closing(schema.connect(path)) as connection, schema.transaction(connection, "IMMEDIATE"):
        connection.execute(_USED, (as_json(numbers), now))

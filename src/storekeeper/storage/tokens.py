"""The tokens of a collection, as commands read, add and revoke them."""

from storekeeper.domain.errors import CannotStart
from storekeeper.domain.tokens import Token
from storekeeper.storage import databases
from storekeeper.storage.sql import ALL_TOKENS

_FIND = "SELECT number FROM tokens WHERE name = $1"
_ADD = """INSERT INTO tokens (number, name, scope, hash, created, expires, created_by)
  SELECT coalesce(max(number), 0) + 1, $1, $2, $3, $4, $5, $6 FROM tokens"""
_REVOKE = """UPDATE tokens SET revoked = coalesce(revoked, $1),
    revoked_by = CASE WHEN revoked IS NULL THEN CAST($3 AS text) ELSE revoked_by END
  WHERE name = $2"""


def read_tokens(url: str) -> list[Token]:
    """Return all tokens of a collection. Raises CannotStart, Unavailable."""
    with databases.open_existing(url).snapshot() as snapshot:
        return [Token(*row) for row in snapshot.select(ALL_TOKENS)]


def refuse_tokens(url: str) -> None:
    """Raise CannotStart if there are tokens: without --auth, no user has chosen which requests need
    one."""
    if read_tokens(url):
        raise CannotStart(
            "the database has tokens: choose which requests need one, with --auth (or"
            " STOREKEEPER_AUTH) all, writes or open (none)"
        )


def add_token(url: str, token: Token) -> None:
    """Add a token, whose number the database chooses. Raises CannotStart, Unavailable."""
    values = (token.name, token.scope, token.hash, token.created, token.expires, token.created_by)
    with databases.write_session(url) as session:
        if list(session.execute(_FIND, (token.name,))):
            raise CannotStart(f"Token name {token.name} is or was in use; names cannot be reused")
        session.write(_ADD, values)


def revoke_token(url: str, name: str, now: int, by: str | None = None) -> bool:
    """Revoke a token on behalf of a user of the system; return whether there is one of that name.
    Raises CannotStart, Unavailable."""
    with databases.write_session(url) as session:
        return session.write(_REVOKE, (now, name, by)) > 0

"""The commands on tokens: add, list, revoke."""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from storekeeper.cli.options import Commands, with_settings
from storekeeper.cli.results import (
    Json,
    ListedToken,
    TokenAdded,
    TokenRevoked,
    Tokens,
    encoded,
    print_json,
    report,
)
from storekeeper.cli.terminal import (
    print_line,
    print_now,
    print_table,
    system_user,
)
from storekeeper.domain.errors import CannotStart
from storekeeper.settings import Settings
from storekeeper.storage import clock

if TYPE_CHECKING:
    from storekeeper.domain.tokens import Token

SETTLE_DELAY = 2.0
"""Seconds that a command waits after its commit: by then, every process has read the tokens
again."""

app = Commands(help="Add, list and revoke the tokens of clients.", rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="Name of the token. Names cannot be reused.")]


@app.command()
@with_settings("database")
def add(
    settings: Settings,
    name: Name,
    *,
    scope: Annotated[
        Literal["read", "write"] | None,
        typer.Option(
            help="What the token permits; write includes read. With --link, write is the default."
        ),
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(
            help="Print a link to the console at this address, such as https://stores.example."
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="Days until the token expires, such as 90d. Default: never.")
    ] = None,
    json: Json = False,
) -> None:
    """Add a token and print it. It cannot be printed again."""
    from storekeeper.domain import tokens
    from storekeeper.storage import databases
    from storekeeper.storage.tokens import add_token

    if link and not link.startswith(("http://", "https://")):
        raise CannotStart(f"--link: an address begins with http:// or https://, not {link!r}")
    if scope is None and link:
        scope = "write"
    if scope is None:
        raise CannotStart("--scope is missing: read, or write, which includes read")
    now = clock.now()
    until = None
    if expires is not None:
        until = tokens.expiry(expires, now)
    text = tokens.generate()
    hash = tokens.hashed(text.encode())
    user = system_user()
    token = tokens.Token(0, tokens.check_name(name), scope, hash, now, until, created_by=user)
    add_token(settings.database, token)
    address = tokens.console_link(link, text) if link else None
    added = TokenAdded(name, scope, _moment(until), text, address)
    _print_once(name, encoded(added) if json else address or text)
    expiring = f" until {_day(until)}" if until else ""
    database = databases.database(settings.database).name
    print_line(
        f"Token {name} may {scope}{expiring} in {database}. Keep it: it cannot be printed again."
        " The service asks for tokens if it runs with --auth writes or --auth all"
    )
    time.sleep(SETTLE_DELAY)


def _print_once(name: str, shown: str) -> None:
    """Print a token, or a link with it. Raises CannotStart."""
    try:
        print_now(shown)
    except OSError as error:
        reason = f"Token {name} was added but cannot be printed ({error.strerror})"
        raise CannotStart(f"{reason}: revoke it, and add one of another name") from None


@app.command("list")
@with_settings("database")
def list_(
    settings: Settings,
    *,
    json: Json = False,
) -> None:
    """List the tokens, without the tokens themselves.

    Each with its scope, state, expiry and last use, and who added and revoked it.
    """
    from storekeeper.storage.tokens import read_tokens

    now = clock.now()
    tokens = read_tokens(settings.database)
    if json:
        print_json(Tokens([_listed(token, now) for token in tokens]))
        return
    rows = [["NAME", "SCOPE", "STATE", "ADDED", "BY", "EXPIRES", "USED", "REVOKED", "BY"]]
    for token in tokens:
        row = [token.name, token.scope, _state(token, now)]
        row += [_day(token.created), token.created_by or "unknown"]
        row += [_day(token.expires), _day(token.used)]
        if token.revoked is not None:
            row += [_day(token.revoked), token.revoked_by or "unknown"]
        rows.append(row + [""] * (len(rows[0]) - len(row)))
    print_table(rows)


def _listed(token: "Token", now: int) -> ListedToken:
    return ListedToken(
        token.name,
        token.scope,
        _state(token, now),
        _moment(token.created),
        token.created_by,
        _moment(token.expires),
        _moment(token.used),
        _moment(token.revoked),
        token.revoked_by,
    )


def _state(token: "Token", now: int) -> str:
    if token.revoked is not None:
        return "revoked"
    if token.expires is not None and token.expires <= now:
        return "expired"
    return "active"


@app.command()
@with_settings("database")
def revoke(settings: Settings, name: Name, *, json: Json = False) -> None:
    """Revoke a token. When this command ends, requests with it are refused."""
    from storekeeper.domain import tokens
    from storekeeper.storage.tokens import revoke_token

    now = clock.now()
    if not revoke_token(settings.database, tokens.check_name(name), now, system_user()):
        raise CannotStart(f"Token {name} does not exist; see `storekeeper token list`")
    # Printed before the wait, which a user may interrupt.
    print_line(f"Token {name} is revoked: within {SETTLE_DELAY:g} s, requests with it are refused")
    time.sleep(SETTLE_DELAY)
    report(TokenRevoked(name), f"Requests with token {name} are now refused", json=json)


def _day(at: int | None) -> str:
    if at is None:
        return "never"
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M}Z"


def _moment(at: int | None) -> str | None:
    if at is None:
        return None
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"

"""The commands on tokens: add, list, revoke. Each imports what it needs when it runs."""

import time
from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from storekeeper.cli.options import with_settings
from storekeeper.cli.terminal import print_line, print_now
from storekeeper.errors import CannotStart
from storekeeper.settings import Settings

SETTLE_DELAY = 2.0
"""Seconds after its commit until a command returns: what every process knows of tokens is younger by then."""

app = typer.Typer(help="Add, list and revoke tokens, by which clients may read and write.", rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="Its name. No name is given twice, not even after a revoke.")]


@app.command()
@with_settings("database")
def add(
    settings: Settings,
    name: Name,
    *,
    scope: Annotated[Literal["read", "write"], typer.Option(help="What it permits; write includes reading.")],
    expires: Annotated[
        str | None, typer.Option(help="Days until it expires, such as 90d. Without it: never.")
    ] = None,
) -> None:
    """Add a token and print it: nobody can print it again."""
    from storekeeper import databases, tokens

    now = time.time_ns() // 1_000_000
    until = tokens.expiry(expires, now) if expires is not None else None
    text = tokens.generate()
    token = tokens.Token(0, tokens.check_name(name), scope, tokens.hashed(text.encode()), now, until)
    databases.add_token(settings.database, token)
    try:
        print_now(text)
    except OSError as error:
        reason = f"{name} was added, but its token cannot be printed ({error.strerror})"
        raise CannotStart(f"{reason}: revoke it, and add another one under another name") from None
    expiring = f" until {_day(until)}" if until else ""
    print_line(
        f"{name} may {scope}{expiring} in {databases.describe(settings.database)}, once its service runs with --auth"
        " writes (who writes needs a token) or --auth all (everybody does). Keep the token: it is not shown again"
    )
    time.sleep(SETTLE_DELAY)


@app.command("list")
@with_settings("database")
def list_(settings: Settings) -> None:
    """List the tokens: scope, state, expiry, last use. The tokens themselves are not kept."""
    from storekeeper import databases

    rows = [["NAME", "SCOPE", "STATE", "ADDED", "EXPIRES", "USED"]]
    now = time.time_ns() // 1_000_000
    for token in databases.read_tokens(settings.database):
        expired = token.expires is not None and token.expires <= now
        state = "revoked" if token.revoked is not None else "expired" if expired else "active"
        times = (token.created, token.expires, token.used)
        rows.append([token.name, token.scope, state, *(_day(at) if at is not None else "never" for at in times)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


@app.command()
@with_settings("database")
def revoke(settings: Settings, name: Name) -> None:
    """Revoke a token. Once the command has ended, no request with it is served."""
    from storekeeper import databases, tokens

    if not databases.revoke_token(settings.database, tokens.check_name(name), time.time_ns() // 1_000_000):
        raise CannotStart(f"there is no token {name}: `storekeeper token list` names those there are")
    # Before the wait: who interrupts that has to know what was done.
    print_line(f"{name} is revoked: within {SETTLE_DELAY:g} s, nothing is served to it any more")
    time.sleep(SETTLE_DELAY)
    print_line(f"From now on, nothing is served to {name}")


def _day(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M}Z"

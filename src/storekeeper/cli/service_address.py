"""What commands that call a service need: its address, and the token to send."""

import os
import re
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from storekeeper.domain.errors import CannotStart

if TYPE_CHECKING:
    from storekeeper.client import Client

TOKEN_VARIABLE = "STOREKEEPER_TOKEN"  # noqa: S105 - the name of one

MAX_TOKEN_FILE_LENGTH = 10_000
"""Characters that are read from a file, which may have no end."""

SERVICE: TypeAlias = Annotated[str, typer.Option(help="Address of the service.")]


def client_of(service: str, token: Path | None) -> "Client":
    """Return a client of a service; raise CannotStart if the extra for it is not installed."""
    if find_spec("httpx") is None:
        raise CannotStart("this command needs httpx: install Storekeeper with its extra client")
    from storekeeper.client import Client

    check_address(service)
    return Client(service, token=read_token(token) or None)


def check_address(service: str) -> None:
    """Raise CannotStart if this is not the address of a service."""
    if not re.match(r"https?://[^/]", service):
        raise CannotStart("not an http or https URL", subject="--service")


def read_token(file: Path | None) -> str:
    """Return the token to send, "" for none. The token itself as an option would stay in the
    shell's history."""
    where = TOKEN_VARIABLE
    if file:
        # A user may give the token itself: the log of a job must not show it.
        where = "--token" if str(file).startswith("skt_") else f"--token {file}"
    try:
        with file.open() if file else StringIO(os.environ.get(TOKEN_VARIABLE)) as opened:
            token = opened.read(MAX_TOKEN_FILE_LENGTH).strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise CannotStart(
            f"{where}: cannot be read ({reason}): name a file that has the token"
        ) from None
    if (file and not token) or not re.fullmatch(r"[!-~]*", token):
        raise CannotStart(
            f"{where}: has no token: expected only a token, without `Authorization: Bearer`"
        )
    return token

"""The command that asks a service whether it is ready."""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from storekeeper.cli.options import with_settings
from storekeeper.cli.results import Json, Readiness, print_json
from storekeeper.cli.terminal import print_line
from storekeeper.domain.errors import CannotStart
from storekeeper.settings import Settings

if TYPE_CHECKING:
    from http.client import HTTPConnection

TIMEOUT = 6.0
"""Seconds to wait for a response, which comes within 5 (decision 30)."""

_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - asked, not listened on


@with_settings("host", "port", "uds")
def ready(
    settings: Settings,
    *,
    url: Annotated[
        str, typer.Argument(help="Its address. Default: from --uds, or from --host and --port.")
    ] = "",
    json: Json = False,
) -> int:
    """Ask a service whether it is ready, as /health/ready says.

    The exit status is 0 if it is ready, 1 if it is not or cannot be reached. If only writes are
    refused, it is ready, and a line says why.
    """
    found = _ask(settings, url)
    if json:
        print_json(found)
    elif found.status is None:
        print_line(f"storekeeper: not ready: {found.reason}")
    elif not found.ready:
        reason = f": {found.reason}" if found.reason else ""
        print_line(f"storekeeper: not ready: /health/ready responds with {found.status}{reason}")
    elif found.reason:
        print_line(f"storekeeper: ready, but writes are refused: {found.reason}")
    return int(not found.ready)


def _ask(settings: Settings, url: str) -> Readiness:
    from http.client import HTTPException
    from socket import AF_UNIX, socket

    connection, path = _connection(url or _address(settings))
    try:
        if settings.uds and not url:
            connection.sock = socket(AF_UNIX)
            connection.sock.settimeout(TIMEOUT)
            connection.sock.connect(settings.uds)
        connection.request("GET", f"{path}/health/ready")
        response = connection.getresponse()
        reason = _reason(response.read(10_000))
    except (OSError, HTTPException) as error:
        return Readiness(False, None, str(error) or type(error).__name__)
    finally:
        connection.close()
    return Readiness(response.status == 200, response.status, reason)


def _reason(body: bytes) -> str | None:
    """Return the reason in a response of /health/ready, None if it has none."""
    import json

    with suppress(ValueError, AttributeError):  # it is from another kind of service
        said = json.loads(body)
        reason = said.get("reason") or said.get("message")
        return str(reason) if reason else None
    return None


def _address(settings: Settings) -> str:
    host = _EVERY_ADDRESS.get(settings.host, settings.host)
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{settings.port}"


def _connection(url: str) -> tuple["HTTPConnection", str]:
    """Return a connection to the host of a URL, and the path of the URL. Raises CannotStart."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        kind = {"http": HTTPConnection, "https": HTTPSConnection}[parts.scheme]
        if parts.hostname and not (parts.username or parts.query or parts.fragment):
            return kind(parts.hostname, parts.port, timeout=TIMEOUT), parts.path.rstrip("/")
    except (ValueError, KeyError, HTTPException):
        pass
    raise CannotStart("expected an address such as http://127.0.0.1:8080", subject="URL")

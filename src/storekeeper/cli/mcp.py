"""The command that serves assistants."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from storekeeper.cli.service_address import SERVICE, check_address, read_token
from storekeeper.domain.errors import CannotStart


def mcp(
    *,
    service: SERVICE = "http://127.0.0.1:8080",
    token: Annotated[
        Path | None,
        typer.Option(help="A file with the token. Without it, STOREKEEPER_TOKEN is sent."),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Let the assistant edit and add stores, too.")
    ] = False,
) -> None:
    """Serve the list to an assistant, over standard input and output.

    It speaks the Model Context Protocol. An assistant can search, read and propose; with --write
    also edit and create, if the token may write.
    """
    if find_spec("mcp") is None:
        raise CannotStart("this command needs the MCP SDK: install Storekeeper with its extra mcp")
    from storekeeper.cli.assistant import make_server
    from storekeeper.client import AsyncClient

    check_address(service)
    client = AsyncClient(service, token=read_token(token) or None, patience=20.0)
    make_server(client, write=write).run()

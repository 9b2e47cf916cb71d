"""Requests and responses of `core` as those of httpx."""

from collections.abc import Mapping
from typing import Any

import httpx

from storekeeper.client.core import Lost, Reply, Request
from storekeeper.client.errors import ClientError
from storekeeper.client.following import SILENCE


def options(url: str, token: str | None, timeout: float) -> dict[str, Any]:
    """Return the options of an httpx client for one service."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return {"base_url": url, "headers": headers, "timeout": timeout}


def arguments(request: Request) -> dict[str, Any]:
    """Return the arguments with which httpx sends a request."""
    return {
        "method": request.method,
        "url": request.target,
        "headers": dict(request.fields),
        "content": request.body or None,
    }


def stream_arguments(request: Request) -> dict[str, Any]:
    """Return the arguments for a request whose response is a stream of events."""
    # A proxy that may compress could hold events back.
    fields = {**request.fields, "accept-encoding": "identity"}
    timeout = httpx.Timeout(10.0, read=SILENCE)
    return {**arguments(request), "headers": fields, "timeout": timeout}


def fields_of(response: httpx.Response) -> Mapping[str, str]:
    """Return the header fields of a response, names in lower case."""
    return dict(response.headers)


def reply(response: httpx.Response) -> Reply:
    """Return a complete response."""
    return Reply(response.status_code, fields_of(response), response.content)


def lost(error: httpx.RequestError) -> Lost:
    """Return what a failed request is to `core`; raise ClientError if it can never succeed."""
    if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        raise ClientError(str(error)) from None
    return Lost(str(error) or type(error).__name__)

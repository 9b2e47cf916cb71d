"""The complete ASGI application: the contract, and around it what Starlette routes. Imports Starlette and `api`.

It runs on any ASGI server. Whoever builds it opens the collection and closes it.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from storekeeper.api import docs, operations
from storekeeper.api.reply import (
    BODY_LIMIT,
    Later,
    Reply,
    bug_reply,
    error_reply,
    not_allowed,
    not_found,
    phrase,
    too_large,
)
from storekeeper.api.resource import Resource
from storekeeper.collection import Collection
from storekeeper.errors import StorekeeperError
from storekeeper.events import Event, emit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Application:
    """Answers every HTTP request: the contract's by the resource, all others by Starlette's routes."""

    def __init__(self, resource: Resource, collection: Collection) -> None:
        self.resource = resource
        self._others = Starlette(
            routes=[*operations.routes(collection), *docs.routes()],
            exception_handlers={HTTPException: _http_error, Exception: _bug},
        )
        self._others.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        target = _target(scope)
        if self.resource.knows(target):
            await self._contract(scope, target, receive, send)
        else:
            await self._others(scope, receive, send)

    async def _contract(self, scope: Scope, target: bytes, receive: Receive, send: Send) -> None:
        body = await _body(scope, receive)
        if body is None:
            return
        reply = too_large() if len(body) > BODY_LIMIT else await self._answer(scope, target, body)
        await _send(reply, scope, send)

    async def _answer(self, scope: Scope, target: bytes, body: bytes) -> Reply:
        try:
            reply = self.resource.handle(scope["method"], target, scope["headers"], body)
            if type(reply) is Later:
                await _done(reply)
                reply = reply.reply()
        except Exception as error:  # noqa: BLE001 - the last resort of the contract's routes
            emit(Event.BUG, error=error)
            return bug_reply()
        return reply if type(reply) is Reply else not_found()


async def _done(later: Later) -> None:
    try:
        await later.future
    except StorekeeperError:
        return  # `reply` makes an answer of it


def _target(scope: Scope) -> bytes:
    # `raw_path` is optional in ASGI.
    path: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    query: bytes = scope.get("query_string", b"")
    return path.partition(b"?")[0] + b"?" + query if query else path


async def _body(scope: Scope, receive: Receive) -> bytes | None:
    """Read the body, but not past the limit; None if the client went away."""
    if scope["method"] in ("GET", "HEAD"):
        return b""
    if any(name == b"content-length" and int(value) > BODY_LIMIT for name, value in scope["headers"]):
        return bytes(BODY_LIMIT + 1)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > BODY_LIMIT or not message.get("more_body", False):
            return bytes(body)


async def _send(reply: Reply, scope: Scope, send: Send) -> None:
    headers = list(reply.headers)
    if reply.stream is None and reply.status != 204:
        headers.append((b"content-length", b"%d" % len(reply.body)))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    if reply.stream is not None and scope["method"] != "HEAD":
        async for part in reply.stream:
            await send({"type": "http.response.body", "body": part, "more_body": True})
    body = b"" if scope["method"] == "HEAD" else reply.body
    await send({"type": "http.response.body", "body": body})


def _response(reply: Reply) -> Response:
    response = Response(reply.body, reply.status)
    response.raw_headers = list(reply.headers)
    if reply.status != 204:
        response.raw_headers.append((b"content-length", b"%d" % len(reply.body)))
    return response


def _http_error(request: Request, error: Exception) -> Response:
    """Give the framework's own errors the contract's body (decision 22)."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return _response(not_found())
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "").split(", ")
        return _response(not_allowed(request.method, (*sorted(allowed), "OPTIONS")))
    return _response(error_reply(error.status_code, phrase(error.status_code)))


def _bug(_request: Request, _error: Exception) -> Response:
    # Starlette raises it again after this answer, so that the server logs it.
    return _response(bug_reply())

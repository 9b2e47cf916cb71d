"""The complete ASGI application: the contract's routes, Starlette's for the rest. Imports `http` and the domain.

It runs on any ASGI server. Its caller opens the collection and closes it.
"""

import asyncio
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response as StarletteResponse
from starlette.types import Message, Receive, Scope, Send

from storekeeper.api import docs, operations
from storekeeper.api.errors import NOT_FOUND, not_allowed
from storekeeper.api.gate import Gate
from storekeeper.api.operations import to_starlette
from storekeeper.api.plan import Plan
from storekeeper.api.resource import Resource
from storekeeper.collection import Collection
from storekeeper.http.request import exceeds_limit
from storekeeper.http.response import INTERNAL_ERROR, MAX_BODY_BYTES, TOO_LARGE, Headers, Response, framed_headers


class Application:
    """Responds to every HTTP request: on the contract's routes by the resource, on all others by Starlette."""

    def __init__(self, resource: Resource, gate: Gate, collection: Collection, *, ready_needs_writes: bool) -> None:
        self._resource = resource
        self._gate = gate
        self._starlette = Starlette(
            routes=[*operations.routes(collection, gate.unknown, ready_needs_writes), *docs.ROUTES],
            exception_handlers={HTTPException: _http_error, Exception: _bug},
        )
        self._starlette.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request."""
        if scope["type"] == "websocket":
            scope, send = _as_get(scope, send)
        # ASGI allows any iterable, and some servers leave the blanks around a value.
        headers = scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        target = _target(scope)
        plan = self._gate.plan(scope["method"], target, headers)
        if fields := self._gate.fields(headers):
            send = _adding(fields, send)
        if any(name == b"content-length" and exceeds_limit(value) for name, value in headers):
            await _send(TOO_LARGE, scope, receive, send)
        elif plan is None:
            await self._starlette(scope, receive, send)
        elif (response := await self._respond(plan, target, scope, receive)) is not None:
            await _send(response, scope, receive, send)

    async def _respond(self, plan: Plan, target: bytes, scope: Scope, receive: Receive) -> Response | None:
        """Return the response to a planned request; None if the client went away."""
        if isinstance(admitted := plan.admit(), Response):
            return admitted
        body = await _body(scope, receive)
        if not isinstance(body, bytes):
            return body
        # Asked again: the token may have ended while the body was on its way.
        if isinstance(by := plan.admit(), Response):
            return by
        response = self._resource.respond(plan, target, body, by)
        if isinstance(response, Response):
            return response
        try:
            await response.future
        except Exception as error:  # noqa: BLE001 - `response()` turns it into a response
            # Drop this frame from it: the error and the frame would keep the body until the garbage collector comes.
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        return response.response()


def _as_get(scope: Scope, send: Send) -> tuple[Scope, Send]:
    """Return the handshake of a WebSocket as the GET that it is (decision 28), and how to respond to it.

    A server that cannot send our response gets a close, for which it sends a 403; without it, it would send a 500.
    """
    responds = "websocket.http.response" in scope.get("extensions", {})

    async def send_response(message: Message) -> None:
        if responds:
            await send({**message, "type": f"websocket.{message['type']}"})
        elif message["type"] == "http.response.start":
            await send({"type": "websocket.close"})

    return {**scope, "type": "http", "method": "GET"}, send_response


def _adding(fields: Headers, send: Send) -> Send:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *fields]}
        await send(message)

    return add


def _target(scope: Scope) -> bytes:
    # `raw_path` is optional in ASGI.
    path: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    query: bytes = scope.get("query_string", b"")
    if query:
        path = path.partition(b"?")[0] + b"?" + query
    # Servers may put `root_path` in front of the path, or leave it out.
    root = scope.get("root_path") and quote(scope["root_path"]).encode()
    return path.removeprefix(root) if root and path.startswith(root + b"/") else path


async def _body(scope: Scope, receive: Receive) -> bytes | Response | None:
    """Return the body; the refusal if it is over the limit, without reading on; None if the client went away."""
    if scope["method"] in ("GET", "HEAD"):
        return b""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            return TOO_LARGE
        if not message.get("more_body", False):
            return bytes(body)


async def _send(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    headers = framed_headers(response)
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    if response.stream is not None and scope["method"] != "HEAD":
        gone = asyncio.create_task(_disconnected(receive))
        try:
            async for part in response.stream:
                if gone.done():  # `send` would drop the rest of the list in silence
                    return
                await send({"type": "http.response.body", "body": part, "more_body": True})
        finally:
            gone.cancel()
    body = b"" if scope["method"] == "HEAD" else response.body
    await send({"type": "http.response.body", "body": body})


async def _disconnected(receive: Receive) -> None:
    """Return when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _http_error(request: Request, error: Exception) -> StarletteResponse:
    """Return the response to Starlette's 404 or 405, its only errors here, with the contract's body (decision 22)."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return to_starlette(NOT_FOUND)
    allowed = (error.headers or {}).get("Allow", "").split(", ")
    return to_starlette(not_allowed(request.method, (*sorted(allowed), "OPTIONS")))


def _bug(_request: Request, _error: Exception) -> StarletteResponse:
    # Starlette raises the error again after this response, so that the server logs it.
    return to_starlette(INTERNAL_ERROR)

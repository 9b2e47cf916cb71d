"""The application for another ASGI server, over the same routes, gate and plans."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from time import perf_counter
from typing import Any
from urllib.parse import quote

from storekeeper.http.request import Request, exceeds, identify
from storekeeper.http.response import Deferred, Response, framed_headers, parse_fields, too_large
from storekeeper.http.runtime import Runtime, Served
from storekeeper.log.events import request_id


class AsgiApplication:
    """Responds to every HTTP request of an ASGI server. Its caller opens the collection and
    closes it."""

    def __init__(self, runtime: Runtime) -> None:
        self._application = runtime.application
        self._observe = runtime.observe

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Respond to one request."""
        began = perf_counter()
        # ASGI allows any iterable, and some servers leave the blanks around a value.
        headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        request = Request(scope["method"], _target(scope), headers, scope["http_version"], True)
        request.root = quote(scope.get("root_path") or "").rstrip("/").encode()
        identify(request)
        id = request.id
        request_id.set(id)
        status = size = 0

        async def counted(message: dict[str, Any]) -> None:
            nonlocal status, size
            status = message.get("status", status)
            size += len(message.get("body", b""))
            await send(message)

        try:
            response = await self._respond(request, receive)
            if response is not None:
                fields = parse_fields(framed_headers(response) + self._application.fields(headers))
                if id:
                    fields.append((b"x-request-id", id))
                await _send(response, fields, request, receive, counted)
        finally:
            if request.upload is not None:
                request.upload.release()
            self._observe(
                Served(
                    request.route,
                    request.method,
                    status,
                    size,
                    perf_counter() - began,
                    request.token_number,
                    scope.get("client"),
                    id,
                )
            )

    async def _respond(self, request: Request, receive: Any) -> Response | None:
        """Return the response to a request; None if the client went away."""
        limit = self._application.body_limit(request.target).max_bytes
        lengths = [value for name, value in request.headers if name == b"content-length"]
        if any(exceeds(length, limit) for length in lengths):
            return too_large(limit)
        if refusal := self._application.early_refusal(request):
            return refusal
        body = await _body(request, receive, limit)
        if not isinstance(body, bytes):
            return body
        request.body = body
        # Admitted again: the token may have ended while the body arrived.
        response = self._application.respond(request)
        if isinstance(response, Deferred):
            await asyncio.wait([response.future])
            return self._application.complete(response)
        return response


def _target(scope: Any) -> bytes:
    # `raw_path` is optional in ASGI.
    path: bytes = scope.get("raw_path") or quote(scope["path"], safe="/*").encode()
    query: bytes = scope.get("query_string", b"")
    if query:
        path = path.partition(b"?")[0] + b"?" + query
    # Servers may put `root_path` in front of the path, or leave it out.
    root = scope.get("root_path") and quote(scope["root_path"]).encode()
    if root and path.startswith(root + b"/"):
        return path.removeprefix(root)
    return path


async def _body(request: Request, receive: Any, limit: int) -> bytes | Response | None:
    """Return the body; the refusal if it is over the limit, without reading the rest; None if the
    client went away."""
    if request.method in ("GET", "HEAD"):
        return b""
    body, size, upload = bytearray(), 0, request.upload
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            return too_large(limit)
        if upload is None:
            body += part
        elif refusal := upload.append(part):
            return refusal
        if not message.get("more_body", False):
            return bytes(body)


async def _send(
    response: Response, headers: Any, request: Request, receive: Any, send: Any
) -> None:
    stop = response.stop or (lambda: None)
    try:
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        if response.stream is not None and request.method != "HEAD":
            gone = asyncio.create_task(_disconnected(receive, stop))
            try:
                async with aclosing(response.stream) as parts:
                    async for part in parts:
                        if gone.done():  # `send` would drop the rest of the list in silence
                            return
                        await send({"type": "http.response.body", "body": part, "more_body": True})
            finally:  # after an exception, the server breaks the connection: the response is cut
                gone.cancel()
        body = b"" if request.method == "HEAD" else response.body
        await send({"type": "http.response.body", "body": body})
    finally:
        stop()


async def _disconnected(receive: Any, stop: Callable[[], None]) -> None:
    """Return when the client is gone, and end its stream."""
    while (await receive())["type"] != "http.disconnect":
        pass
    stop()

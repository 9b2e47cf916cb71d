"""An ASGI application, called as a server would call it, and the response that it sends."""

import asyncio
from typing import Any

from storekeeper.process.service import Service
from tests.harness.in_process import Inside
from tests.harness.process import Response

Message = dict[str, Any]


def scope_of(method: str, path: str, query: bytes = b"", **more: Any) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "query_string": query,
        "headers": [],
    } | more


async def called(app: Service, scope: dict[str, Any], *messages: Message) -> list[Message]:
    """Call an application; the client leaves after what it sends, but waits for a response that has
    begun.

    Return what the application sent.
    """
    sent: list[Message] = []
    waiting = [*messages, {"type": "http.disconnect"}]

    async def receive() -> Message:
        if sent:
            await asyncio.Event().wait()
        return waiting.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


def body(*parts: bytes) -> list[Message]:
    """Return the messages of a body that is sent in parts."""
    return [
        {"type": "http.request", "body": part, "more_body": at < len(parts)}
        for at, part in enumerate(parts, 1)
    ]


def response_of(sent: list[Message]) -> Response:
    start, *rest = sent
    assert start["type"] == "http.response.start"
    assert [message.get("more_body", False) for message in rest] == [True] * (len(rest) - 1) + [
        False
    ]
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    assert all(name == name.lower() for name in headers)
    return Response(
        start["status"], headers, b"".join(message.get("body", b"") for message in rest)
    )


async def asked(
    service: Inside, method: str, path: str, content: bytes = b"", **more: Any
) -> Response:
    return response_of(
        await called(service.service, scope_of(method, path, **more), *body(content))
    )

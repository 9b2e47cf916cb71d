"""Posts of changes to another service, as Standard Webhooks has them. No I/O."""

import base64
import hmac
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from storekeeper.client.errors import ClientError
from storekeeper.client.model import Change, Reset, Store

PREFIX = "whsec_"
"""What every secret begins with."""

MIN_SECRET_BYTES, MAX_SECRET_BYTES = 24, 64
"""Bytes of a secret, without its base64."""

PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds before each further attempt; the last of them before all later ones."""


def read_secrets(text: str) -> tuple[bytes, ...]:
    """Return the secrets in the lines of a text; raise ClientError if there is none, or a bad one.

    With several, each post has a signature of each: so a receiver can change from one to the next.
    """
    secrets = tuple([_secret(line.strip()) for line in text.splitlines() if line.strip()])
    if not secrets:
        raise ClientError("has no secret")
    return secrets


def _secret(line: str) -> bytes:
    try:
        secret = base64.b64decode(line.removeprefix(PREFIX), validate=True)
    except ValueError:
        secret = b""
    is_long = MIN_SECRET_BYTES <= len(secret) <= MAX_SECRET_BYTES
    if not line.startswith(PREFIX) or not is_long:
        raise ClientError(
            f"a secret is {PREFIX} and {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes in base64"
        )
    return secret


def body_of(event: Change | Reset, now: float) -> bytes:
    """Return the body of the post about an event; `now` in seconds since 1970."""
    if isinstance(event, Reset):
        at = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
        data: dict[str, Any] = {"cursor": event.cursor}
        body = {"type": "list.reset", "timestamp": at.replace("+00:00", "Z"), "data": data}
        return _encoded(body)
    previous = None
    if event.previous is not None:
        previous = {"name": event.previous.name, "address": event.previous.address}
    data = {"seq": event.seq, "store": _shown(event.store), "previous": previous}
    for name, value in (("by", event.by), ("user", event.user)):
        if value is not None:
            data[name] = value
    return _encoded({"type": f"store.{event.type}", "timestamp": event.at, "data": data})


def fields_of(
    event: Change | Reset, body: bytes, secrets: Sequence[bytes], now: float
) -> Mapping[str, str]:
    """Return the header fields of an attempt; `webhook-id` is the event's cursor."""
    timestamp = str(int(now))
    signed = f"{event.cursor}.{timestamp}.".encode() + body
    digests = [hmac.digest(secret, signed, "sha256") for secret in secrets]
    signatures = " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
    return {
        "content-type": "application/json",
        "webhook-id": event.cursor,
        "webhook-timestamp": timestamp,
        "webhook-signature": signatures,
    }


def _shown(store: Store) -> dict[str, Any]:
    return {"id": store.id, "name": store.name, "address": store.address}


def _encoded(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()

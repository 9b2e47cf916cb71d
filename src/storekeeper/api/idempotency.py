"""The Idempotency-Key of a request (decision 36): its grammar, and the hashes that a database remembers of it."""

import re
from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from msgspec.structs import astuple

from storekeeper.commands import Key, Tags
from storekeeper.stores import Payload

_KEY = re.compile(rb'(")?([!#-\[\]-~]{1,255})(?(1)")')
_encode = msgspec.json.Encoder().encode
_EMPTY = blake2b(digest_size=8)


def parse_key(values: Sequence[bytes]) -> bytes | None:
    """Return the key, the same with quotes and without; None unless the field is there once and valid."""
    found = _KEY.fullmatch(values[0].strip()) if len(values) == 1 else None
    return found[2] if found else None


def hashed(key: bytes, route: str, id: int | None, payload: Payload, if_match: Tags | None, scope: int = 0) -> Key:
    """Return the hashes of a key and of the request with it; a route has one method that writes.

    `scope` is the number of the token that the key belongs to, 0 for the clients without one.
    """
    text = key.decode("ascii")
    tags = None if if_match is None else sorted(if_match)
    request = _encode((text, route, id, *astuple(payload), tags))
    return Key(_hash(_encode((scope, text))), _hash(request))


def _hash(data: bytes) -> int:
    hashing = _EMPTY.copy()  # half the time of a new one, whose constructor reads a dozen parameters
    hashing.update(data)
    # Without the lowest bit: both databases have signed integers of 64 bits.
    return int.from_bytes(hashing.digest()) >> 1

"""The Idempotency-Key of a request (decision 36): its grammar, and the hashes that a database remembers of it."""

import re
from hashlib import blake2b

import msgspec
from msgspec.structs import astuple

from storekeeper.commands import Key, Tags
from storekeeper.stores import Payload

_key = re.compile(rb'(")?([!#-\[\]-~]{1,255})(?(1)")').fullmatch
_encode = msgspec.json.Encoder().encode
_EMPTY = blake2b(digest_size=8)
_number = int.from_bytes


def parse_key(value: bytes) -> bytes | None:
    """Return the key in the value of the field, the same with quotes and without; None if it is not valid."""
    found = _key(value.strip(b" \t"))
    return found[2] if found else None


def hashed(key: bytes, route: str, id: int | None, payload: Payload, if_match: Tags | None, scope: int = 0) -> Key:
    """Return the hashes of a key and of the request with it; a route has one method that writes.

    `scope` is the number of the token that the key belongs to, 0 for the clients without one.
    """
    text = key.decode()
    tags = None if if_match is None else sorted(if_match)
    request = _encode((text, route, id, *astuple(payload), tags))
    return Key(_hash(_encode((scope, text))), _hash(request))


def _hash(data: bytes) -> int:
    hashing = _EMPTY.copy()  # half the time of a new one, whose constructor reads a dozen parameters
    hashing.update(data)
    # Without the lowest bit: both databases have signed integers of 64 bits.
    return _number(hashing.digest(), "big") >> 1

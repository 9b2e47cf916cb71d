"""The Idempotency-Key of a request (decision 36): its grammar, and the hashes that a database remembers of it."""

import re
from hashlib import blake2b
from struct import Struct

import msgspec
from msgspec.structs import astuple

from storekeeper.commands import Key, Tags
from storekeeper.stores import Payload

_key = re.compile(rb'(")?([!#-\[\]-~]{1,255})(?(1)")').fullmatch
_encode = msgspec.json.Encoder().encode
_EMPTY = blake2b(digest_size=8)
_numbers = Struct(">QQ").unpack


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
    of_key, of_request = _EMPTY.copy(), _EMPTY.copy()  # half the time of new ones, which read a dozen parameters
    of_key.update(_encode((scope, text)))
    of_request.update(_encode((text, route, id, *astuple(payload), tags)))
    first, second = _numbers(of_key.digest() + of_request.digest())
    # Without the lowest bit: both databases have signed integers of 64 bits.
    return Key(first >> 1, second >> 1)

"""Domain: the tokens that clients send (RFC 6750): their form, names, expiry.

A token is `skt_`, 43 random letters and digits (256 bits), and 6 of a checksum, so that a
scanner for leaked secrets recognizes it. The service shows it once; the database has its
SHA-256.
"""

import re
import secrets
import string
import zlib
from hashlib import sha256
from typing import NamedTuple

import msgspec

from storekeeper.domain.errors import CannotStart

MAX_EXPIRY_DAYS = 36_500
"""Days until a token expires."""

USED_INTERVAL = 60 * 60 * 1000
"""Milliseconds between two records of the use of one token."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PREFIX = "skt_"
_DIGITS = string.digits + string.ascii_letters
_RANDOM, _CHECKSUM = 43, 6
_FORM = re.compile(rb"skt_[0-9A-Za-z]{%d}" % (_RANDOM + _CHECKSUM))
_EXPIRY = re.compile(r"([1-9][0-9]{0,4})d")


class Token(msgspec.Struct, frozen=True):
    """A row of the table of tokens. `scope` is "read" or "write", which includes read.

    `hash` is its SHA-256 in hexadecimal digits. Times are ms since 1970, None: never; `used` may
    lag by an hour. `created_by` and `revoked_by` are names of users of the system, None: unknown.
    """

    number: int
    name: str
    scope: str
    hash: str
    created: int
    expires: int | None = None
    revoked: int | None = None
    used: int | None = None
    created_by: str | None = None
    revoked_by: str | None = None


class Traces(NamedTuple):
    """What shows without reading the tokens whether something happened to them or to the history:
    the collection's version and epoch, how many tokens there are, how many of them were revoked,
    and how many were used."""

    version: int
    epoch: str
    tokens: int
    revoked: int
    used: int


CONSOLE = "/console/"
"""The path of the console."""


def console_link(address: str, text: str) -> str:
    """Return the link that opens the console of a service with a token; no browser sends the
    fragment."""
    return f"{address.rstrip('/')}{CONSOLE}#token={text}"


def generate() -> str:
    """Return a new token."""
    text = _PREFIX + "".join(secrets.choice(_DIGITS) for _ in range(_RANDOM))
    return text + _checksum(text)


def is_well_formed(text: bytes) -> bool:
    """Return whether a text has the form and the checksum of a token; the gate looks up no
    other."""
    return (
        _FORM.fullmatch(text) is not None
        and _checksum(text[:-_CHECKSUM].decode()) == text[-_CHECKSUM:].decode()
    )


def hashed(text: bytes) -> str:
    """Return the hash of a token, which the database has instead of the token."""
    return sha256(text).hexdigest()


def check_name(name: str) -> str:
    """Return the name of a token. Raises CannotStart if it breaks the rule."""
    if not _NAME.fullmatch(name):
        rule = (
            "expected 1 to 64 letters, digits, dots, hyphens and underscores, the first a"
            " letter or digit"
        )
        raise CannotStart(rule, subject="NAME")
    return name


def expiry(text: str, now: int) -> int:
    """Return the time that `text`, such as `90d`, is after `now`, both in ms since 1970. Raises
    CannotStart."""
    found = _EXPIRY.fullmatch(text)
    if not found or int(found[1]) > MAX_EXPIRY_DAYS:
        rule = f"expected a number of days from 1d to {MAX_EXPIRY_DAYS}d, such as 90d"
        raise CannotStart(f"{rule}, not {text!r}", subject="--expires")
    return now + int(found[1]) * 24 * 60 * 60 * 1000


def _checksum(text: str) -> str:
    value, digits = zlib.crc32(text.encode()), ""
    while len(digits) < _CHECKSUM:  # 62 to the power of 6 is more than 2 to the power of 32
        value, digit = divmod(value, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits

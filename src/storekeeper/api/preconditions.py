"""What a head demands: its media type, entity tags, an Idempotency-Key.

Decisions 14, 33 and 36. `tests/api/test_conditions.py` holds the grammar of the tags (RFC 9110,
section 13.1) against a second reading of it, `tests/oracles/entity_tags.py`.
"""

import re
from hashlib import blake2b
from typing import Any

import msgspec

from storekeeper.domain.commands import ANY, Key, Tags, matches
from storekeeper.domain.errors import InvalidInput
from storekeeper.domain.reasons import Reason, Violation
from storekeeper.http.request import KEY, field
from storekeeper.http.response import JSON, NO_CACHE, Fields, Response, error_response

_JSON_TYPE = re.compile(rb"application/(?:json|[!#$&^_.+a-z0-9-]+\+json)")
_UTF8 = (b"utf-8", b"utf8")
_TAG = rb'(?:W/)?"[!#-~\x80-\xff]*+"'
# Possessive: two commas have one way only to share the blanks between them, so that no list takes
# long to refuse.
_LIST = re.compile(rb"[ \t]*+(?:%b)?(?:[ \t]*+,[ \t]*+(?:%b)?)*+[ \t]*+" % (_TAG, _TAG))
_OPAQUE = re.compile(r'"[^"]*"')
_COMPRESSED = re.compile(rb'(?:-gzip|-br|-zstd|-deflate|;gzip)(?=")')
"""The mark that a compressing proxy adds to a tag. It is taken off, as ours are strong (decision
33)."""

_KEY = re.compile(rb"[ \t]*%b[ \t]*" % KEY)
_encode = msgspec.json.Encoder().encode

ACCEPT_PATCH = b"accept-patch: application/merge-patch+json, application/json\r\n"

REPLAYED = JSON + b"idempotent-replayed: true\r\n"
"""The fields of a response that is given again (decision 36)."""


class Preconditions(msgspec.Struct, frozen=True):
    """The entity tags that a write depends on."""

    if_match: Tags | None = None
    if_none_match: Tags | None = None

    def key(self, sent: str, token_number: int, content: tuple[Any, ...]) -> Key | None:
        """Return the Idempotency-Key of a write, with the hash that the same request will have
        again.

        `token_number` is that of the token that the key belongs to, 0 for the clients without
        one. The first part of the content is the route: one method of it writes. None if `sent`
        is empty.
        """
        if not sent:
            return None
        tags = None if self.if_match is None else sorted(self.if_match)
        text = _encode((*content, tags))
        request = int.from_bytes(blake2b(text, digest_size=8).digest(), signed=True)
        # No key that a client sends has a blank.
        return f"{token_number} {sent}" if token_number else sent, request


def check_type(headers: Fields, *, is_patch: bool = False) -> Response | None:
    """Return the refusal of a write whose body is not JSON; for a PATCH, of one that is not a merge
    patch (decision 56)."""
    types = [value for name, value in headers if name == b"content-type"]
    # A page of another site may send a body without a type, for which browsers make no preflight
    # (decision 14).
    is_json = all(map(_is_json, types)) if types else field(headers, b"origin") is None
    if is_patch and (not is_json or any(map(_is_json_patch, types))):
        problem = "Send the body as application/merge-patch+json"
        return error_response(415, problem, headers=ACCEPT_PATCH)
    if not is_json:
        return error_response(415, "Send the body as application/json")
    return check_coding(headers)


def check_coding(headers: Fields) -> Response | None:
    """Return the refusal of a body with a Content-Encoding."""
    codings = [value.strip().lower() for name, value in headers if name == b"content-encoding"]
    if all(coding in (b"", b"identity") for coding in codings):
        return None
    return error_response(415, "Send the body without a Content-Encoding")


def read_preconditions(headers: Fields, *, is_create: bool) -> Preconditions:
    """Return the preconditions of a write; raises InvalidInput with every violation, also of its
    Idempotency-Key.

    A create ignores If-None-Match (decision 33).
    """
    names = ("if-match",) if is_create else ("if-match", "if-none-match")
    tags = {
        name: parse_tags(value)
        for name in names
        if (value := field(headers, name.encode())) is not None
    }
    rules = {name: "must be entity tags in quotes, or *" for name in tags if tags[name] is None}
    keys = [value for name, value in headers if name == b"idempotency-key"]
    if len(keys) > 1 or not all(map(_KEY.fullmatch, keys)):
        rules["idempotency-key"] = (
            "must be given once, and be 1 to 255 visible ASCII characters without quotes and"
            " backslashes"
        )
    if rules:
        violations = {name: Violation(Reason.MALFORMED, rule) for name, rule in rules.items()}
        raise InvalidInput("headers", violations)
    return Preconditions(tags.get("if-match"), tags.get("if-none-match"))


def read_if_none_match(headers: Fields) -> Tags | None:
    """Return the tags of what a client has; None if it names none.

    A malformed field counts as absent, so that a poller continues (decision 33).
    """
    value = field(headers, b"if-none-match")
    return parse_tags(value) if value else None


def not_modified(if_none_match: Tags | None, current: str) -> Response | None:
    """Return the 304 if the client has the current tag already, otherwise None."""
    if if_none_match is None or not matches(if_none_match, current):
        return None
    return Response(b"", NO_CACHE, 304, tag=current.encode())


def parse_tags(value: bytes) -> Tags | None:
    """Return the entity tags in the value of a field, or ANY; None if they break the grammar.

    The values of several lines must be joined with commas, as `field` does (RFC 9110, section 5.3).
    """
    if _LIST.fullmatch(value):
        return frozenset(_OPAQUE.findall(_COMPRESSED.sub(b"", value).decode("latin-1")))
    return ANY if value.strip(b" \t") == b"*" else None


def _is_json_patch(content_type: bytes) -> bool:
    """Return whether a Content-Type is that of a list of operations (RFC 6902)."""
    return content_type.lower().partition(b";")[0].strip() == b"application/json-patch+json"


def _is_json(content_type: bytes) -> bool:
    """Return whether a Content-Type is JSON in UTF-8 (decision 14, so that forms of other sites
    cannot write)."""
    kind, *parameters = content_type.lower().split(b";")
    for parameter in parameters:
        key, _, value = parameter.partition(b"=")
        if key.strip() == b"charset" and value.strip().strip(b'"') not in _UTF8:
            return False
    return _JSON_TYPE.fullmatch(kind.strip()) is not None

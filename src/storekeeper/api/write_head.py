"""The head of a write: its method, what its body is, and the conditions. Imports `http` and the domain.

Decisions 14, 16, 33 and 36.
"""

import re
from collections.abc import Iterable

import msgspec

from storekeeper.api.conditions import parse_tags
from storekeeper.api.errors import not_allowed
from storekeeper.api.idempotency import parse_key
from storekeeper.api.routes import ALLOWED, Route
from storekeeper.commands import Tags
from storekeeper.errors import InvalidInput, Violation
from storekeeper.http.response import Response, error_response

Field = tuple[bytes, bytes]

_JSON_TYPE = re.compile(rb"application/(?:json|[!#$&^_.+a-z0-9-]+\+json)")
_UTF8 = (b"utf-8", b"utf8")
_DECIDING = frozenset(
    (b"content-type", b"content-encoding", b"origin", b"if-match", b"if-none-match", b"idempotency-key")
)


class Conditions(msgspec.Struct, frozen=True):
    """What a write depends on; `key` is the client's Idempotency-Key, without quotes."""

    if_match: Tags | None = None
    if_none_match: Tags | None = None
    key: bytes | None = None


UNCONDITIONAL = Conditions()


def check_method_and_type(route: Route, method: str, headers: Iterable[Field]) -> Response | list[Field]:
    """Return the refusal of a head, or those of its fields that `read_conditions` has to read."""
    allowed = ALLOWED[route]
    if method not in allowed or method == "OPTIONS":
        return not_allowed(method, allowed)
    has_type = has_origin = False
    conditional = []
    for field in headers:
        name, value = field
        if name not in _DECIDING:
            continue
        if name == b"content-type":
            has_type = True
            if value != b"application/json" and not _is_json(value):
                return error_response(415, "Send the body as application/json")
        elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            return error_response(415, "Send the body without a Content-Encoding")
        elif name == b"origin":
            has_origin = True
        else:
            conditional.append(field)
    if has_origin and not has_type:
        # A page of another site may send a body without a type, for which browsers make no preflight (decision 14).
        return error_response(415, "Send the body as application/json")
    return conditional


def read_conditions(route: Route, fields: Iterable[Field]) -> Conditions:
    """Return the conditions of a write; raises InvalidInput with every violation. A create knows no If-None-Match."""
    values: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        values.setdefault(name, []).append(value)
    if route == "stores":
        values.pop(b"if-none-match", None)
    tags = {name: parse_tags(values[name]) for name in (b"if-match", b"if-none-match") if name in values}
    violations = [_invalid(name, "must be entity tags in quotes, or *") for name in tags if tags[name] is None]
    key = None
    if sent := values.get(b"idempotency-key"):
        key = parse_key(sent[0]) if len(sent) == 1 else None
        if key is None:
            rule = "must be given once, and be 1 to 255 visible ASCII characters without quotes and backslashes"
            violations.append(_invalid(b"idempotency-key", rule))
    if violations:
        raise InvalidInput("headers", violations)
    return Conditions(tags.get(b"if-match"), tags.get(b"if-none-match"), key)


def _invalid(name: bytes, rule: str) -> Violation:
    return Violation(name.decode(), f'"{name.decode()}" {rule}')


def _is_json(content_type: bytes) -> bool:
    """Tell whether a Content-Type is JSON in UTF-8 (decision 14, so that forms of other sites cannot write)."""
    kind, *parameters = content_type.lower().split(b";")
    for parameter in parameters:
        key, _, value = parameter.partition(b"=")
        if key.strip() == b"charset" and value.strip().strip(b'"') not in _UTF8:
            return False
    return _JSON_TYPE.fullmatch(kind.strip()) is not None

"""The decisions of `docs/contract.md`, implemented a second time: the response that each request
must get.

It uses nothing of the service. It serves one request after another, with only those fields that
decide something here; messages that no decision fixes are left open.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple
from unicodedata import combining, normalize
from urllib.parse import unquote_to_bytes

Fields = list[tuple[bytes, bytes]]
Tags = frozenset[bytes]

NAMED = "https://shop.example"
ALLOWED_HOST = "stores.example"
EPOCH = b"epochnow"
"""Stands for the epoch of the collection, whatever that is."""

_EXPOSED = (
    "etag, link, total-count, retry-after, content-location, idempotent-replayed, www-authenticate"
)
_PREFLIGHT = {
    "access-control-allow-methods": "GET, HEAD, POST, PUT, PATCH",
    "access-control-allow-headers": (
        "authorization, content-type, if-match, if-none-match, idempotency-key, last-event-id"
    ),
    "access-control-max-age": "600",
}
_METHODS = {
    "stores": ("GET", "HEAD", "POST"),
    "store": ("GET", "HEAD", "PUT", "PATCH"),
    "test": ("GET", "HEAD"),
}
_JSON = "application/json; charset=utf-8"
_ANY = frozenset([b"*"])
_KEY = rb"[\x21\x23-\x5b\x5d-\x7e]{1,255}"


class Asked(NamedTuple):
    """A request; names of fields are in lower case."""

    method: str
    target: bytes
    fields: Fields
    body: bytes = b""

    def values(self, name: bytes) -> list[bytes]:
        return [value.strip(b" \t") for each, value in self.fields if each == name]

    def one(self, name: bytes) -> bytes | None:
        values = self.values(name)
        return b", ".join(values) if values else None


class Expected(NamedTuple):
    """A response. If `body` is a dictionary, it is the error body, whose message None stands for
    any."""

    status: int
    fields: dict[str, str]
    body: bytes | dict[str, Any] = b""


class Refused(Exception):
    def __init__(
        self,
        status: int,
        message: str | None = None,
        fields: dict[str, str] | None = None,
        **more: Any,
    ):
        super().__init__(status, message)
        body = {"statusCode": status, "message": message, **more}
        self.expected = Expected(status, {"content-type": _JSON, **(fields or {})}, body)


def invalid(source: str, keys: Sequence[str], message: str | None = None) -> Refused:
    return Refused(400, message, validation={"source": source, "keys": list(keys)})


class Model:
    """A collection, from its first change on; `tokens` are the valid ones, each with its scope."""

    def __init__(self, auth: str, tokens: dict[bytes, str]) -> None:
        self._auth = auth
        self._tokens = tokens
        self.changes: list[tuple[int, str, str | None]] = []
        self._keys: dict[tuple[bytes | None, bytes], tuple[object, Expected]] = {}

    def respond(self, asked: Asked) -> Expected:
        """Execute a request."""
        try:
            expected = self._respond(asked)
        except Refused as refused:
            expected = refused.expected
        fields = {"vary": "origin", "cache-control": "no-cache", **expected.fields}
        if asked.one(b"origin") == NAMED.encode():
            fields |= {
                "access-control-allow-origin": NAMED,
                "access-control-expose-headers": _EXPOSED,
            }
        return expected._replace(fields=fields)

    def _respond(self, asked: Asked) -> Expected:
        path, _, query = asked.target.partition(b"?")
        id = path.removeprefix(b"/api/stores/")
        route = {b"/api/stores": "stores", b"/test": "test"}.get(
            path, "store" if id not in (path, b"") else ""
        )
        self._check_page(asked)
        preflight = asked.method == "OPTIONS" and asked.values(b"access-control-request-method")
        if preflight and asked.one(b"origin") == NAMED.encode():
            return Expected(204, _PREFLIGHT)
        by = (
            self._check_token(asked)
            if route in ("store", "stores") and asked.method != "OPTIONS"
            else None
        )
        if not route:
            raise Refused(404, "Not Found")
        allow = {"allow": ", ".join((*_METHODS[route], "OPTIONS"))}
        if asked.method == "OPTIONS":
            return Expected(204, allow)
        if asked.method not in _METHODS[route]:
            raise Refused(405, "Method Not Allowed", allow)
        if route == "test":
            return Expected(200, {"content-type": "text/plain; charset=utf-8"}, b"OK")
        if asked.method in ("POST", "PUT", "PATCH"):
            return self._write(asked, id if route == "store" else None, by)
        return (
            self._read_one(asked, id, query) if route == "store" else self._read_list(asked, query)
        )

    # Access (decisions 43 and 44).

    def _check_page(self, asked: Asked) -> None:
        origin, site, host = (
            asked.one(b"origin"),
            asked.one(b"sec-fetch-site"),
            asked.one(b"host") or b"",
        )
        is_page = any(
            asked.values(name)
            for name in (b"origin", b"referer", b"sec-fetch-site", b"accept-language")
        )
        name = re.sub(rb":\d*$", b"", host).lower()
        known = name in (b"localhost", b"127.0.0.1", b"[::1]", ALLOWED_HOST.encode())
        if is_page and not known and self._auth != "all":
            raise Refused(403)
        if asked.method in ("GET", "HEAD", "OPTIONS") or origin == NAMED.encode():
            return
        same = origin in (None, b"http://" + host, b"https://" + host)
        if not (site in (b"same-origin", b"none") if site else same):
            raise Refused(403)

    def _check_token(self, asked: Asked) -> bytes | None:
        if self._auth == "open":
            return None
        sent = asked.values(b"authorization")
        if len(sent) > 1:
            raise Refused(400)
        writes = asked.method not in ("GET", "HEAD")
        scheme, _, token = (sent[0] if sent else b"").partition(b" ")
        challenge = 'Bearer realm="storekeeper"'
        if scheme.lower() != b"bearer":
            if writes or self._auth == "all":
                raise Refused(401, None, {"www-authenticate": challenge})
            return None
        token = token.strip()
        if token not in self._tokens:
            raise Refused(401, None, {"www-authenticate": f'{challenge}, error="invalid_token"'})
        if writes and self._tokens[token] == "read":
            short = f'{challenge}, error="insufficient_scope", scope="write"'
            raise Refused(403, None, {"www-authenticate": short})
        return token

    # Reads (decisions 32, 33, 37, 38 and 40).

    def _read_one(self, asked: Asked, id: bytes, query: bytes) -> Expected:
        wanted = self._read_query(query, [b"at"])
        stores, versions = self._as_of(wanted.get("at", len(self.changes)))
        number = _number(id)
        if number not in stores:
            raise _missing(id)
        tag = _tag(versions[number])
        if _matches(asked.values(b"if-none-match"), tag, missing=False):
            return Expected(304, {"etag": tag})
        return Expected(200, {"etag": tag, "content-type": _JSON}, _encode(number, *stores[number]))

    def _read_list(self, asked: Asked, query: bytes) -> Expected:
        wanted = self._read_query(query, [b"name", b"limit", b"after", b"q", b"at"])
        version = wanted.get("at", len(self.changes))
        stores, tag = self._as_of(version)[0], _tag(version)
        if _matches(asked.values(b"if-none-match"), tag, missing=False):
            return Expected(304, {"etag": tag})
        fields = {"etag": tag, "content-type": _JSON}
        if "name" not in wanted and "q" not in wanted:
            fields["total-count"] = str(len(stores))
        found = [id for id in stores if wanted.get("name", stores[id][0]) == stores[id][0]]
        page = [id for id in found if id > wanted.get("after", 0)]
        first = []
        if (q := wanted.get("q")) is not None:
            wanted.setdefault("limit", 50)
            first = [
                id for id in found if re.fullmatch(r"[0-9]+", q.strip(), re.ASCII) and id == int(q)
            ]
            page = [id for id in page if id not in first and _has_words(stores[id], q)]
            page = page if "after" in wanted else first + page
        if len(page) > (limit := wanted.get("limit", len(page))):
            page = page[:limit]
            last = wanted.get("after", 0) if page == first else page[-1]
            fields["link"] = f'</api/stores?{_next(query, last)}>; rel="next"'
        return Expected(
            200, fields, b"[" + b",".join(_encode(id, *stores[id]) for id in page) + b"]"
        )

    def _read_query(self, query: bytes, known: list[bytes]) -> dict[str, Any]:
        sent: dict[bytes, list[bytes]] = {}
        for each in query.split(b"&"):
            name, _, value = (
                unquote_to_bytes(part) for part in each.replace(b"+", b" ").partition(b"=")
            )
            sent.setdefault(name, []).append(value)
        found: dict[str, Any] = {}
        broken: list[str] = []
        for key in known:
            if sent.get(key, [b""]) == [b""]:
                continue
            found[key.decode()] = _read_value(key, sent[key][0]) if len(sent[key]) == 1 else None
            if found[key.decode()] is None:
                broken.append(key.decode())
        for one, other in (("q", "name"), ("at", "name"), ("at", "q")):
            if None not in (found.get(one), found.get(other)) and one not in broken:
                broken.append(one)
        if broken:
            raise invalid("query", broken)
        if "at" in found:
            found["at"] = self._moment(*found["at"])
        return found

    def _moment(self, version: int, epoch: bytes | None) -> int:
        if epoch not in (None, EPOCH):
            raise Refused(410, cursor=_tag(len(self.changes)).strip('"'))
        if version > len(self.changes):
            raise invalid("query", ["at"])
        return version

    def _as_of(self, version: int) -> tuple[dict[int, tuple[str, str | None]], dict[int, int]]:
        """Return the stores at a version, and the version of each."""
        stores = {id: (name, address) for id, name, address in self.changes[:version]}
        return stores, {id: seq for seq, (id, *_) in enumerate(self.changes[:version], 1)}

    # Writes (decisions 3 to 14, 33 to 36 and 56).

    def _write(self, asked: Asked, id: bytes | None, by: bytes | None) -> Expected:
        _check_type(asked)
        key, if_match, if_none_match = _read_conditions(asked, creates=id is None)
        read = _read_patch if asked.method == "PATCH" else _read_payload
        sent = read(asked.body)
        number = None if id is None else _number(id)
        tags = None if if_match is None else _tags(if_match)
        request = (asked.method, number, sent, tags)
        if key is not None and (by, key) in self._keys:
            before, response = self._keys[by, key]
            if before != request:
                raise Refused(422)
            return response._replace(fields={**response.fields, "idempotent-replayed": "true"})
        stores, versions = self._as_of(len(self.changes))
        if id is not None and number not in stores:
            raise _missing(id)
        store = len(stores) + 1 if number is None else number
        current = _tag(len(self.changes) if number is None else versions[number])
        name, address = stores.get(store, ("", None))
        content = sent.get("name", name), sent.get("address", address)
        if asked.method == "PUT":
            content = sent["name"], sent.get("address")
        same = stores.get(store) == content
        if not _matches(if_match, current) or _matches(if_none_match, current, missing=False):
            raise Refused(412, None, {"etag": current})
        if not same:
            self.changes.append((store, *content))
            current = _tag(len(self.changes))
        fields = {
            "etag": current,
            "content-type": _JSON,
            "content-location": f"/api/stores/{store}",
        }
        response = Expected(200, fields, _encode(store, *content))
        if key is not None:
            self._keys[by, key] = request, response
        return response


def _number(id: bytes) -> int | None:
    return int(id) if re.fullmatch(rb"[0-9]{1,18}", id) else None


def _missing(id: bytes) -> Refused:
    return Refused(404, f"Store {unquote_to_bytes(id).decode(errors='replace')} not found")


def _tag(version: int) -> str:
    return f'"{version}.{EPOCH.decode()}"'


def _encode(id: int, name: str, address: str | None) -> bytes:
    store = {"id": id, "name": name, "address": address}
    return json.dumps(store, ensure_ascii=False, separators=(",", ":")).encode()


def _fold(text: str) -> str:
    return "".join(each for each in normalize("NFKD", text) if not combining(each)).casefold()


def _has_words(store: tuple[str, str | None], q: str) -> bool:
    name, address = store
    return all(
        word in _fold(name) or word in _fold((address or "")[:500]) for word in _fold(q).split()
    )


def _next(query: bytes, last: int) -> str:
    after, others = f"after={last}", [each.decode() for each in query.split(b"&") if each]
    pages = [after if each.partition("=")[0] == "after" else each for each in others]
    return "&".join(pages if after in pages else [*pages, after])


def _read_value(key: bytes, value: bytes) -> Any:
    """Return the value of a parameter; None if it is missing."""
    if key == b"name":
        return value.decode(errors="replace")
    if key == b"q":
        q = value.decode(errors="replace")
        return q if len(q) <= 200 and len(_fold(q).split()) <= 8 else None
    if key == b"at":
        found = re.fullmatch(rb"(0|[1-9][0-9]{0,17})(?:\.([a-z2-7]{8}))?", value)
        return (int(found[1]), found[2]) if found else None
    if not re.fullmatch(rb"[0-9]{1,18}", value) or (
        key == b"limit" and not 1 <= int(value) <= 1000
    ):
        return None
    return int(value)


def _tags(lines: list[bytes]) -> Tags | None:
    """Return what is between the quotes of each tag, without a proxy's marks; None if the grammar
    is broken."""
    value = b",".join(lines)
    if value.strip() == b"*":
        return _ANY
    tags = set()
    for each in value.split(b","):
        found = re.fullmatch(rb'[ \t]*(?:(?:W/)?"([^",\s]*)")?[ \t]*', each)
        if found is None:
            return None
        if found[1] is not None:
            tags.add(re.sub(rb"(-gzip|-br|-zstd|-deflate|;gzip)$", b"", found[1]))
    return frozenset(tags)


def _matches(lines: list[bytes] | None, current: str, *, missing: bool = True) -> bool:
    """Return whether a condition contains the current tag; `missing` if there is no condition, or
    its grammar is broken."""
    if not lines or (tags := _tags(lines)) is None:
        return missing
    return tags == _ANY or current.strip('"').encode() in tags


def _check_type(asked: Asked) -> None:
    if asked.method == "PATCH":
        _check_type_of_patch(asked)
    types = asked.values(b"content-type")
    pattern = (
        rb'(?i)application/([a-z.-]+\+)?json *(; *(?!charset)[a-z]+=[^;]*)?(; *charset="?utf-8"?)?'
    )
    if not all(re.fullmatch(pattern, each) for each in types) or (
        asked.values(b"origin") and not types
    ):
        raise Refused(415)
    if any(each.lower() not in (b"", b"identity") for each in asked.values(b"content-encoding")):
        raise Refused(415)


def _check_type_of_patch(asked: Asked) -> None:
    """Refuse what is not a merge patch; a Content-Encoding is refused as of any write."""
    types = asked.values(b"content-type")
    lists = [each for each in types if each.lower().startswith(b"application/json-patch+json")]
    try:
        _check_type(asked._replace(method="PUT", fields=_without_coding(asked)))
    except Refused:
        lists = [b"another type"]
    if lists:
        accepted = "application/merge-patch+json, application/json"
        raise Refused(415, None, {"accept-patch": accepted})


def _without_coding(asked: Asked) -> Fields:
    return [field for field in asked.fields if field[0] != b"content-encoding"]


def _read_conditions(
    asked: Asked, creates: bool
) -> tuple[bytes | None, list[bytes] | None, list[bytes] | None]:
    """Return the key without quotes, and the values of If-Match and If-None-Match; None for a
    missing one."""
    if_match, if_none_match = (
        asked.values(b"if-match"),
        [] if creates else asked.values(b"if-none-match"),
    )
    conditions = {"if-match": if_match, "if-none-match": if_none_match}
    broken = [name for name, lines in conditions.items() if _tags(lines) is None]
    keys = asked.values(b"idempotency-key")
    found = re.fullmatch(rb'"(%b)"|(%b)' % (_KEY, _KEY), keys[0]) if keys else None
    if keys and (found is None or len(keys) > 1):
        broken.append("idempotency-key")
    if broken:
        raise invalid("headers", broken)
    return (found[1] or found[2]) if found else None, if_match or None, if_none_match or None


def _read_patch(body: bytes) -> dict[str, Any]:
    return _read_payload(body, is_patch=True)


def _read_payload(body: bytes, *, is_patch: bool = False) -> dict[str, Any]:
    """Return the fields that a body has."""
    try:
        payload = json.loads(body.decode()) if body else None
    except ValueError:
        raise Refused(400, "Invalid request payload JSON format") from None
    if not isinstance(payload, dict):
        raise invalid("payload", [], '"value" must be of type object')
    said = {
        key: rule
        for key in ("name", "address")
        if (rule := (_rule_of_patch if is_patch else _rule)(key, payload))
    }
    if said:
        raise invalid(
            "payload", list(said), ". ".join(f'"{key}" {rule}' for key, rule in said.items())
        )
    return {key: payload[key] for key in ("name", "address") if key in payload}


def _rule_of_patch(key: str, patch: dict[str, Any]) -> str | None:
    if key not in patch or (key == "address" and patch[key] is None):
        return None
    return "is required" if patch[key] is None else _rule(key, patch)


def _rule(key: str, payload: dict[str, Any]) -> str | None:
    """Return the rule that a field breaks."""
    value = payload.get(key)
    if key == "name" and payload.get(key, "") == "":
        return "is required"
    if key not in payload:
        return None
    if not isinstance(value, str):
        return "must be a string"
    if key == "name" and len(value) > 30:
        return "length must be less than or equal to 30 characters long"
    return "must not contain null characters" if "\0" in value else None

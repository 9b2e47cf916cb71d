"""A reference that also has tags, conditions, keys, pages, past and feed: what `wrong_beyond`
breaks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.storeapi_check.reference import JSON, Reference, Response, Store

EPOCH = "abcdefg7"


@dataclass
class Past:
    """All stores as they were at one version, and which version each of them had."""

    stores: list[Store]
    versions: dict[int, int]


class Announcing(Reference):
    """A service that keeps the contract, and what it announces by its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[str, tuple[Any, Response]] = {}
        self.versions = {1: 1, 2: 2, 3: 3}
        self.version = 3
        self.history: dict[int, Past] = {}
        self.changes = [self.change(seq, store, None) for seq, store in enumerate(self.stores, 1)]
        self.remember()

    def ask(self, method: str, target: str, body: bytes, sent: Mapping[str, str]) -> Response:
        with self.lock:  # `sent` is this request's
            return super().ask(method, target, body, sent)

    def handle(self, method: str, target: str, body: bytes) -> Response:
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        asked = parse_qs(parts.query, keep_blank_values=True)
        if method in ("POST", "PUT"):
            return self.once(method, target, body)
        if parts.path == "/api/changes":
            if self.sent.get("accept") == "text/event-stream":
                return self.stream()
            return self.feed(query)
        if not parts.path.startswith("/api/stores"):
            return super().handle(method, target, body)
        if any(self.is_bad(name, values) for name, values in asked.items()):
            return self.error("other", 400, "Bad Request", "bad query")
        if "at" in query:
            return self.past(query, parts.path)
        if parts.path == "/api/stores" and {"limit", "after"} & set(query):
            return self.tagged(
                self.page(
                    target, query, self.matching(query["name"]) if "name" in query else self.all()
                )
            )
        if method == "PATCH" and parts.path.startswith("/api/stores/"):
            return self.patch(parts.path.rpartition("/")[2], self.parse(body))
        return self.tagged(super().handle(method, target, body), parts.path)

    def is_bad(self, name: str, values: list[str]) -> bool:
        if name not in ("limit", "after"):
            return False
        text = values[0]
        return (
            len(values) > 1
            or not text.isdigit()
            or (name == "limit" and not 1 <= int(text) <= 1000)
        )

    # Tags

    def tag(self, id: int | None = None) -> str:
        return f'"{self.version if id is None else self.versions[id]}.{EPOCH}"'

    def tagged(self, response: Response, path: str = "/api/stores") -> Response:
        if response.status != 200:
            return response
        id = path.removeprefix("/api/stores").strip("/")
        response.headers["etag"] = self.tag(int(id) if id else None)
        if self.is_known(response.headers["etag"]):
            return Response(
                304, b"", {"etag": response.headers["etag"], "cache-control": "no-cache"}
            )
        return response

    def is_known(self, current: str) -> bool:
        tags = self.sent.get("if-none-match", "")
        return tags == "*" or current in tags

    # Writes

    def once(self, method: str, target: str, body: bytes) -> Response:
        if not (key := self.key()):
            return super().handle(method, target, body)
        request = (method, target, body)
        if key in self.keys:
            known, response = self.keys[key]
            return self.replay(response) if known == request else self.reused(response)
        response = super().handle(method, target, body)
        if response.status == 200:
            self.keys[key] = (request, response)
        return response

    def key(self) -> str:
        return self.sent.get("idempotency-key", "").strip('"')

    def replay(self, response: Response) -> Response:
        return Response(
            response.status, response.body, response.headers | {"idempotent-replayed": "true"}
        )

    def reused(self, response: Response) -> Response:
        return self.error("create", 422, "Unprocessable Content", "used for another request")

    def create(self, payload: Any) -> Response:
        if not self.problems(payload, "create") and (refusal := self.refusal(self.tag())):
            return refusal
        return self.written(super().create(payload), len(self.stores))

    def update(self, id: str, payload: Any) -> Response:
        store = self.find(id)
        if store and not self.problems(payload, "update"):
            if refusal := self.refusal(self.tag(store["id"])):
                return refusal
            if self.is_same(store, payload):
                return self.located(self.success("update", self.show(store, "update")), store["id"])
        return self.written(super().update(id, payload), int(id) if id.isdigit() else 0)

    def patch(self, id: str, patch: Any) -> Response:
        if not isinstance(patch, dict):
            return self.reject("update", self.problems(patch, "update"))
        return self.update(id, self.merged(self.find(id) or {}, patch))

    def merged(self, store: Store, patch: Store) -> Store:
        whole = {name: store.get(name) for name in ("name", "address")} | patch
        return {name: value for name, value in whole.items() if value is not None}

    def is_same(self, store: Store, payload: Any) -> bool:
        return self.values(payload, store, "update").items() <= store.items()

    def refusal(self, current: str) -> Response | None:
        match, none = self.sent.get("if-match"), self.sent.get("if-none-match")
        if match is not None and '"' not in match and match != "*":
            return self.error("update", 400, "Bad Request", "bad If-Match")
        if (none is not None and (none == "*" or current in none)) or (
            match is not None and match != "*" and current not in match
        ):
            return self.error("update", 412, "Precondition Failed", f"it is {current}")
        return None

    def written(self, response: Response, id: int) -> Response:
        if response.status != 200:
            return response
        former = next(
            (store for store in self.history[self.version].stores if store["id"] == id), None
        )
        self.version += 1
        self.versions[id] = self.version
        self.changes.append(self.change(self.version, self.find(str(id)) or {}, former))
        self.remember()
        return self.located(response, id)

    def located(self, response: Response, id: int) -> Response:
        response.headers |= {"etag": self.tag(id), "content-location": f"/api/stores/{id}"}
        return response

    # Pages and the past

    def remember(self) -> None:
        self.history[self.version] = Past(
            [dict(store) for store in self.stores], dict(self.versions)
        )

    def page(self, target: str, query: dict[str, str], stores: list[Store]) -> Response:
        after, limit = int(query.get("after", 0)), int(query.get("limit", 1000))
        later = [store for store in stores if store["id"] > after]
        response = self.send("list", 200, self.encode(later[:limit]), JSON)
        if len(later) > limit:
            rest = "&".join(
                part for part in urlsplit(target).query.split("&") if not part.startswith("after=")
            )
            response.headers["link"] = self.link(
                f"/api/stores?{rest}&after={later[limit - 1]['id']}"
            )
        return response

    def link(self, target: str) -> str:
        return f'<{target}>; rel="next"'

    def past(self, query: dict[str, str], path: str) -> Response:
        seq, _, epoch = query["at"].partition(".")
        if epoch not in ("", EPOCH):
            return self.error("other", 410, "Gone", "another epoch")
        if int(seq) > self.version:
            return self.error("other", 400, "Bad Request", "later than now")
        stores = self.as_of(int(seq)).stores
        if path == "/api/stores":
            return self.page("", query, stores)
        store = next(
            (store for store in stores if store["id"] == int(path.rpartition("/")[2])), None
        )
        return self.success("read", store) if store else self.missing("read")

    def as_of(self, version: int) -> Past:
        return self.history[version]

    # The feed

    def change(self, seq: int, store: Store, former: Store | None) -> Store:
        previous = former and {"name": former["name"], "address": former["address"]}
        type = "replaced" if former else "created"
        return {
            "seq": seq,
            "type": type,
            "at": "2026-01-01T00:00:00Z",
            "store": dict(store),
            "previous": previous,
        }

    def feed(self, query: dict[str, str]) -> Response:
        after = query.get("after", f"0.{EPOCH}")
        seq, _, epoch = after.partition(".")
        if self.is_gone(int(seq), epoch or EPOCH):
            return self.gone()
        page = self.following(int(seq), query)[: int(query.get("limit", 100))]
        body = {"changes": page, "next": self.next(page, after), "head": self.version}
        return self.send("changes", 200, self.encode(body), JSON)

    def stream(self) -> Response:
        """Respond as to a HEAD: no check listens."""
        response = self.send("changes", 200, b"", "text/event-stream; charset=utf-8")
        response.headers["cache-control"] = "no-cache, no-transform"
        return response

    def is_gone(self, seq: int, epoch: str) -> bool:
        return epoch != EPOCH or seq > self.version

    def gone(self) -> Response:
        body = self.error_body("changes", 410, "Gone", "read the list again") | {
            "cursor": f"{self.version}.{EPOCH}"
        }
        return self.send("changes", 410, self.encode(body), JSON)

    def following(self, seq: int, query: dict[str, str]) -> list[Store]:
        later = self.changes[seq:]
        return (
            [one for one in later if str(one["store"]["id"]) == query["store"]]
            if "store" in query
            else later
        )

    def next(self, page: list[Store], after: str) -> str:
        return f"{page[-1]['seq']}.{EPOCH}" if page else after

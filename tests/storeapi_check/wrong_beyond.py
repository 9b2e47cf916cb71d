"""Mutants that announce tags, conditions, keys, pages, the past or the feed, and do something
else."""

from collections.abc import Callable
from typing import Any

from tests.storeapi_check.announcing import EPOCH, Announcing, Past
from tests.storeapi_check.mutants import breaks
from tests.storeapi_check.reference import Reference, Response

A = Announcing


def _without(response: Response, header: str) -> Response:
    return Response(
        response.status, response.body, {k: v for k, v in response.headers.items() if k != header}
    )


def _written_though_refused(self: Announcing, id: str, payload: Any) -> Response:
    response = A.update(self, id, payload)
    if response.status == 412:
        Reference.update(self, id, payload)
    return response


def _never(self: Announcing) -> Response | None:
    return (
        self.error("create", 412, "Precondition Failed", "no") if "if-match" in self.sent else None
    )


def _matching_only(self: Announcing, current: str) -> Response | None:
    sent, self.sent = self.sent, {k: v for k, v in self.sent.items() if k != "if-none-match"}
    refusal = A.refusal(self, current)
    self.sent = sent
    return refusal


def _patched_whatever_the_tag(self: Announcing, id: str, patch: Any) -> Response:
    self.sent = {name: text for name, text in self.sent.items() if name != "if-match"}
    return A.patch(self, id, patch)


def _passes_with_any_tag(self: Announcing, id: str, payload: Any) -> Response:
    store = self.find(id)
    if store and not self.problems(payload, "update") and self.is_same(store, payload):
        self.sent = {name: text for name, text in self.sent.items() if name != "if-match"}
    return A.update(self, id, payload)


def _no_bad(self: Announcing, refusal: Response | None) -> Response | None:
    bad = refusal is not None and refusal.status == 400
    return self.error("update", 412, "Precondition Failed", "no match") if bad else refusal


WRONG: dict[str, tuple[str, dict[str, Callable[..., Any]]]] = {
    "store's tag is the list's": (
        "tags-say-the-version",
        {"tag": lambda self, of=None: A.tag(self)},
    ),
    "list's tag never changes": (
        "tags-say-the-version",
        {"tag": lambda self, of=None: A.tag(self, of) if of else '"3.abcdefg7"'},
    ),
    "write says no location": (
        "tags-say-the-version",
        {
            "located": lambda self, response, of: _without(
                A.located(self, response, of), "content-location"
            )
        },
    ),
    "write has no tag": (
        "tags-say-the-version",
        {"located": lambda self, response, of: _without(A.located(self, response, of), "etag")},
    ),
    "304 never comes": ("if-none-match-gets-304", {"is_known": lambda self, current: False}),
    "304 comes always": (
        "if-none-match-gets-304",
        {"is_known": lambda self, current: "if-none-match" in self.sent},
    ),
    "star matches no tag": (
        "if-none-match-gets-304",
        {"is_known": lambda self, current: current in self.sent.get("if-none-match", "")},
    ),
    "only one tag is compared": (
        "if-none-match-gets-304",
        {"is_known": lambda self, current: self.sent.get("if-none-match") in (current, "*")},
    ),
    "If-Match is ignored": (
        "if-match-guards-an-update",
        {"refusal": lambda self, current: None},
    ),
    "If-Match refuses after it wrote": (
        "if-match-guards-an-update",
        {"update": _written_though_refused},
    ),
    "If-None-Match of an update is ignored": (
        "if-match-guards-an-update",
        {"refusal": _matching_only},
    ),
    "malformed If-Match matches nothing": (
        "if-match-guards-an-update",
        {
            "refusal": lambda self, current: _no_bad(self, A.refusal(self, current)),
        },
    ),
    "If-Match of a create is ignored": (
        "if-match-guards-a-create",
        {
            "create": lambda self, payload: A.written(
                self, Reference.create(self, payload), len(self.stores)
            )
        },
    ),
    "If-Match never lets a create pass": (
        "if-match-guards-a-create",
        {"create": lambda self, payload: _never(self) or A.create(self, payload)},
    ),
    "same content is a change": (
        "same-content-is-no-change",
        {"is_same": lambda self, store, payload: False},
    ),
    "same content passes with any tag": (
        "same-content-is-no-change",
        {"update": _passes_with_any_tag},
    ),
    "patch replaces": (
        "a-patch-keeps-what-it-does-not-have",
        {"merged": lambda self, store, patch: {"name": store.get("name")} | patch},
    ),
    "patch keeps an address that is null": (
        "a-patch-keeps-what-it-does-not-have",
        {
            "merged": lambda self, store, patch: A.merged(
                self, store, {name: value for name, value in patch.items() if value is not None}
            )
        },
    ),
    "patch ignores If-Match": (
        "a-patch-keeps-what-it-does-not-have",
        {"patch": _patched_whatever_the_tag},
    ),
    "key is ignored": ("a-key-works-once", {"key": lambda self: ""}),
    "key counts with its quotes": (
        "a-key-works-once",
        {"key": lambda self: self.sent.get("idempotency-key", "")},
    ),
    "key gets what another request got": (
        "a-key-works-once",
        {"reused": lambda self, response: self.replay(response)},
    ),
    "replay is not marked": ("a-key-works-once", {"replay": lambda self, response: response}),
    "pages end after the first": (
        "pages-are-the-list",
        {"page": lambda self, *rest: _without(A.page(self, *rest), "link")},
    ),
    "pages overlap": (
        "pages-are-the-list",
        {"link": lambda self, target: A.link(self, "&".join([*target.split("&")[:-1], "after=0"]))},
    ),
    "pages are linked with a host": (
        "pages-are-the-list",
        {"link": lambda self, target: A.link(self, f"http://elsewhere{target}")},
    ),
    "bad limits are taken": ("pages-are-the-list", {"is_bad": lambda self, name, values: False}),
    "past is the present": (
        "the-past-stays",
        {"as_of": lambda self, version: Past(self.stores, self.versions)},
    ),
    "feed has no creations": (
        "the-feed-has-every-change",
        {
            "following": lambda self, *rest: [
                one for one in A.following(self, *rest) if one["previous"]
            ]
        },
    ),
    "feed begins with the latest": (
        "the-feed-has-every-change",
        {"following": lambda self, *rest: A.following(self, *rest)[::-1]},
    ),
    "feed has the current stores": (
        "the-feed-has-every-change",
        {
            "change": lambda self, seq, store, former: (
                A.change(self, seq, {}, former) | {"store": store}
            )
        },
    ),
    "feed has no content before": (
        "the-feed-has-every-change",
        {"change": lambda self, *rest: A.change(self, *rest) | {"previous": None}},
    ),
    "page of the feed leads to its head": (
        "the-feed-has-every-change",
        {"next": lambda self, page, after: A.next(self, self.changes if page else page, after)},
    ),
    "page of the feed leads to itself": (
        "the-feed-has-every-change",
        {"next": lambda self, page, after: after},
    ),
    "page of the feed leads to its beginning": (
        "the-feed-has-every-change",
        {"next": lambda self, page, after: A.next(self, page[:1], after)},
    ),
    "empty page leads to the head": (
        "the-feed-gives-back-a-cursor",
        {"next": lambda self, page, after: A.next(self, page or self.changes, after)},
    ),
    "empty page leads nowhere": (
        "the-feed-gives-back-a-cursor",
        {"next": lambda self, page, after: A.next(self, page, after) if page else None},
    ),
    "history of a store is that of all": (
        "the-feed-gives-back-a-cursor",
        {"following": lambda self, seq, query: self.changes[seq:]},
    ),
    "cursor of another epoch is taken": (
        "the-feed-gives-back-a-cursor",
        {"is_gone": lambda self, seq, epoch: seq > self.version},
    ),
    "cursor beyond the head is taken": (
        "the-feed-gives-back-a-cursor",
        {"is_gone": lambda self, seq, epoch: epoch != EPOCH},
    ),
    "410 has no cursor": (
        "the-feed-gives-back-a-cursor",
        {"gone": lambda self: self.error("changes", 410, "Gone", "read the list again")},
    ),
    "stream of events may be compressed": (
        "a-stream-of-events-is-passed-on-at-once",
        {"stream": lambda self: self.send("changes", 200, b"", "text/event-stream")},
    ),
}


for wrong, (check, methods) in WRONG.items():
    breaks(f"the {wrong}", check, of=Announcing, **methods)

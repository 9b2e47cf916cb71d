"""Conditions, keys, pages and the past: held only to a service that announces them; this package only.

A service does so by the entity tag of its list: a number, a point, eight letters or digits. All others may send what
tags they like.
"""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from urllib.parse import urlsplit

from storekeeper.conformance.rules import Check, Rules, Skipped
from storekeeper.conformance.service import Made, Response, Service, fields

RULES = Rules()
STORES = "/api/stores"
TAG = re.compile(r'(?:W/)?"(\d+\.[a-z2-7]{8})(?:[-;][a-z]+)?"')  # proxies that compress mark tags
LINK = re.compile(r'<([^<>]*)>; *rel="?next"?')
OTHER = '"0.aaaaaaaa"'
QUIET = 5  # how often a moment is looked for in which no other client writes
AT_ONCE = 8  # how many updates go from one version at the same time


def tag(response: Response) -> str:
    """Return the tag of a response without what proxies add; Violation when it is none."""
    sent = response.http.header("etag") or ""
    found = TAG.fullmatch(sent)
    response.expect(found, f"its ETag is {sent!r}" if sent else "it has no ETag")
    return f'"{found[1]}"' if found else ""


def extra(name: str, sentence: str, *, writes: bool = True, adds: int = 0) -> Callable[[Check], Check]:
    """Add a rule for services that announce it."""

    def add(check: Check) -> Check:
        @wraps(check)
        def announced(service: Service) -> None:
            if not TAG.fullmatch(service.find(service.name()).http.header("etag") or ""):
                raise Skipped("the service does not announce it")
            check(service)

        announced.__name__ = name
        return RULES.check(sentence, writes=writes, adds=adds)(announced)

    return add


def write(service: Service, path: str, name: str, address: str | None = None, **sent: str) -> Response:
    """Send a payload, by POST to the list or by PUT, with these header fields: `if_match` is If-Match."""
    more = {field.replace("_", "-"): value for field, value in sent.items()}
    payload = fields(name, address)
    if path == STORES:
        return service.create(payload, "open", more)
    return service.replace(path.rpartition("/")[2], payload, "open", more)


def at(store: Made) -> str:
    """Return the path of a store."""
    return f"{STORES}/{store.id}"


def refused(response: Response, status: int) -> None:
    """Violation unless it is an error of this status, with the contract's body."""
    response.expect(response.http.status == status, f"status {response.http.status}, not {status}")
    response.expect(response.member("statusCode") == status, "it has not the body of an error")


def unchanged(service: Service, store: Made, before: str) -> None:
    """Violation unless the store is what it was."""
    shown = service.read(store.id)
    shown.shows(store, " though the update was refused")
    shown.expect(tag(shown) == before, f"its ETag was {before}, though nothing was changed")


@extra("tags-say-the-version", 'A strong tag, `"SEQ.EPOCH"`, on every 200 of a store')
def _(service: Service) -> None:
    """A store has the same tag wherever it is shown; a write changes its tag and that of the list, and no other."""
    other = service.settle()
    others = tag(service.read(other.id))
    listed = tag(service.find(other.name))
    store = service.spare()
    written = tag(store.response)
    location = store.response.http.header("content-location") or ""
    store.response.expect(location.endswith(at(store)), f"its Content-Location is {location!r}")
    for response in (service.read(store.id), service.read(f"0{store.id}")):
        response.expect(tag(response) == written, f"the write had the ETag {written}, reading it has another")
    after = service.find(other.name)
    after.expect(tag(after) != listed, "the list's ETag is the same after a write")
    again = service.read(other.id)
    again.expect(tag(again) == others, "its ETag is another, though another store was written")


@extra(
    "if-none-match-gets-304",
    "if `If-None-Match` matches, 304 with `etag`, `cache-control` and `date`, and the list is not read",
    writes=False,
)
def _(service: Service) -> None:
    """A current tag among others gets 304 without content; other tags get the whole."""
    for path in (STORES, f"{STORES}?name={service.name().replace(' ', '+')}"):
        current = tag(service.raw("GET", path))
        for tags, status in ((current, 304), (f"{OTHER}, W/{current}", 304), ("*", 304), (OTHER, 200)):
            response = service.raw("GET", path, more={"if-none-match": tags})
            have = response.http.status
            # Another client may have written in between.
            if have != status and tag(service.raw("GET", path)) == current:
                response.expect(False, f"status {have}, not {status}, for If-None-Match: {tags}")
            response.expect(have != 304 or not response.http.length, "a 304 has content")


@extra("if-match-guards-an-update", "PUT: 412 if `If-Match` does not match or `If-None-Match` does")
def _(service: Service) -> None:
    """The present tag lets an update pass, another is refused and changes nothing; of several at once one passes."""
    old = tag(service.spare().response)
    store = service.spare()
    current = tag(store.response)
    for sent in ({"if_match": old}, {"if_match": OTHER}, {"if_none_match": current}, {"if_none_match": "*"}):
        refused(write(service, at(store), service.name(), **sent), 412)
        unchanged(service, store, current)
    refused(write(service, at(store), service.name(), if_match="5"), 400)
    unchanged(service, store, current)
    names = [service.name() for _ in range(AT_ONCE)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        all_at_once = list(pool.map(lambda name: write(service, at(store), name, if_match=current), names))
    passed = [response for response in all_at_once if response.ok]
    for response in all_at_once:
        if not response.ok:
            refused(response, 412)
    all_at_once[0].expect(len(passed) == 1, f"{len(passed)} of {AT_ONCE} updates from one version passed")
    last = write(service, at(store), service.name(), if_match=f"{OTHER}, {tag(passed[0])}")
    last.expect(last.ok, f"status {last.http.status} with the present tag among others")


@extra(
    "if-match-guards-a-create",
    "POST: `If-Match` with the list's tag creates only if nothing has changed since",
    adds=1,
)
def _(service: Service) -> None:
    """A store is added only if the list has the tag that was sent."""
    name = service.name()
    refused(write(service, STORES, name, if_match=OTHER), 412)
    found = service.find(name)
    found.expect(found.listed.count == 0, "it was added though it was refused")
    for _ in range(QUIET):
        made = write(service, STORES, name, if_match=(before := tag(found)))
        if made.ok:
            return
        refused(made, 412)
        found = service.find(name)
        found.expect(tag(found) != before, "a create with the list's present tag is refused")
    raise Skipped("other clients write all the time")


@extra("same-content-is-no-change", "200 with the tag that it had: no change, no new version.")
def _(service: Service) -> None:
    """A PUT of what the store is leaves its tag, also with the tag of before (its first response was lost)."""
    before = tag(service.spare().response)
    store = service.spare()
    for sent in ({}, {"if_match": before}):
        response = write(service, at(store), store.name, store.address, **sent)
        response.expect(response.ok, f"status {response.http.status} for what the store already is")
        response.expect(tag(response) == tag(store.response), "its ETag is another, though nothing changed")


@extra(
    "a-key-works-once",
    "The same key with the same request gets the same body, `etag` and `content-location` again",
    adds=1,
)
def _(service: Service) -> None:
    """The same request with its Idempotency-Key again gets the same response and adds nothing; another is refused."""
    name, key = service.name(), f"{service.marker}-key"
    first = write(service, STORES, name, idempotency_key=key)
    first.expect(first.ok, f"status {first.http.status}")
    again = write(service, STORES, name, idempotency_key=f'"{key}"')
    again.expect(again.http.content == first.http.content, "sent again, it gets another body")
    again.expect(tag(again) == tag(first), "sent again, it gets another ETag")
    again.expect(again.http.header("idempotent-replayed") == "true", "sent again, it is not marked as replayed")
    service.added -= again.ok
    refused(write(service, STORES, service.name(), idempotency_key=key), 422)
    found = service.find(name)
    found.expect(found.listed.count == 1, f"the store was added {found.listed.count} times")


@extra("pages-are-the-list", "Ids ascend, and nothing is ever deleted: pages never shift.", adds=3)
def _(service: Service) -> None:
    """Pages of two, each linked by the one before, have what the list has, once and in its order."""
    name = service.name()
    ids = [service.make(name).id for _ in range(3)]
    target, found = f"{STORES}?limit=2&name={name.replace(' ', '+')}", list[int]()
    for wanted in (2, 1):
        page = service.raw("GET", target)
        stores = page.document if isinstance(page.document, list) else []
        page.expect(len(stores) == wanted, f"a page has {len(stores)} stores, not {wanted}")
        found += [store["id"] for store in stores]
        link = LINK.search(page.http.header("link") or "")
        page.expect(
            bool(link) == (wanted == 2), "the next page is linked where there is none, or not where there is one"
        )
        parts = urlsplit(link[1]) if link else None
        page.expect(not parts or not parts.netloc, "the link has a host")
        target = f"{parts.path}?{parts.query}" if parts else ""
    page.expect(found == ids, f"the pages have the ids {found}, not {ids}")
    for query in ("limit=0", "limit=1001", "limit=x", "after=-1", "limit=1&limit=1"):
        refused(service.raw("GET", f"{STORES}?{query}"), 400)


@extra("the-past-stays", "The response is what it was after the latest change up to then")
def _(service: Service) -> None:
    """A store and the list as of a tag are what they were, whatever was written since."""
    store = service.spare()
    moment = tag(store.response).strip('"')
    service.spare()
    service.raw("GET", f"{at(store)}?at={moment}").shows(store, " as of its tag")
    listed = service.raw("GET", f"{STORES}?at={moment}&after={store.id - 1}&limit=1")
    listed.expect(isinstance(listed.document, list) and len(listed.document) == 1, "the list as of that tag lacks it")
    listed.expect(listed.document[0].get("name") == store.name, "the list as of that tag has it as it is now")
    refused(service.raw("GET", f"{at(store)}?at=0.aaaaaaaa"), 410)
    refused(service.raw("GET", f"{at(store)}?at={10**18}"), 400)

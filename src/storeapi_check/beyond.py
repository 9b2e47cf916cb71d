"""Conditions, keys, pages, the past and the feed: checked only if the service announces them.

A service announces them with the entity tag of its list: a number, a point, and eight letters or
digits.
"""

import re
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

from storeapi_check.service import (
    STORES,
    TRIES,
    Made,
    Response,
    Rules,
    Service,
    Skipped,
    Violation,
    fields,
    number,
)

RULES = Rules()
check = partial(RULES.check, announced=True)
# Proxies that compress add a mark to tags.
TAG = re.compile(r'(?:W/)?"(\d+\.[a-z2-7]{8})(?:[-;][a-z]+)?"')
LINK = re.compile(r'<([^<>]*)>; *rel="?next"?')
OTHER = '"0.aaaaaaaa"'
UNMODIFIED = (
    "if `If-None-Match` matches, 304 with `etag`, `cache-control` and `date`, and the list is"
    " not read"
)
TAGS = (
    "Every response shows the same tag for a store; a write changes its tag and that of the list,"
    " and no other."
)
GUARD = (
    "The current tag lets an update pass; any other is refused and changes nothing. Only one of"
    " several concurrent updates passes."
)
GUARDED = "A store is added only if the list has the tag that was sent."
SAME = (
    "A PUT that changes nothing keeps the tag, and needs the current one: if several concurrent"
    " updates from one version send the same, one passes."
)
PATCHES = (
    "If the service has PATCH, a merge patch changes the fields that it has and keeps the others;"
    " a bad one changes nothing."
)
ONCE = (
    "A request repeated with its Idempotency-Key gets the same response and adds nothing; a"
    " different request with that key is refused."
)
PAGES = (
    "Pages of two, each linked from the one before, have the stores of the list, once and in order."
)
PAST = "A store and the list as of a tag are what they were, whatever was written since."
UNHELD = "An event stream says that no proxy may change it: one that compresses would delay events."
CURSORS = (
    "An empty page returns the cursor that was sent; a cursor that never existed gets 410, and a"
    " cursor to continue from."
)


def tag(response: Response) -> str:
    """Return the tag of a response without what proxies add; raise Violation if it has no valid
    one."""
    sent = response.header("etag") or ""
    found = TAG.fullmatch(sent)
    response.expect(sent, "it has no ETag")
    response.expect(found, f"its ETag is {sent!r}")
    return f'"{found[1]}"' if found else ""


def require_refusal(response: Response, status: int) -> None:
    """Raise Violation unless it is an error of this status, with the contract's body."""
    response.expect(response.status == status, f"status {response.status}, not {status}")
    is_error = response.member("statusCode") == status
    response.expect(is_error, "it does not have the body of an error")


@check('A strong tag, `"SEQ.EPOCH"`, on every 200 of a store', TAGS)
def _tags_say_the_version(service: Service) -> None:
    other = service.settle()
    others, listed = tag(service.read(other.id)), tag(service.find(other.name))
    store = service.spare()
    written = tag(store.response)
    location = store.response.header("content-location") or ""
    is_its_own = location.endswith(f"{STORES}/{store.id}")
    store.response.expect(is_its_own, f"its Content-Location is {location!r}")
    for response in (service.read(store.id), service.read(f"0{store.id}")):
        same = tag(response) == written
        response.expect(same, f"the write had the ETag {written}, the read has another one")
    after, again = service.find(other.name), service.read(other.id)
    after.expect(tag(after) != listed, "the list's ETag is the same after a write")
    again.expect(tag(again) == others, "its ETag changed, though a different store was written")


@check(
    UNMODIFIED,
    "The current tag among others gets 304 without content; other tags get the whole list.",
    writes=False,
)
def _if_none_match_gets_304(service: Service) -> None:
    for path in (STORES, f"{STORES}?name={quote(service.name())}"):
        current = tag(service.send("GET", path))
        for tags, status in (
            (current, 304),
            (f"{OTHER}, W/{current}", 304),
            ("*", 304),
            (OTHER, 200),
        ):
            response = service.send("GET", path, if_none_match=tags)
            # Another client may have written in between.
            if response.status != status and tag(service.send("GET", path)) == current:
                reason = f"status {response.status}, not {status}, for If-None-Match: {tags}"
                raise Violation(reason, response)
            response.expect(response.status != 304 or not response.length, "a 304 has content")


@check("PUT and PATCH: 412 if `If-Match` does not match or `If-None-Match` does", GUARD)
def _if_match_guards_an_update(service: Service) -> None:
    former, store = tag(service.spare().response), service.spare()
    current = tag(store.response)
    for status, sent in (
        (412, {"if_match": former}),
        (412, {"if_match": OTHER}),
        (400, {"if_match": "5"}),
        (412, {"if_none_match": current}),
        (412, {"if_none_match": "*"}),
    ):
        require_refusal(service.replace(store.id, fields(service.name()), "open", **sent), status)
        shown = service.read(store.id)
        shown.shows(store, " though the update was refused")
        shown.expect(tag(shown) == current, f"its ETag was {current}, though nothing was changed")
    concurrent = service.at_once(
        lambda payload: service.replace(store.id, payload, "open", if_match=current)
    )
    passed = require_one([response for response, _ in concurrent])
    tags = f"{OTHER}, {tag(passed)}"
    last = service.replace(store.id, fields(service.name()), "open", if_match=tags)
    last.expect(last.ok, f"status {last.status} with the current tag among others")


def require_one(concurrent: list[Response]) -> Response:
    """Return the one response of updates from one version that is not 412."""
    passed = [response for response in concurrent if response.ok]
    reason = f"{len(passed)} of {len(concurrent)} updates from one version passed"
    concurrent[0].expect(len(passed) == 1, reason)
    for response in concurrent:
        if not response.ok:
            require_refusal(response, 412)
    return passed[0]


@check(
    "POST: `If-Match` with the list's tag creates only if nothing has changed since",
    GUARDED,
    adds=1,
)
def _if_match_guards_a_create(service: Service) -> None:
    payload = fields(service.name())
    require_refusal(service.create(payload, "open", if_match=OTHER), 412)
    found = service.find(payload["name"])
    found.expect(found.listed.count == 0, "it was added, though it was refused")
    for _ in range(TRIES):
        before = tag(found)
        made = service.create(payload, "open", if_match=before)
        if made.ok:
            return
        require_refusal(made, 412)
        found = service.find(payload["name"])
        found.expect(tag(found) != before, "a create with the list's current tag is refused")
    raise Skipped("other clients write all the time")


@check("200 with the tag that it had: no change, no new version", SAME)
def _same_content_is_no_change(service: Service) -> None:
    former, store = tag(service.spare().response), service.spare()
    current, same = tag(store.response), fields(store.name, store.address)
    for sent in ({}, {"if_match": current}):
        response = service.replace(store.id, same, "open", **sent)
        reason = f"status {response.status} for the content that the store already has"
        response.expect(response.ok, reason)
        response.expect(tag(response) == current, "its ETag changed, though nothing else did")
    require_refusal(service.replace(store.id, same, "open", if_match=former), 412)
    new = fields(service.name())
    concurrent = service.at_once(lambda _: service.replace(store.id, new, "open", if_match=current))
    require_one([response for response, _ in concurrent])


@check("What is not sent stays.", PATCHES)
def _a_patch_keeps_what_it_does_not_have(service: Service) -> None:
    store = service.spare()
    name = service.name()
    response = service.patch(store.id, {"name": name})
    if response.status in (404, 405, 501):
        raise Skipped("the service has no PATCH")
    wanted = Made(store.id, name, store.address, response)
    patches: tuple[tuple[dict[str, str | None], str | None], ...] = (
        ({"name": name}, store.address),
        ({"address": "After"}, "After"),
        ({"address": None}, None),
        ({}, None),
    )
    for patch, address in patches:
        wanted = Made(store.id, name, address, service.patch(store.id, patch))
        wanted.response.shows(wanted, f" after {patch}")
        service.read(store.id).shows(wanted, f" after {patch}")
    refused: tuple[object, ...] = ({"name": None}, {"name": ""}, {"name": 7}, {"address": 7}, [])
    for bad in refused:
        require_refusal(service.patch(store.id, bad), 400)
    require_refusal(service.patch(store.id, {"address": "Late"}, if_match=OTHER), 412)
    service.read(store.id).shows(wanted, " though the patch was refused")


@check(
    "The same key with the same request gets the same body, `etag` and `content-location` again",
    ONCE,
    adds=1,
)
def _a_key_works_once(service: Service) -> None:
    payload, key = fields(service.name()), f"{service.marker}-key"
    first = service.create(payload, "open", idempotency_key=key)
    again = service.create(payload, "open", idempotency_key=f'"{key}"')
    first.expect(first.ok, f"status {first.status}")
    again.expect(again.content == first.content, "the repeat gets a different body")
    again.expect(tag(again) == tag(first), "the repeat gets a different ETag")
    is_marked = again.header("idempotent-replayed") == "true"
    again.expect(is_marked, "the repeat is not marked as replayed")
    service.added -= 1  # the repeat added nothing
    require_refusal(service.create(fields(service.name()), "open", idempotency_key=key), 422)
    found = service.find(payload["name"])
    found.expect(found.listed.count == 1, f"the store was added {found.listed.count} times")


@check("Ids ascend, and nothing is ever deleted: pages never shift.", PAGES, adds=3)
def _pages_are_the_list(service: Service) -> None:
    name = service.name()
    ids = [service.make(name).id for _ in range(3)]
    found: list[int | None] = []
    target = f"{STORES}?limit=2&name={quote(name)}"
    for size in (2, 1):
        page = service.send("GET", target)
        page.expect(page.listed.count == size, f"a page has {page.listed.count} stores, not {size}")
        found += map(number, page.listed.stores)
        link = LINK.search(page.header("link") or "")
        reason = "a next page that exists is not linked, or one that does not exist is"
        page.expect(bool(link) == (size == 2), reason)
        target = link[1] if link else ""
        page.expect(not urlsplit(target).netloc, "the link has a host")
    page.expect(found == ids, f"the pages have the ids {found}, not {ids}")
    for query in ("limit=0", "limit=1001", "limit=x", "after=-1", "limit=1&limit=1"):
        require_refusal(service.send("GET", f"{STORES}?{query}"), 400)


@check("The response is what it was after the latest change up to then", PAST)
def _the_past_stays(service: Service) -> None:
    store = service.spare()
    moment, path = tag(store.response).strip('"'), f"{STORES}/{store.id}"
    service.spare()
    service.send("GET", f"{path}?at={moment}").shows(store, " as of its tag")
    listed = service.send("GET", f"{STORES}?at={moment}&after={store.id - 1}&limit=1")
    listed.shows(store, " in the list as of its tag")
    for other, status in (("0.aaaaaaaa", 410), (10**18, 400)):
        require_refusal(service.send("GET", f"{path}?at={other}"), status)


def read_feed(service: Service, after: object, more: str) -> tuple[Response, list[dict[str, Any]]]:
    """Return a page of the feed and its changes; raise Violation if it is not one, Skipped if
    there is no such route."""
    page = service.send("GET", f"/api/changes?after={quote(str(after))}&{more}")
    if page.status == 404:
        raise Skipped("the service has no /api/changes")
    changes = page.member("changes")
    page.expect(page.ok and isinstance(changes, list), "it is not a page of changes")
    are_objects = all(isinstance(change, dict) for change in changes)
    page.expect(are_objects, "it is not a page of changes")
    return page, changes


@check("every committed change, in the order of the commits, without a gap", adds=1)
def _the_feed_has_every_change(service: Service) -> None:
    after: object = tag(service.find(service.name())).strip('"')
    read_feed(service, after, "limit=1")  # without a feed, skip before a store is added
    store = service.make()
    wanted = [expected_change(store.response, None)]
    for _ in range(2):
        former = wanted[-1]["store"]
        previous = {"name": former.get("name"), "address": former.get("address")}
        write = service.replace(store.id, fields(service.name()), "open")
        wanted.append(expected_change(write, previous))
    found: list[dict[str, Any]] = []
    limit = 2
    for _ in range(1 + TRIES):
        page, changes = read_feed(service, after, f"limit={limit}")
        # Other clients may write too.
        ours = [change for change in changes if number(change.get("store")) == store.id]
        found += [{key: change.get(key) for key in wanted[0]} for change in ours]
        if len(found) >= len(wanted):
            break
        after, limit = page.member("next"), 1000
    if len(found) < len(wanted) and changes:
        raise Skipped("other clients write all the time")
    page.expect(found == wanted, f"the changes of the store {store.id} are {found}, not {wanted}")


def expected_change(write: Response, previous: dict[str, Any] | None) -> dict[str, Any]:
    """Return the change that the feed must have for a write."""
    return {
        "seq": int(tag(write)[1:].split(".")[0]),
        "type": "replaced" if previous else "created",
        "store": write.single,
        "previous": previous,
    }


@check("or the one that was sent if there is none", CURSORS)
def _the_feed_gives_back_a_cursor(service: Service) -> None:
    only = f"store={service.settle().id}"
    sent = tag(service.find(service.name())).strip('"')
    service.spare()
    page, changes = read_feed(service, sent, only)
    page.expect(not changes, "it has changes, though the store was not written")
    page.expect(page.member("next") == sent, f"its next is not {sent!r}")
    for other in ("0.aaaaaaaa", f"{10**15}.{sent.partition('.')[2]}"):
        refused = service.send("GET", f"/api/changes?after={other}")
        require_refusal(refused, 410)
        read_feed(service, refused.member("cursor"), only)


@check("`cache-control: no-cache, no-transform`", UNHELD, writes=False)
def _a_stream_of_events_is_passed_on_at_once(service: Service) -> None:
    """Ask for the head only: a stream does not end by itself."""
    stream = service.send("HEAD", "/api/changes", accept="text/event-stream")
    kind = (stream.header("content-type") or "").partition(";")[0].strip()
    if kind != "text/event-stream":
        raise Skipped("the service has no stream of events")
    sent = stream.header("cache-control") or ""
    directives = {directive.strip() for directive in sent.split(",")}
    stream.expect({"no-cache", "no-transform"} <= directives, f"its Cache-Control is {sent!r}")

"""Conditions, keys, pages, the past and the feed: held only to a service that announces them;
this package only.

A service does so by the entity tag of its list: a number, a point, eight letters or digits.
"""

import re
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

from storeapi_check.service import STORES, TRIES, Response, Rules, Service, Skipped, fields, number

RULES = Rules()
check = partial(RULES.check, announced=True)
TAG = re.compile(r'(?:W/)?"(\d+\.[a-z2-7]{8})(?:[-;][a-z]+)?"')  # proxies that compress mark tags
LINK = re.compile(r'<([^<>]*)>; *rel="?next"?')
OTHER = '"0.aaaaaaaa"'
UNMODIFIED = "if `If-None-Match` matches, 304 with `etag`, `cache-control` and `date`, and the list is not read"
TAGS = "A store has the same tag wherever it is shown; a write changes its tag and that of the list, and no other."
GUARD = "The present tag lets an update pass, another is refused and changes nothing; of several at once one passes."
GUARDED = "A store is added only if the list has the tag that was sent."
SAME = "A PUT of what the store is leaves its tag, also with the tag of before (its first response was lost)."
ONCE = "The same request with its Idempotency-Key again gets the same response and adds nothing; another is refused."
PAGES = (
    "Pages of two, each linked by the one before, have what the list has, once and in its order."
)
PAST = "A store and the list as of a tag are what they were, whatever was written since."
UNHELD = "A stream of events says that no proxy may change it: one that compresses would hold events back."
CURSORS = "An empty page gives back the cursor that was sent; one that never was gets 410, and another to go on from."


def tag(response: Response) -> str:
    """Return the tag of a response without what proxies add; raise Violation when it has no
    valid one."""
    sent = response.header("etag") or ""
    found = TAG.fullmatch(sent)
    response.expect(found, f"its ETag is {sent!r}" if sent else "it has no ETag")
    return f'"{found[1]}"' if found else ""


def require_refusal(response: Response, status: int) -> None:
    """Raise Violation unless it is an error of this status, with the contract's body."""
    response.expect(response.status == status, f"status {response.status}, not {status}")
    response.expect(response.member("statusCode") == status, "it has not the body of an error")


@check('A strong tag, `"SEQ.EPOCH"`, on every 200 of a store', TAGS)
def _tags_say_the_version(service: Service) -> None:
    other = service.settle()
    others, listed = tag(service.read(other.id)), tag(service.find(other.name))
    store = service.spare()
    written = tag(store.response)
    location = store.response.header("content-location") or ""
    store.response.expect(
        location.endswith(f"{STORES}/{store.id}"), f"its Content-Location is {location!r}"
    )
    for response in (service.read(store.id), service.read(f"0{store.id}")):
        response.expect(
            tag(response) == written, f"the write had the ETag {written}, reading it has another"
        )
    after, again = service.find(other.name), service.read(other.id)
    after.expect(tag(after) != listed, "the list's ETag is the same after a write")
    again.expect(tag(again) == others, "its ETag is another, though another store was written")


@check(
    UNMODIFIED,
    "A current tag among others gets 304 without content; other tags get the whole.",
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
                response.expect(
                    False, f"status {response.status}, not {status}, for If-None-Match: {tags}"
                )
            response.expect(response.status != 304 or not response.length, "a 304 has content")


@check("PUT: 412 if `If-Match` does not match or `If-None-Match` does", GUARD)
def _if_match_guards_an_update(service: Service) -> None:
    former, store = tag(service.spare().response), service.spare()
    current = tag(store.response)
    for status, sent in (
        *((412, {"if_match": former}), (412, {"if_match": OTHER}), (400, {"if_match": "5"})),
        *((412, {"if_none_match": current}), (412, {"if_none_match": "*"})),
    ):
        require_refusal(service.replace(store.id, fields(service.name()), "open", **sent), status)
        shown = service.read(store.id)
        shown.shows(store, " though the update was refused")
        shown.expect(tag(shown) == current, f"its ETag was {current}, though nothing was changed")
    concurrent = service.at_once(
        lambda payload: service.replace(store.id, payload, "open", if_match=current)
    )
    passed = [response for response, _ in concurrent if response.ok]
    concurrent[0][0].expect(
        len(passed) == 1, f"{len(passed)} of {len(concurrent)} updates from one version passed"
    )
    for response, _ in concurrent:
        if not response.ok:
            require_refusal(response, 412)
    last = service.replace(
        store.id, fields(service.name()), "open", if_match=f"{OTHER}, {tag(passed[0])}"
    )
    last.expect(last.ok, f"status {last.status} with the present tag among others")


@check(
    "POST: `If-Match` with the list's tag creates only if nothing has changed since",
    GUARDED,
    adds=1,
)
def _if_match_guards_a_create(service: Service) -> None:
    payload = fields(service.name())
    require_refusal(service.create(payload, "open", if_match=OTHER), 412)
    found = service.find(payload["name"])
    found.expect(found.listed.count == 0, "it was added though it was refused")
    for _ in range(TRIES):
        before = tag(found)
        made = service.create(payload, "open", if_match=before)
        if made.ok:
            return
        require_refusal(made, 412)
        found = service.find(payload["name"])
        found.expect(tag(found) != before, "a create with the list's present tag is refused")
    raise Skipped("other clients write all the time")


@check("200 with the tag that it had: no change, no new version", SAME)
def _same_content_is_no_change(service: Service) -> None:
    former, store = tag(service.spare().response), service.spare()
    for sent in ({}, {"if_match": former}):
        response = service.replace(store.id, fields(store.name, store.address), "open", **sent)
        response.expect(response.ok, f"status {response.status} for what the store already is")
        response.expect(
            tag(response) == tag(store.response), "its ETag is another, though nothing changed"
        )


@check(
    "The same key with the same request gets the same body, `etag` and `content-location` again",
    ONCE,
    adds=1,
)
def _a_key_works_once(service: Service) -> None:
    payload, key = fields(service.name()), f"{service.marker}-key"
    first, again = (
        service.create(payload, "open", idempotency_key=text) for text in (key, f'"{key}"')
    )
    first.expect(first.ok, f"status {first.status}")
    again.expect(again.content == first.content, "sent again, it gets another body")
    again.expect(tag(again) == tag(first), "sent again, it gets another ETag")
    again.expect(
        again.header("idempotent-replayed") == "true", "sent again, it is not marked as replayed"
    )
    service.added -= 1
    require_refusal(service.create(fields(service.name()), "open", idempotency_key=key), 422)
    found = service.find(payload["name"])
    found.expect(found.listed.count == 1, f"the store was added {found.listed.count} times")


@check("Ids ascend, and nothing is ever deleted: pages never shift.", PAGES, adds=3)
def _pages_are_the_list(service: Service) -> None:
    name = service.name()
    ids, found = [service.make(name).id for _ in range(3)], list[int | None]()
    target = f"{STORES}?limit=2&name={quote(name)}"
    for size in (2, 1):
        page = service.send("GET", target)
        page.expect(page.listed.count == size, f"a page has {page.listed.count} stores, not {size}")
        found += map(number, page.listed.stores)
        link = LINK.search(page.header("link") or "")
        page.expect(
            bool(link) == (size == 2),
            "the next page is linked where there is none, or it is not linked",
        )
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
    """Return a page of the feed and its changes; raise Violation when it is none, Skipped
    without the route."""
    page = service.send("GET", f"/api/changes?after={quote(str(after))}&{more}")
    if page.status == 404:
        raise Skipped("the service has no /api/changes")
    changes = page.member("changes")
    page.expect(
        page.ok and isinstance(changes, list) and {*map(type, changes)} <= {dict},
        "it is no page of changes",
    )
    return page, changes


@check("every committed change, in the order of the commits, without a gap", adds=1)
def _the_feed_has_every_change(service: Service) -> None:
    after: object = tag(service.find(service.name())).strip('"')
    read_feed(service, after, "limit=1")  # skipped before it adds a store
    store = service.make()
    wanted, found = list[list[Any]](), list[list[Any]]()
    for write in (
        store.response,
        *(service.replace(store.id, fields(service.name()), "open") for _ in "12"),
    ):
        former = {key: wanted[-1][2].get(key) for key in ("name", "address")} if wanted else None
        wanted.append(
            [
                int(tag(write)[1:].split(".")[0]),
                "replaced" if former else "created",
                write.single,
                former,
            ]
        )
    for limit in (2, *[1000] * TRIES):
        if len(found) < len(wanted):
            page, changes = read_feed(service, after, f"limit={limit}")
            ours = [
                one for one in changes if number(one.get("store")) == store.id
            ]  # other clients may write too
            found += [
                [one.get(key) for key in ("seq", "type", "store", "previous")] for one in ours
            ]
            after = page.member("next")
    if len(found) < len(wanted) and changes:
        raise Skipped("other clients write all the time")
    page.expect(found == wanted, f"the changes of the store {store.id} are {found}, not {wanted}")


@check("or the one that was sent if there is none", CURSORS)
def _the_feed_gives_back_a_cursor(service: Service) -> None:
    only = f"store={service.settle().id}"
    sent = tag(service.find(service.name())).strip('"')
    service.spare()
    page, changes = read_feed(service, sent, only)
    page.expect(
        not changes and page.member("next") == sent, f"it has changes, or its next is not {sent!r}"
    )
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

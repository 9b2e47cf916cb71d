"""Sorted and filtered pages: checked only if the service announces versions, and has `sort`."""

import secrets

from storeapi_check.beyond import LINK, tag
from storeapi_check.service import STORES, Made, Rules, Service, Skipped, fields, number

RULES = Rules()
SORTED = "all pages have the order that the stores had at `SEQ`"
SCOPE = (
    "If the service has `sort`, the pages of each order and filter have the stores of the list,"
    " once and in that order, though one changes between two pages."
)


@RULES.check(SORTED, SCOPE, announced=True, adds=3)
def _sorted_pages_are_the_list(service: Service) -> None:
    if service.send("GET", f"{STORES}?sort=nothing&limit=1").status != 400:
        raise Skipped("the service has no `sort`")
    word = f"s{secrets.token_hex(5)}"
    first = service.make(f"{service.marker} {word} b", "One")
    bare = service.make(f"{service.marker} {word} a")
    last = service.make(f"{service.marker} {word} B", "ONE")
    moment = tag(bare.response).strip('"')
    service.replace(first.id, fields(first.name, "one"))
    orders = {
        "id": (first, bare, last),
        "name": (bare, first, last),
        "changed": (bare, last, first),
    }
    filters = {
        "": (first, bare, last),
        "&no-address=true": (bare,),
        "&duplicates=true": (first, last),
        f"&changed-after={moment}": (first, last),
    }
    for order, stores in orders.items():
        for filter, kept in filters.items():
            wanted = [made.id for made in stores if made in kept]
            _require_pages(service, f"q={word}&sort={order}{filter}", wanted)
            _require_pages(service, f"q={word}&sort=-{order}{filter}", wanted[::-1])
    wanted = [bare.id, last.id, first.id]
    _require_pages(service, f"q={word}&sort=changed", wanted, changing=bare)


def _require_pages(
    service: Service, query: str, wanted: list[int], changing: Made | None = None
) -> None:
    """Raise Violation unless the pages of two have the wanted stores; `changing` is a store that
    changes after the first page."""
    found: list[int | None] = []
    target = f"{STORES}?limit=2&{query}"
    for _ in wanted:
        page = service.send("GET", target)
        if page.status == 503:
            raise Skipped("sorted lists take too long there")
        found += map(number, page.listed.stores)
        link = LINK.search(page.header("link") or "")
        if link is None:
            break
        target = link[1]
        if changing is not None:
            service.replace(changing.id, fields(changing.name, "Changed"))
            changing = None
    reason = f"the pages of {query} have the ids {found}, not {wanted}"
    page.expect(found == wanted, reason)

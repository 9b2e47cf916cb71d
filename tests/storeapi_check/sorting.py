"""A reference that also sorts and filters its list: what `wrong_sorting` breaks."""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.storeapi_check.announcing import EPOCH, Announcing, Past
from tests.storeapi_check.reference import JSON, Response, Store


class Sorting(Announcing):
    """A service that keeps the contract, and has `sort` and its filters."""

    def handle(self, method: str, target: str, body: bytes) -> Response:
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if method == "GET" and parts.path == "/api/stores" and "sort" in query:
            return self.sorted_page(query)
        return super().handle(method, target, body)

    def sorted_page(self, query: dict[str, str]) -> Response:
        if query["sort"].removeprefix("-") not in ("id", "name", "changed"):
            return self.error("other", 400, "Bad Request", "bad sort")
        id, _, cursor = query.get("after", "").partition("@")
        version = self.began(int(cursor.partition(".")[0] or self.version))
        past = self.as_of(version)
        ids = [store["id"] for store in self.order(query["sort"], past)]
        ids = ids[self.behind(ids.index(int(id))) :] if id else ids
        stores = [store for each in ids if (store := self.find(str(each)))]
        kept = [store for store in stores if self.is_kept(store, query)]
        limit = int(query["limit"])
        response = self.send("list", 200, self.encode(kept[:limit]), JSON)
        if len(kept) > limit:
            query["after"] = f"{kept[limit - 1]['id']}@{version}.{EPOCH}"
            rest = "&".join(f"{name}={value}" for name, value in query.items())
            response.headers["link"] = self.link(f"/api/stores?{rest}")
        return response

    def began(self, version: int) -> int:
        """Return the version whose order a page has."""
        return version

    def behind(self, place: int) -> int:
        return place + 1

    def order(self, sort: str, past: Past) -> list[Store]:
        keys: Mapping[str, Callable[[Store], Any]] = {
            "id": lambda store: store["id"],
            "name": lambda store: (self.folded(store["name"]), store["id"]),
            "changed": lambda store: past.versions[store["id"]],
        }
        by = keys[sort.removeprefix("-")]
        return sorted(past.stores, key=by, reverse=self.is_reversed(sort))

    def folded(self, name: str) -> str:
        return name.casefold()

    def is_reversed(self, sort: str) -> bool:
        return sort.startswith("-")

    def is_kept(self, store: Store, query: dict[str, str]) -> bool:
        return (
            query.get("q", "") in store["name"]
            and not ("no-address" in query and store["address"])
            and not ("duplicates" in query and not self.has_like(store))
            and self.versions[store["id"]] > int(query.get("changed-after", "0").partition(".")[0])
        )

    def has_like(self, store: Store) -> bool:
        """Return whether another store is like this one."""
        texts = [f"{each['name']}\n{each['address']}".casefold() for each in self.stores]
        return texts.count(f"{store['name']}\n{store['address']}".casefold()) > 1

"""`/api/keys`: the numbers that outside systems have for the stores of a page (decision 57)."""

from asyncio import Future
from collections.abc import Mapping
from functools import partial

import msgspec

from storekeeper.api.plan import Planner, RequestPlan
from storekeeper.api.preconditions import not_modified, read_if_none_match
from storekeeper.api.query import parse_keys_query
from storekeeper.domain.commands import Tags, tag
from storekeeper.domain.selection import StoreKeys
from storekeeper.http.request import Request
from storekeeper.http.response import JSON, Deferred, Fields, Response
from storekeeper.storage.collection import Collection


class _Key(msgspec.Struct, gc=False):
    """An outside key of a store: the column of the file that it came from, and its value."""

    store: int
    column: str
    value: str


class Keys:
    """Carries out the route on a collection."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self.planners: Mapping[str, Planner] = {"keys": self._plan}

    def _plan(self, _: str, headers: Fields) -> RequestPlan:
        return RequestPlan(partial(self._get, read_if_none_match(headers)))

    def _get(self, if_none_match: Tags | None, request: Request) -> Response | Deferred:
        found = self._collection.keys(parse_keys_query(request.target.partition(b"?")[2]))
        if isinstance(found, Future):
            return Deferred(found, partial(_response, if_none_match))
        return _response(if_none_match, found)


def _response(if_none_match: Tags | None, found: StoreKeys) -> Response:
    current = tag(found.version, found.epoch)
    if unchanged := not_modified(if_none_match, current):
        return unchanged
    keys = [_Key(*row) for row in found.rows]
    return Response(msgspec.json.encode({"keys": keys}), JSON, tag=current.encode(), cacheable=True)

"""The route /api/export: all stores, or some, as a file.

A thread writes the file, of one moment, before anything is sent: so a slow client keeps no
transaction open, and what is sent is whole.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from functools import partial

from storekeeper.api.plan import Plan, Planner
from storekeeper.api.preconditions import not_modified, read_if_none_match
from storekeeper.api.query import parse_export_query
from storekeeper.api.routes.spool import Spool, Spools, not_written, within
from storekeeper.domain.commands import Tags, tag
from storekeeper.http.request import Request
from storekeeper.http.response import NO_CACHE, Deferred, Fields, Response
from storekeeper.sheets import TYPES
from storekeeper.sheets import export as exports
from storekeeper.sheets.export import Export
from storekeeper.storage.collection import Collection, completed

MAX_EXPORTS = 4
"""Exports that are written or sent at once."""

TIMEOUT = 60.0
"""Seconds that writing an export may take."""

PART_BYTES = 64 * 1024
"""Bytes that are read of the file, and sent, at once."""


class Exports:
    """Carries out requests of exports of a collection."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._spools = Spools(MAX_EXPORTS, "Too many exports are under way")
        self.planners: Mapping[str, Planner] = {"export": self._plan}

    def _plan(self, _method: str, headers: Fields) -> Plan:
        return Plan(partial(self._run, read_if_none_match(headers)))

    def _run(self, tags: Tags | None, request: Request) -> Deferred:
        options = parse_export_query(request.target.partition(b"?")[2])
        return Deferred(
            asyncio.ensure_future(self._respond(options, tags, is_head=request.method == "HEAD"))
        )

    async def _respond(self, options: Export, tags: Tags | None, *, is_head: bool) -> Response:
        # The keys of outside systems change without the list: an export with them has no tag.
        has_tag = not options.key_column
        if tags and has_tag and options.at is None:
            state = await completed(self._collection.state())
            if unchanged := not_modified(tags, tag(state.version, state.epoch)):
                return unchanged
        spool = self._spools.take()
        check = within(
            TIMEOUT, "The export takes too long: ask for fewer stores, or run `storekeeper export`"
        )
        try:
            written = await self._collection.with_snapshot(
                lambda snapshot: exports.write(snapshot, options, None if is_head else spool, check)
            )
        except OSError as error:
            raise not_written(error) from None
        current = tag(written.version, written.epoch).encode() if has_tag else b""
        return Response(b"", _headers(options.format), stream=_parts(spool), tag=current)


def _headers(format: str) -> bytes:
    fields = f'content-type: {TYPES[format]}\r\ncontent-disposition: attachment; filename="stores.{format}"\r\n'
    return fields.encode() + NO_CACHE


async def _parts(spool: Spool) -> AsyncGenerator[bytes, None]:
    spool.seek(0)
    while part := spool.read(PART_BYTES):
        yield part
        await asyncio.sleep(0)  # a fast client must not keep the others waiting until its file ends

"""The route /api/export: all stores, or some, as a file.

A thread writes the file, as of one moment, before anything is sent: so a slow client keeps no
transaction open, and the file is whole. A HEAD writes it too, so that it responds as a GET does.
"""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from urllib.parse import quote

from storekeeper.api.plan import Planner, RequestPlan
from storekeeper.api.preconditions import not_modified, read_if_none_match
from storekeeper.api.query import parse_export_query
from storekeeper.api.routes.spool import Spool, not_written
from storekeeper.api.routes.time_limits import within
from storekeeper.concurrency.interruption import Interruption
from storekeeper.concurrency.slow_readers import Kept, SlowReaders
from storekeeper.domain.commands import Tags, tag
from storekeeper.domain.errors import Unavailable
from storekeeper.domain.queries import Query
from storekeeper.http.request import Request
from storekeeper.http.response import NO_CACHE, Deferred, Fields, Response, StreamAborted
from storekeeper.sheets import TYPES
from storekeeper.sheets import export as exports
from storekeeper.sheets.export import Export, Written
from storekeeper.storage.collection import Collection, Snapshot, completed

MAX_WRITTEN = 4
"""Exports that are written at once."""

MAX_SENT = 16
MAX_SENT_BYTES = 2 * 2**30
"""Exports that are sent at once, and bytes of their files; a single one may have more."""

PROGRESS_BYTES = 2**20
PROGRESS_TIMEOUT = 10.0
"""Bytes of an export that a client must read, and seconds within which it must, while others
need the room."""

WRITE_TIMEOUT = 57.0
"""Seconds that writing an export may take."""

RESPONSE_TIMEOUT = 59.0
"""Seconds after which an export has its response in any case, whatever the database does."""

MAX_SEARCH_IN_NAME = 40
"""Characters of a search in the name of a file."""

PART_BYTES = 64 * 1024
"""Bytes that are read from the file, and sent, at once."""

_NO_WORD = re.compile(r"[\W_]+")

TOO_SLOW = "The export takes too long: ask for fewer stores, or run `storekeeper export`"
TOO_MANY = "Too many exports are under way"


class Download(Kept):
    """An export that is sent: its file, which is deleted once it is sent or has given way."""

    def __init__(self, spool: Spool) -> None:
        super().__init__(spool.seek(0, os.SEEK_END))
        self._spool = spool
        spool.seek(0)

    def give_way(self) -> None:
        """Delete the file."""
        super().give_way()
        self._spool.release()

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """Yield the file, no faster than the client reads."""
        taken = 0
        while not self.gave_way and (part := self._spool.read(PART_BYTES)):
            yield part
            taken += len(part)
            if taken >= PROGRESS_BYTES:
                taken = 0
                self.note_progress()
            await asyncio.sleep(0)  # a fast client must not keep others waiting until its end
        if self.gave_way:
            raise StreamAborted


class Exports:
    """Carries out requests of exports of a collection."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._writing = 0
        self._sent = SlowReaders[Download](MAX_SENT, MAX_SENT_BYTES, PROGRESS_TIMEOUT, TOO_MANY)
        self._refused = 0
        self.planners: Mapping[str, Planner] = {"export": self._plan}

    @property
    def refused(self) -> int:
        """How many were refused, or broken off for others, because too many were under way."""
        return self._refused + self._sent.refused

    def _plan(self, _method: str, headers: Fields) -> RequestPlan:
        return RequestPlan(partial(self._run, read_if_none_match(headers)))

    def _run(self, tags: Tags | None, request: Request) -> Deferred:
        options = parse_export_query(request.target.partition(b"?")[2])
        return Deferred(asyncio.ensure_future(self._respond(options, tags)))

    async def _respond(self, options: Export, tags: Tags | None) -> Response:
        # The keys of outside systems change without the list: an export with them has no tag.
        has_tag = not options.key_columns
        if tags and has_tag and (unchanged := not_modified(tags, await self._tag(options))):
            return unchanged
        self._sent.make_room()
        if self._writing >= MAX_WRITTEN:
            self._refused += 1
            raise Unavailable(TOO_MANY)
        self._writing += 1
        interruption = Interruption()
        writing = asyncio.ensure_future(self._write(options, interruption))
        done, _ = await asyncio.wait({writing}, timeout=RESPONSE_TIMEOUT)
        if not done:
            # It counts until its thread has ended; its result is not needed then.
            writing.add_done_callback(lambda late: late.cancelled() or late.exception())
            interruption.interrupt()
            raise Unavailable(TOO_SLOW)
        download, written = writing.result()
        self._sent.add(download)
        response = Response(b"", _headers(options, written), stream=download.parts())
        if has_tag:
            response.tag = tag(written.version, written.epoch).encode()
        return response

    async def _tag(self, options: Export) -> str:
        """Return the tag that an export would have. Raises EpochEnded, InvalidInput."""
        if options.at is None:
            state = await completed(self._collection.state())
            return tag(state.version, state.epoch)
        listing = await completed(self._collection.list(Query(at=options.at, limit=1)))
        return tag(listing.version, listing.epoch)

    async def _write(self, options: Export, interruption: Interruption) -> tuple[Download, Written]:
        """Write an export to a file, which is gone if that fails. Raises Unavailable."""
        try:
            with _new_spool() as spool:
                work = partial(_write, options, spool)
                written = await self._collection.with_snapshot(work, interruption)
                return Download(spool), written
        except OSError as error:
            raise not_written(error) from None
        finally:
            self._writing -= 1


@contextmanager
def _new_spool() -> Iterator[Spool]:
    """Open a file, and close it if the work fails: its error may be kept, and would keep the file.

    Raises OSError.
    """
    spool = Spool()
    try:
        yield spool
    except BaseException:
        spool.release()
        raise


def _write(options: Export, spool: Spool, snapshot: Snapshot) -> Written:
    written = exports.write(snapshot, options, spool, within(WRITE_TIMEOUT, TOO_SLOW))
    spool.flush()
    return written


def _headers(options: Export, written: Written) -> bytes:
    name = file_name(options, datetime.now(UTC))
    fields = f"content-type: {TYPES[options.format]}\r\ncontent-disposition: {name}\r\n"
    if written.formulas:
        fields += f"formula-cells: {written.formulas}\r\n"
    return fields.encode() + NO_CACHE


def file_name(options: Export, now: datetime) -> str:
    """Return the name of the file of an export, by its date and its search, as a field value."""
    moment = now
    if options.at is not None and options.at.time is not None:
        with suppress(ValueError, OverflowError, OSError):
            moment = datetime.fromtimestamp(options.at.time / 1000, UTC)
    parts = ["stores", moment.date().isoformat()]
    if options.search is not None:
        words = _NO_WORD.sub("-", options.search.text)[:MAX_SEARCH_IN_NAME].strip("-")
        parts += [words] if words else []
    name = f"{'-'.join(parts)}.{options.format}"
    if name.isascii():
        return f'attachment; filename="{name}"'
    plain = f"{'-'.join(parts[:2])}.{options.format}"
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name)}"

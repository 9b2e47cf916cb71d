"""The route /api/imports: a spreadsheet as the body (decisions 36, 42, 52, 53, 55). Imports `http`, `sheets`,
`concurrency` and the domain.

A body goes to a file without a name while it arrives, and is read on a thread. One import runs at a time.
"""

import asyncio
import hashlib
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from io import BufferedRandom
from time import monotonic
from typing import Any

import msgspec

from storekeeper import importer
from storekeeper.api.conditions import Preconditions, check_coding, read_preconditions
from storekeeper.api.errors import deferred, to_response
from storekeeper.api.plan import Plan, Planner, constant
from storekeeper.api.query import ImportRequest, parse_import_query
from storekeeper.collection import Collection
from storekeeper.concurrency.threads import run_in_thread
from storekeeper.errors import InvalidInput, Outcome, StorekeeperError, Unavailable
from storekeeper.http.request import Request, field
from storekeeper.http.response import (
    JSON,
    Deferred,
    ErrorBody,
    Fields,
    Response,
    error_response,
    phrase,
    unavailable,
)
from storekeeper.importer import Imported
from storekeeper.imports import MAX_LISTED, Import, NeedsMatch, Problem, Refused, Row
from storekeeper.sheets import BadFile
from storekeeper.sheets.records import open_sheet
from storekeeper.sheets.rows import SheetRows

MEDIA_TYPES = (b"text/csv", b"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet")

READ_TIMEOUT = 30.0
"""Seconds for which the rows of a file are read."""

LOCK_TIMEOUT = 10.0
"""Seconds that an import waits for other writers."""

RESPONSE_TIMEOUT = 58.0
"""Seconds after which an import gets its response in any case, with outcome unknown (decision 42: within 60 s)."""

NOT_KEPT = "The body cannot be kept"
UNDER_WAY = "Another import is under way"
TOO_SLOW = "The import takes too long: use the command storekeeper import"

_REPLAYED = (*JSON, (b"idempotent-replayed", b"true"))
_NEEDS_MATCH = (
    '"match" or "add" is required, because the list has stores: send match=id, match=name or match=COLUMN (the key'
    " that another system has for a store), or add=true if all rows are new stores"
)
_encode = msgspec.json.Encoder().encode


class _Refusal(ErrorBody, frozen=True):
    """The error body of an import whose rows are bad or in conflict."""

    problems: list[Problem] = msgspec.field(default_factory=list)


class Upload:
    """A body on its way to a file without a name. The file is closed when nobody refers to the upload any more."""

    def __init__(self, file: BufferedRandom) -> None:
        self.file = file

    def write(self, data: bytes) -> Response | None:
        """Append bytes; return the refusal of the request if they cannot be kept."""
        try:
            self.file.write(data)
        except OSError as error:
            return unavailable(f"{NOT_KEPT}: {error.strerror}")
        return None

    def __del__(self) -> None:
        self.file.close()


class Imports:
    """Carries out imports into a collection, one at a time."""

    def __init__(self, collection: Collection, *, generic: bool) -> None:
        self._collection = collection
        self._generic = generic
        self._upload: weakref.ref[Upload] | None = None
        """The one that has the slot, while there is one."""
        self.planners: Mapping[str, Planner] = {"imports": self._plan}

    def _plan(self, _method: str, headers: Fields) -> Plan:
        kind = (field(headers, b"content-type") or b"").partition(b";")[0].strip().lower()
        if kind not in MEDIA_TYPES:
            return constant(error_response(415, "Send the body as text/csv, or as XLSX with its media type"))
        if refusal := check_coding(headers):
            return constant(refusal)
        try:
            preconditions = read_preconditions(headers, is_create=True)
        except InvalidInput as error:
            return constant(to_response(error, generic=self._generic))
        return Plan(partial(self._run, preconditions), begin=self._begin)

    def _begin(self, request: Request) -> Response | None:
        """Take the slot before the body is read; return the refusal if it is taken, or the query is wrong."""
        try:
            parse_import_query(request.target.partition(b"?")[2])
            request.upload = self._take_slot()
        except StorekeeperError as error:
            return to_response(error, generic=self._generic)
        return None

    def _take_slot(self, body: bytes = b"") -> Upload:
        if self._upload is not None and self._upload() is not None:
            raise Unavailable(UNDER_WAY)
        try:
            upload = Upload(tempfile.TemporaryFile())  # noqa: SIM115 - closed with it
            upload.file.write(body)
        except OSError as error:
            raise Unavailable(f"{NOT_KEPT}: {error.strerror}") from None
        self._upload = weakref.ref(upload)
        return upload

    def _run(self, preconditions: Preconditions, request: Request) -> Deferred:
        wanted = parse_import_query(request.target.partition(b"?")[2])
        if request.upload is None:  # it came whole, because it is small
            request.upload = self._take_slot(request.body)
        upload, request.upload = request.upload, None
        assert isinstance(upload, Upload)
        work = self._import(wanted, preconditions, request.token_number, upload)
        return deferred(asyncio.ensure_future(work), lambda response: response, generic=self._generic)

    async def _import(
        self, wanted: ImportRequest, preconditions: Preconditions, token_number: int, upload: Upload
    ) -> Response:
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT):
                rows, hashed = await run_in_thread(partial(_open, wanted, upload))
                key = preconditions.key_of(("imports", wanted, hashed), token_number)
                order = Import(
                    match=rows.match,
                    add=wanted.add,
                    on_conflict=wanted.on_conflict,
                    skip_bad=wanted.skip_bad,
                    dry_run=wanted.dry_run,
                    if_match=preconditions.if_match,
                    key=key,
                    token_number=token_number,
                )
                return await self._carry_out(rows, order)
        except BadFile as error:
            raise _invalid(error) from None
        except NeedsMatch:
            raise InvalidInput("query", {"match": _NEEDS_MATCH}) from None
        except TimeoutError:
            raise Unavailable(TOO_SLOW, Outcome.UNKNOWN) from None
        except OSError as error:  # the end of a body is written when it is read
            raise Unavailable(f"{NOT_KEPT}: {error.strerror}") from None

    async def _carry_out(self, rows: SheetRows, order: Import) -> Response:
        try:
            done = await self._collection.in_session(
                lambda session: importer.carry_out(session, rows, order), LOCK_TIMEOUT
            )
        except Refused as refused:
            problems = refused.plan.report.problems
            message = str(refused)
        else:
            return await _response(rows, done)
        await run_in_thread(partial(rows.describe, problems))
        return Response(_encode(_Refusal(422, phrase(422), message, problems=problems)), JSON, 422)


class _TimedRows(SheetRows):
    """Rows that have to be read within READ_TIMEOUT. `upload` has the file open as long as these are needed."""

    upload: Any = None

    def __iter__(self) -> Iterator[Row]:
        end = monotonic() + READ_TIMEOUT
        for row in super().__iter__():
            if row.place % 256 == 0 and monotonic() > end:
                raise Unavailable(TOO_SLOW)
            yield row


def _open(wanted: ImportRequest, upload: Upload) -> tuple[SheetRows, str]:
    """Return the rows of a body, and its SHA-256. Raises BadFile."""
    upload.file.seek(0)
    hashed = hashlib.file_digest(upload.file, "sha256").hexdigest()
    rows = _TimedRows(open_sheet(upload.file, wanted.encoding), wanted.options)
    rows.upload = upload
    return rows, hashed


async def _response(rows: SheetRows, done: Imported) -> Response:
    report, etag = done.report, f'"{done.report.version}"'.encode()
    if done.plan is None:
        kept = {
            name: value for name, value in msgspec.to_builtins(report).items() if name not in ("problems", "changes")
        }
        return Response(_encode(kept), _REPLAYED, tag=etag)
    report.problems = sorted([*report.problems, *rows.cut.listed], key=lambda each: each.line)[:MAX_LISTED]
    await run_in_thread(partial(rows.describe, report.problems))
    return Response(_encode(report), JSON, tag=etag)


def _invalid(error: BadFile) -> InvalidInput:
    hint = f": try {error.parameter}={error.value}" if error.value else ""
    text = f"{error}{hint}"
    return InvalidInput("query", {error.parameter: text}) if error.parameter else InvalidInput("payload", text)

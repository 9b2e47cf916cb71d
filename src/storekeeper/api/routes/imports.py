"""The route /api/imports: a spreadsheet as the body (decisions 36, 42, 52, 53, 55).

A body goes to a spool while it arrives, and then its own process reads it. Several bodies may
arrive at once; one import runs at a time.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping
from email.message import Message
from functools import partial

import msgspec
from msgspec import UNSET
from msgspec.structs import asdict, replace

from storekeeper.api.plan import Planner, RequestPlan, constant
from storekeeper.api.preconditions import REPLAYED, Preconditions, check_coding, read_preconditions
from storekeeper.api.query import parse_import_query, wants_look
from storekeeper.api.routes.multipart import MULTIPART, take_decisions
from storekeeper.api.routes.spool import Spool, Spools, not_written, releasing
from storekeeper.api.routes.time_limits import until
from storekeeper.concurrency.interruption import Interruption
from storekeeper.concurrency.threads import run_in_thread
from storekeeper.domain import import_plan
from storekeeper.domain.errors import InvalidInput, Outcome, Unavailable
from storekeeper.domain.intake import Counts, Import, NeedsMatch, Refused, Report, Told
from storekeeper.domain.problems import Problem
from storekeeper.domain.reasons import Reason, Violation
from storekeeper.http.request import Request, field
from storekeeper.http.response import (
    JSON,
    Deferred,
    ErrorBody,
    Fields,
    Response,
    error_response,
    phrase,
)
from storekeeper.log.events import Event, emit
from storekeeper.sheets import TYPES, BadFile
from storekeeper.sheets.encodings import check_encoding
from storekeeper.sheets.protocol import Layout, layout_of
from storekeeper.sheets.reader import Limits, ReaderEnded
from storekeeper.sheets.reading import Reading, known_to, look
from storekeeper.storage.collection import Collection
from storekeeper.storage.intake import import_rows
from storekeeper.storage.sessions import Session

MEDIA_TYPES = (
    "text/csv",
    "text/tab-separated-values",
    TYPES["xlsx"],
    "application/vnd.ms-excel",
    "application/vnd.oasis.opendocument.spreadsheet",
    "application/json",
    "application/jsonl",
    "application/x-ndjson",
    "application/ndjson",
)
"""What a body may be called; what it is, its first bytes say. None is a type that the form of
another site's page can send."""

MAX_ARRIVING = 8
"""Imports whose bodies arrive at once, each in its own file. If one more comes, a slow one may give
way."""

MIN_RATE = 512 * 1024
"""Bytes a second: an import that arrives at this rate does not give way. The longest body needs
more, or it takes too long."""

READ_TIMEOUT = 30.0
"""Seconds for which the rows of a file are read."""

MAX_READ_SECONDS = 25
"""Seconds of processor time that reading a file may take."""

MAX_READ_BYTES = 256 * 2**20
"""Bytes of the rows of a file, as the reader sends them: a small template or workbook may have many
rows."""

LOCK_TIMEOUT = 10.0
"""Seconds that an import waits for other writers."""

RESPONSE_TIMEOUT = 58.0
"""Seconds after which an import gets its response in any case, with an unknown outcome (decision
42: within 60 s)."""

PLAN_TIMEOUT = 50.0
"""Seconds after which an import is given up if it has written nothing yet."""

TOO_SLOW = "The import takes too long: use the command storekeeper import"

_NEEDS_MATCH = (
    '"match" or "add" is required, because the list has stores: send match=id, match=name or'
    " match=COLUMN (the key that another system has for a store), or add=true if all rows are new"
    " stores"
)
_NO_CONFLICTS = '"on-conflict" must not be ignore-version: no row is in conflict to be decided'
_LIMITS = Limits(MAX_READ_SECONDS, READ_TIMEOUT, MAX_READ_BYTES, TOO_SLOW)
_encode = msgspec.json.Encoder().encode


class _Refusal(ErrorBody, frozen=True):
    """The error body of an import whose rows are bad or in conflict."""

    problems: list[Problem] = msgspec.field(default_factory=list)


class Imports:
    """Carries out imports into a collection, one at a time, while the bodies of others arrive."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._arriving = Spools(MAX_ARRIVING, "Too many imports arrive at once", MIN_RATE)
        self._running = Spools(1, "Another import is under way")
        self.planners: Mapping[str, Planner] = {"imports": self._plan}

    def _plan(self, _method: str, headers: Fields) -> RequestPlan:
        kind, charset, boundary = _media_type(field(headers, b"content-type") or b"")
        if kind not in MEDIA_TYPES and not (kind == MULTIPART and boundary):
            return constant(
                error_response(415, "Send the body as text/csv, or as XLSX with its media type")
            )
        try:
            encoding = check_encoding(charset) if charset else None
        except BadFile as error:
            return constant(error_response(415, f"charset: {error}"))
        if refusal := check_coding(headers):
            return constant(refusal)
        return RequestPlan(
            partial(self._run, read_preconditions(headers, is_create=True), encoding, boundary),
            begin=self._begin,
        )

    def _begin(self, request: Request) -> None:
        """Take a place for the body before it is read. Raises Unavailable if there is none, or if
        an import runs, InvalidInput for the query."""
        parse_import_query(request.target.partition(b"?")[2])
        self._running.make_room()
        request.upload = self._arriving.take()

    def _run(
        self,
        preconditions: Preconditions,
        charset: str | None,
        boundary: str,
        request: Request,
    ) -> Deferred | Response:
        options = parse_import_query(request.target.partition(b"?")[2])
        if charset and options.encoding is None:
            options = replace(options, encoding=charset)
        if request.upload is None:  # it came whole, because it is small
            request.upload = spool = self._running.take()
            if refusal := spool.append(request.body):
                return refusal
        else:
            assert isinstance(request.upload, Spool)
            spool = request.upload
            self._running.take_over(spool)
        request.upload = None
        if wants_look(request.target.partition(b"?")[2]):
            return Deferred(asyncio.ensure_future(self._look(spool, layout_of(options))))
        options = replace(
            options,
            token_number=request.token_number,
            user=request.user,
            proxy_user=request.user,
        )
        opened = partial(_open, spool, options, preconditions, request.key, boundary)
        return Deferred(asyncio.ensure_future(self._import(spool, opened)))

    async def _import(self, spool: Spool, opened: Callable[[], tuple[Reading, Import]]) -> Response:
        rows = None
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT):
                with releasing(spool):
                    rows, options = await run_in_thread(opened)
                    return await self._import_rows(rows, options)
        except BadFile as error:
            raise _invalid(error) from None
        except NeedsMatch:
            violation = Violation(Reason.REQUIRED, sentence=_NEEDS_MATCH)
            raise InvalidInput("query", {"match": violation}) from None
        except ReaderEnded as error:
            emit(Event.READER_ENDED, why=error.why)
            raise
        except TimeoutError:
            pass  # answered below
        except OSError as error:  # the end of a body is written when it is read
            raise not_written(error) from None
        finally:
            if rows is not None:
                rows.stop()
        # Raised here: a TimeoutError as the error of this task, and its frames, which have the
        # task, would keep each other in memory, and the spool with them.
        raise Unavailable(TOO_SLOW, Outcome.UNKNOWN)

    async def _look(self, spool: Spool, layout: Layout) -> Response:
        """Respond with what a file is. Writes nothing."""
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT):
                with releasing(spool):
                    known = await self._collection.with_snapshot(known_to, Interruption())
                    spool.seek(0)
                    work = partial(look, spool, layout, known, limits=_LIMITS)
                    return Response(_encode(await run_in_thread(work)), JSON)
        except BadFile as error:
            raise _invalid(error) from None
        except ReaderEnded as error:
            emit(Event.READER_ENDED, why=error.why)
            raise
        except TimeoutError:
            pass  # as below
        except OSError as error:
            raise not_written(error) from None
        raise Unavailable(TOO_SLOW)

    async def _import_rows(self, rows: Reading, options: Import) -> Response:
        body: Report | _Refusal
        check = until(PLAN_TIMEOUT, TOO_SLOW)

        def work(session: Session) -> import_plan.ImportPlan | Counts:
            with rows:
                return import_rows(session, rows, options, check=check)

        try:
            done = await self._collection.in_session(work, LOCK_TIMEOUT)
            if isinstance(done, Counts):
                replay = Told(**asdict(done))
                rows.tell(replay)
                return Response(_encode(replay), REPLAYED, tag=_tag(replay))
            rows.tell(done.report)
            body, status, current = done.report, 200, _tag(done.report)
        except Refused as refused:
            body = _Refusal(422, phrase(422), str(refused), problems=refused.report.problems)
            status, current = 422, b""
        if not options.token_number:
            _hide_who(body.problems)
        await run_in_thread(partial(rows.describe, body.problems))
        return Response(_encode(body), JSON, status, tag=current)


def _media_type(value: bytes) -> tuple[str, str, str]:
    """Return the type that a field names, its charset, and its boundary, "" without one."""
    message = Message()
    message["content-type"] = value.decode("latin-1").replace("\r", "").replace("\n", "")
    charset = message.get_param("charset", "")
    known = charset if isinstance(charset, str) else ""
    return message.get_content_type(), known, message.get_boundary("")


def _hide_who(problems: Iterable[Problem]) -> None:
    """Leave out who changed a store: only clients with a token may know that (decision 45)."""
    for problem in problems:
        if problem.conflict is not UNSET:
            problem.conflict.by = problem.conflict.user = None


def _tag(counts: Counts) -> bytes:
    return f'"{counts.version}"'.encode()


def _with_decisions(spool: Spool, options: Import, boundary: str) -> Import:
    """Take the decisions out of a body with two parts. Raises InvalidInput."""
    decisions, head = take_decisions(spool, boundary)
    kind, charset, _ = _media_type((head["content-type"] or "").encode("latin-1", "replace"))
    if kind not in MEDIA_TYPES:
        sentence = "The second part must be text/csv, or XLSX with its media type"
        raise InvalidInput("payload", whole=Violation(Reason.MALFORMED, sentence=sentence))
    if charset and options.encoding is None:
        try:
            options = replace(options, encoding=check_encoding(charset))
        except BadFile as error:
            sentence = f"charset: {error}"
            violation = Violation(Reason.MALFORMED, sentence=sentence)
            raise InvalidInput("payload", whole=violation) from None
    if decisions and options.on_conflict == "ignore-version":
        violation = Violation(Reason.EXCLUSIVE, sentence=_NO_CONFLICTS)
        raise InvalidInput("query", {"on-conflict": violation})
    return replace(options, decisions=decisions)


def _open(
    spool: Spool, options: Import, preconditions: Preconditions, sent: str, boundary: str
) -> tuple[Reading, Import]:
    """Return the rows of a body, and what to do with them. Raises BadFile, InvalidInput."""
    if boundary:
        options = _with_decisions(spool, options, boundary)
    spool.seek(0)
    hashed = hashlib.file_digest(spool, "sha256").hexdigest()
    key = preconditions.key(sent, options.token_number, ("imports", options, hashed))
    rows = Reading(spool, layout_of(options), _LIMITS)
    return rows, replace(
        options,
        match=rows.match,
        attach=rows.attach,
        if_match=preconditions.if_match,
        idempotency_key=key,
    )


def _invalid(error: BadFile) -> InvalidInput:
    text = str(error)
    if error.query:
        text += f": try {error.query}"
    elif error.value:
        text += f": try {error.parameter}={error.value}"
    violation = Violation(Reason.BAD_FILE, sentence=text)
    if error.parameter:
        return InvalidInput("query", {error.parameter: violation})
    return InvalidInput("payload", whole=violation)

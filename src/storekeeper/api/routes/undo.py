"""The route /api/imports/undo: what an import did is undone, or what an undo did (decision 61)."""

import asyncio
from collections.abc import Mapping
from functools import partial

import msgspec
from msgspec.structs import replace

from storekeeper.api.plan import Planner, RequestPlan
from storekeeper.api.preconditions import REPLAYED, Preconditions, read_preconditions
from storekeeper.api.query import parse_undo_query
from storekeeper.api.routes.imports import LOCK_TIMEOUT, PLAN_TIMEOUT, RESPONSE_TIMEOUT
from storekeeper.api.routes.time_limits import until
from storekeeper.domain.errors import Outcome, Unavailable
from storekeeper.domain.undo import Undo, UndoCounts, UndoPlan
from storekeeper.http.request import Request
from storekeeper.http.response import JSON, Deferred, Fields, Response
from storekeeper.storage.collection import Collection
from storekeeper.storage.sessions import Session
from storekeeper.storage.undo import undo

_TOO_SLOW = "The undo takes too long: use the command storekeeper undo"
_encode = msgspec.json.Encoder().encode


class Undos:
    """Undoes imports of a collection."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self.planners: Mapping[str, Planner] = {"undo": self._plan}

    def _plan(self, _method: str, headers: Fields) -> RequestPlan:
        return RequestPlan(partial(self._run, read_preconditions(headers, is_create=True)))

    def _run(self, preconditions: Preconditions, request: Request) -> Deferred:
        options = parse_undo_query(request.target.partition(b"?")[2])
        content = ("undo", str(options.first), str(options.last), options.dry_run)
        options = replace(
            options,
            if_match=preconditions.if_match,
            idempotency_key=preconditions.key(request.key, request.token_number, content),
            token_number=request.token_number,
            user=request.user,
            proxy_user=request.user,
        )
        return Deferred(asyncio.ensure_future(self._undo(options)))

    async def _undo(self, options: Undo) -> Response:
        check = until(PLAN_TIMEOUT, _TOO_SLOW)

        def work(session: Session) -> UndoPlan | UndoCounts:
            return undo(session, options, check=check)

        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT):
                done = await self._collection.in_session(work, LOCK_TIMEOUT)
                report = done.report if isinstance(done, UndoPlan) else done
                headers = JSON if isinstance(done, UndoPlan) else REPLAYED
                return Response(_encode(report), headers, tag=f'"{report.version}"'.encode())
        except TimeoutError:
            pass  # as in imports
        raise Unavailable(_TOO_SLOW, Outcome.UNKNOWN)

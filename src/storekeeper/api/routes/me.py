"""The route /api/me: who a client is to the service, and what it may do (decisions 44, 58)."""

import msgspec

from storekeeper.api.gate import Gate
from storekeeper.api.plan import RequestPlan
from storekeeper.http.request import Request
from storekeeper.http.response import JSON, Fields, Response

_VARY = b"vary: authorization\r\n"


class _Me(msgspec.Struct, omit_defaults=True):
    """`name` is that of the token; `user` is left out if no trusted proxy names one."""

    name: str | None
    scope: str
    user: str | None = None


class Me:
    """Tells the name and the scope of a client's token; without one, what every client may do."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._plan = RequestPlan(self._respond)
        self.planners = {"me": self.plan}

    def plan(self, _method: str, _headers: Fields) -> RequestPlan:
        """Return the plan of a request."""
        return self._plan

    def _respond(self, request: Request) -> Response:
        name, scope = self._gate.identity(request.token_number)
        return Response(msgspec.json.encode(_Me(name, scope, request.user)), JSON + _VARY)

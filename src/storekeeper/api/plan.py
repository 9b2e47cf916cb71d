"""Plans: what a request's head asks for, and whether the gate admits it. Plans are remembered."""

from collections.abc import Callable

import msgspec

from storekeeper.api.routing import Route, Scope
from storekeeper.http.plain import Head
from storekeeper.http.request import Request
from storekeeper.http.response import Deferred, Fields, Response

MAX_CACHED_BYTES = 8 * 2**20
"""Bytes that the remembered plans may take. When they would take more, all are forgotten."""

PLAN_BYTES = 1024
"""Bytes that a plan takes, without what its head and entity tags take."""

QUOTE_BYTES = 70
"""Bytes that a plan takes for each quotation mark: an entity tag, which has two, is a string in
a set."""

Run = Callable[[Request], Response | Deferred]
"""Carries out a complete request. Raises StorekeeperError, as the future of a Deferred may."""

Claim = Callable[[], int | Response]
"""Returns the number of the token that a head names, or the refusal if that token is not
valid now."""


class RequestPlan(msgspec.Struct, frozen=True):
    """What a request's head asks for.

    It depends only on the method, the route, the fields and the settings, so it may be remembered
    with them. It does not depend on the id or the query, the client's identity, the time or the
    state of the database.
    """

    run: Run

    begin: Callable[[Request], None] | None = None
    """Called before a large body is read, when the request is admitted; sets `upload`. Raises
    StorekeeperError."""

    route: str | None = None
    scope: Scope | None = None
    """The permission that the gate must grant; None: no permission is needed."""

    fields: bytes = b""
    """Encoded fields that the response has because of who asks."""

    cacheable: bool = False
    """Whether a response that is `cacheable` may be cached."""

    user: str | None = None
    """The user whom the head names; it counts only from a trusted proxy."""

    user_refusal: Response | None = None
    """The refusal of a write from a trusted proxy whose head does not name one user."""

    is_constant: bool = False
    """Whether the response depends on nothing but the head."""

    claim: Claim | None = None
    """Called for each request. None: no token is needed, and the head names none."""

    def admit(self) -> int | Response:
        """Return the number of the client's token, 0 for none, or the refusal."""
        return self.claim() if self.claim else 0


Planner = Callable[[str, Fields], RequestPlan]
"""Returns what to run for a method and the fields of a head; the application adds route and
scope, the gate the rest. A HEAD is planned as its GET, whose content is left out when the
response is sent. Raises InvalidInput."""


def constant(response: Response) -> RequestPlan:
    """Return the plan of a request whose response does not depend on its target and body."""
    return RequestPlan(lambda _: response, is_constant=True)


class PlanCache:
    """The plans of remembered heads, by what they are made of."""

    def __init__(self) -> None:
        self._plans: dict[tuple[Head, str, Route | None], RequestPlan] = {}
        self._size = 0
        self.get = self._plans.get
        """Returns the plan of a head, a method and a route if it is remembered."""

    def put(self, head: Head, method: str, route: Route | None, plan: RequestPlan) -> None:
        """Remember a plan with its head, which counts again with each of its plans."""
        if not head.is_remembered:
            return
        quotes = sum([value.count(b'"') for _, value in head.fields])
        size = head.size + PLAN_BYTES + QUOTE_BYTES * quotes
        self._size += size
        if self._size > MAX_CACHED_BYTES:
            self._plans.clear()
            self._size = size
        self._plans[head, method, route] = plan

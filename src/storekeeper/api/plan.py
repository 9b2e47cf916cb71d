"""Plans: what a request's head asks for, and whether the gate admits it."""

from collections.abc import Callable

import msgspec

from storekeeper.api.routing import Scope
from storekeeper.http.request import Request
from storekeeper.http.response import Deferred, Fields, Response

Run = Callable[[Request], Response | Deferred]
"""Carries out a complete request. Raises StorekeeperError, as the future of a Deferred may."""

Claim = Callable[[], int | Response]
"""Returns the number of the token that a head names, or the refusal if that token is not good
now."""


class RequestPlan(msgspec.Struct, frozen=True):
    """What a request's head asks for.

    It depends on the method, the route, the fields and the settings alone, so it may be
    remembered with them: not on the id or the query, the client's identity, the time or the
    state of the database.
    """

    run: Run

    begin: Callable[[Request], None] | None = None
    """Called before a large body is read, when the request is admitted; sets `upload`. Raises
    StorekeeperError."""

    route: str | None = None
    scope: Scope | None = None
    """The permission that the gate has to grant; None: no permission is needed."""

    fields: bytes = b""
    """Encoded fields that the response has because of who asks."""

    cacheable: bool = False
    """Whether a response that is `cacheable` may be cached."""

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
    return RequestPlan(lambda _: response)

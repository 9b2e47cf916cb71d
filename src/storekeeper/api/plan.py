"""Plans: what a request's head asks for, and whether the gate admits it. Imports `http`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from storekeeper.api.routes import Scope
from storekeeper.http.response import Deferred, Response

Run = Callable[[Any, bytes, bytes, int], Response | Deferred]
"""Carries out a request. Arguments: the condition (see `Plan`), the target, the complete body, the number of the
client's token or 0. Raises StorekeeperError."""


Claim = Callable[[], int | Response]
"""Returns the number of the token that a head names, or the refusal if that token is not good now."""


class Plan(msgspec.Struct, frozen=True):
    """What a request's head asks for.

    It depends on the method, the route, the fields and the settings alone, so that it may be cached with them: not on
    the id or the query, the client's identity, the time or the state of the database.
    """

    run: Run

    scope: Scope | None
    """The permission that the gate has to grant; None: no permission is needed."""

    cached: bool
    """Whether a 200 to a request without a condition may be cached, under the target."""

    fields: bytes = b""
    """Encoded fields that the response has because of who asks. They are no part of what is cached."""

    refusal: Response | None = None
    """What `run` returns if the head alone decides: then nobody need read the body."""

    claim: Claim | None = None
    """Called for each request. None: no token is needed, and the head names none."""

    condition: Any = None
    """The tags of If-None-Match for a read, the Idempotency-Key for a write; None: the head has no such field."""

    parse: Callable[[bytes], Any] | None = None
    """Returns the condition for a value of that field, None if the value is not valid.

    Heads that differ in this value alone share the plan; llhttp accepts each valid value in any field.
    """

    def admit(self) -> int | Response:
        """Return the number of the client's token, 0 for none, or the refusal."""
        return self.refusal or (self.claim() if self.claim else 0)


def constant(response: Response, scope: Scope | None, cached: bool = False) -> Plan:
    """Return the plan of a request whose response does not depend on its target and body."""
    return Plan(partial(_constant, response), scope, cached)


def refused(response: Response, fields: bytes) -> Plan:
    """Return the plan of a request that the gate refuses."""
    return Plan(partial(_constant, response), None, False, fields, response)


def _constant(response: Response, _condition: Any, _target: bytes, _body: bytes, _by: int) -> Response:
    return response

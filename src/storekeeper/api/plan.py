"""Plans: what a request's head asks for, and whether the gate admits it. Imports `http`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from storekeeper.api.routes import Scope
from storekeeper.http.response import Deferred, Response

Run = Callable[[Any, bytes, bytes, int], Response | Deferred]
"""Carries out a request, given its condition (see `Plan`), target, complete body, and number of its token; raises
StorekeeperError."""


Claim = Callable[[], int | Response]
"""Returns the number of the token that a head claims to have, or the refusal if that is not good now."""


class Plan(msgspec.Struct, frozen=True):
    """What a request's head asks for.

    A pure function of the method, the route, the fields and the settings, so that it may be cached with them: which
    store or page it is, the client's identity, the time and the state of the database have no influence on it.
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
    """Asked each time; None: no token is needed, and none claimed."""

    condition: Any = None
    """What If-None-Match says, in a write's head Idempotency-Key; None: there is none."""

    parse: Callable[[bytes], Any] | None = None
    """Returns the condition that this field's value is, for the same head with the field; None if it is not valid.

    What is valid consists of what llhttp takes in any value. Without `parse`, no such field has a meaning.
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

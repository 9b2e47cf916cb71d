"""The gate decides which requests are admitted; both adapters ask it before the response cache. Imports `http`.

A plan is cached with its head and cached responses are shared by all clients, so neither may depend on the client or
the time: the gate decides what depends on them, for every request anew.
"""

from collections.abc import Iterable
from typing import Literal

from storekeeper.http.response import Response

Scope = Literal["read", "write"]
"""The permission that a request needs; None stands for a request that needs none."""


class Gate:
    """Admits every request."""

    __slots__ = ()

    open = True
    """Whether every request is admitted: then an adapter may leave out the call."""

    def admit(self, headers: Iterable[tuple[bytes, bytes]], scope: Scope | None) -> Response | None:  # noqa: ARG002 - see the class
        """Return the refusal of a request with these header fields, or None."""
        return None

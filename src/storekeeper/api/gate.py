"""The gate: who asks, and may they. Both adapters ask it before the response cache. Imports `http`.

A plan is remembered with its head and cached responses are shared by all clients, so neither may depend on who asks
or when: that is decided here, for every request anew.
"""

from collections.abc import Iterable
from typing import Literal

from storekeeper.http.response import Response

Scope = Literal["read", "write"]
"""What a request needs; None stands for a request that needs nothing."""


class Gate:
    """Admits everybody to everything."""

    __slots__ = ()

    open = True
    """Whether nobody needs to be asked: then an adapter may leave out the call."""

    def admit(self, headers: Iterable[tuple[bytes, bytes]], scope: Scope | None) -> Response | None:  # noqa: ARG002 - see the class
        """Return the refusal of a request with these header fields, or None."""
        return None

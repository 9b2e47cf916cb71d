"""The access log: a line for each response, or for each error, without what only its client may know. Imports `http`.

No path, query, payload or token is in it: the path of a route, and the name of a token.
"""

from collections.abc import Callable

from storekeeper.api.metrics import labels
from storekeeper.events import Event, emit


class AccessLog:
    """Logs responses, or with `errors_only` those that failed. `token_name` returns the name of a token."""

    def __init__(self, token_name: Callable[[int], str], *, errors_only: bool) -> None:
        self._token_name = token_name
        self._errors_only = errors_only

    def observe(
        self,
        route: str | None,
        method: str,
        status: int,
        size: int,
        seconds: float,
        token_number: int,
        client: tuple[str, int] | None,
        request_id: bytes,
        /,
    ) -> None:
        """Log a response; see `http.runtime.Observer`."""
        if self._errors_only and 0 < status < 400:
            return
        path, method = labels(route, method)
        known = {
            "token": self._token_name(token_number) if token_number else "",
            "client": client[0] if client else "",
            "request_id": request_id.decode(),
        }
        more = {name: value for name, value in known.items() if value}
        emit(Event.RESPONSE, route=path, method=method, status=status, seconds=round(seconds, 6), bytes=size, **more)

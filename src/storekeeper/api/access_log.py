"""The access log: a line for each response, or for each error, without what only its client may
know.

No path, query, payload or token is in it: the path of a route, and the name of a token.
"""

from collections.abc import Callable

from storekeeper.api.metrics import labels
from storekeeper.http.runtime import Served
from storekeeper.log.events import Event, emit


def log(served: Served, token_name: Callable[[int], str], *, errors_only: bool) -> None:
    """Log a response, with `errors_only` if it failed. `token_name` returns the name of a token."""
    if errors_only and 0 < served.status < 400:
        return
    path, method = labels(served.route, served.method)
    known = {
        "token": token_name(served.token_number) if served.token_number else "",
        "client": served.client[0] if served.client else "",
        "request_id": served.request_id.decode(),
    }
    more = {name: value for name, value in known.items() if value}
    numbers = {"status": served.status, "seconds": round(served.seconds, 6), "bytes": served.size}
    emit(Event.RESPONSE, route=path, method=method, **numbers, **more)

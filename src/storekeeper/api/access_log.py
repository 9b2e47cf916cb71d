"""The access log: a line for each response, or for each error, without secrets.

It has no path, query, payload or token: only the path of the route, and the name of the token.
"""

from collections.abc import Callable

from storekeeper.api.metrics import labels
from storekeeper.http.runtime import Served
from storekeeper.log.events import Event, emit


def log(served: Served, token_name: Callable[[int], str], *, errors_only: bool) -> None:
    """Log a response; with `errors_only`, only if it failed. `token_name` returns the name of a
    token."""
    if errors_only and 0 < served.status < 400:
        return
    path, method = labels(served.route, served.method)
    fields: dict[str, str | int | float] = {
        "route": path,
        "method": method,
        "status": served.status,
        "seconds": round(served.seconds, 6),
        "bytes": served.size,
    }
    if served.token_number:
        fields["token"] = token_name(served.token_number)
    if served.client:
        fields["client"] = served.client[0]
    if served.request_id:
        fields["request_id"] = served.request_id.decode()
    emit(Event.RESPONSE, **fields)

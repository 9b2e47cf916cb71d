"""The adapter from HTTP to all routes: plans, admits and runs requests."""

from collections.abc import Callable, Mapping
from functools import partial

from msgspec.structs import replace

from storekeeper.api.errors import NOT_FOUND, not_allowed, to_response
from storekeeper.api.gate import Gate
from storekeeper.api.metrics import Metrics
from storekeeper.api.origins import WebPages
from storekeeper.api.plan import PlanCache, Planner, RequestPlan, constant
from storekeeper.api.routes import console, docs, health
from storekeeper.api.routes.changes import Feed
from storekeeper.api.routes.exports import Exports
from storekeeper.api.routes.imports import Imports
from storekeeper.api.routes.keys import Keys
from storekeeper.api.routes.me import Me
from storekeeper.api.routes.stores import Resource
from storekeeper.api.routes.undo import Undos
from storekeeper.api.routing import METHODS, Route, match_route
from storekeeper.api.token_table import TokenTable
from storekeeper.api.users import read_user
from storekeeper.domain.errors import InvalidInput, StorekeeperError
from storekeeper.http.request import BodyLimit, Request
from storekeeper.http.response import Deferred, Fields, Response
from storekeeper.settings import Settings, is_loopback
from storekeeper.storage.collection import Collection

_NO_ROUTE = Route("", "", (), is_open=True)


class Application:
    """Responds to requests. A route without a planner does not exist; with `generic`, a 400 does
    not say what was wrong."""

    def __init__(
        self,
        gate: Gate,
        planners: Mapping[str, Planner],
        *,
        generic: bool = False,
        user_header: str | None = None,
    ) -> None:
        self._user_header = (user_header or "").lower().encode()
        self._planners = planners
        self._plans = PlanCache()
        self._gate = gate
        self.fields = gate.fields
        self._to_response = partial(to_response, generic=generic)

    def plan(self, method: str, route: Route | None, headers: Fields) -> RequestPlan:
        """Return what a request's head asks for, which may be a refusal; header names are in
        lower case."""
        if route is None or route.name not in self._planners:
            return self._gate.guard(constant(NOT_FOUND), method, headers)
        if route.methods and (method not in route.methods or method == "OPTIONS"):
            plan = constant(not_allowed(method, route.methods))
        else:
            try:
                plan = self._planners[route.name](method, headers)
            except InvalidInput as error:
                plan = constant(self._to_response(error))
        plan = replace(plan, route=route.name, scope=route.scope(method))
        return self._gate.guard(self._name_user(plan, headers), method, headers)

    def respond(self, request: Request) -> Response | Deferred:
        """Return the response to a complete request. Raises nothing: a bug must not end a
        connection's others."""
        try:
            plan = request.plan or self._plan(request)
            if plan.claim is not None:
                admitted = plan.claim()
                if isinstance(admitted, Response):
                    return admitted
                request.token_number = admitted
            if request.is_proxied:
                request.user = plan.user
                if plan.user_refusal:
                    return plan.user_refusal
            return plan.run(request)
        except Exception as error:  # noqa: BLE001 - every bug is logged and is a 500
            return self._to_response(error)

    def complete(self, deferred: Deferred) -> Response:
        """Return the response whose future is done. Raises nothing."""
        # The error is not raised here: this frame and the error would refer to each other, and keep
        # all that the request took until the garbage collector comes.
        error = deferred.future.exception()
        try:
            return self._to_response(error) if error else deferred.render(deferred.future.result())
        except Exception as bug:  # noqa: BLE001 - every bug is logged and is a 500
            return self._to_response(bug)

    def early_refusal(self, request: Request) -> Response | None:
        """Plan a request whose body is not read yet; return its refusal if the head
        decides that, or None.

        It may have an `upload` afterwards, for its body.
        """
        plan = self._plan(request)
        admitted = plan.admit()
        if isinstance(admitted, Response):
            return admitted
        try:
            return plan.begin(request) if plan.begin else None
        except StorekeeperError as error:
            return self._to_response(error)

    def body_limit(self, target: bytes) -> BodyLimit:
        """Return how long a body may be, and how long it may take."""
        return (match_route(target.partition(b"?")[0]) or _NO_ROUTE).body

    def _name_user(self, plan: RequestPlan, headers: Fields) -> RequestPlan:
        """Return a plan with the user whom the head names. A read ignores a bad name."""
        if not self._user_header or plan.is_constant:
            return plan
        try:
            return replace(plan, user=read_user(self._user_header, headers))
        except InvalidInput as error:
            if plan.scope != "write":
                return plan
            return replace(plan, user_refusal=self._to_response(error))

    def _plan(self, request: Request) -> RequestPlan:
        """Give a request its plan, which is that of an earlier one with the same head."""
        route = match_route(request.target.partition(b"?")[0])
        head, method = request.head, request.method
        plan = self._plans.get((head, method, route)) if head else None
        if plan is None:
            plan = self.plan(method, route, request.headers)
            if head:
                self._plans.put(head, method, route, plan)
        request.plan = plan
        return plan


def make_application(
    collection: Collection,
    settings: Settings,
    tokens: TokenTable | None,
    *,
    metrics: Metrics | None = None,
    max_listeners: int = 1000,
    is_draining: Callable[[], bool] = lambda: False,
) -> Application:
    """Return the application on a collection, with a planner for each route. Without `tokens`,
    no client needs one.

    At most `max_listeners` clients listen to changes. While `is_draining()`, the service is not
    ready.
    """
    mode = settings.auth or "open"
    # If all reads need a token, a rebound page cannot read.
    hosts = settings.allowed_host if is_loopback(settings.host) and mode != "all" else None
    gate = Gate(WebPages(settings.cors_origin, hosts), mode, tokens)
    feed = Feed(collection, max_listeners=max_listeners)
    exports = Exports(collection)
    if metrics:
        metrics.watch(lambda: len(feed.listeners), "listeners")
        metrics.watch(lambda: feed.refused, "refused", "listeners")
        metrics.watch(lambda: exports.refused, "refused", "exports")
    planners = {
        **Resource(collection, settings).planners,
        **Keys(collection).planners,
        **exports.planners,
        **feed.planners,
        **Imports(collection).planners,
        **Undos(collection).planners,
        **Me(gate).planners,
        **health.planners(
            collection,
            gate.why_unavailable,
            metrics,
            is_draining,
            ready_needs_writes=settings.ready_needs_writes,
        ),
        **docs.PLANNERS,
        **console.PLANNERS,
        "server": lambda method, _: constant(
            not_allowed(method, (*METHODS, "OPTIONS")) if method == "OPTIONS" else NOT_FOUND
        ),
    }
    return Application(
        gate,
        planners,
        generic=settings.error_detail == "generic",
        user_header=settings.user_header,
    )

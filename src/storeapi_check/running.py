"""A run, from the first contact to the exit status: each rule once, in order."""

import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from storeapi_check import beyond, importing, reading, rejecting, responses, sorting, writing
from storeapi_check.client import CannotCheck, Client, Exchange, TooLarge, Unreachable
from storeapi_check.documents import parse
from storeapi_check.report import Report, as_json, as_text, complain
from storeapi_check.service import (
    STORES,
    Response,
    Result,
    Rule,
    Service,
    Skipped,
    Violation,
    brief,
)

CONFORMS, VIOLATES, CANNOT_CHECK = 0, 1, 2
RULES = [
    *reading.RULES,
    *writing.RULES,
    *rejecting.RULES,
    *beyond.RULES,
    *sorting.RULES,
    *importing.RULES,
    *responses.RULES,
]
RULES.sort(key=lambda rule: rule.late)  # rules that look at all responses come last
MAX_ADDED = sum(rule.adds for rule in RULES) + 2
"""How many stores a run adds at most: those of the rules, and two that several rules share."""
Announce = Callable[[int], None]
CLOSED = {
    401: "it requires authentication: send a valid token with --token FILE or STOREKEEPER_TOKEN",
    403: "it forbids the request",
    429: "too many requests",
    503: "unavailable",
}


def run(
    url: str,
    *,
    read_only: bool = False,
    json: bool = False,
    timeout: float = 7.0,
    token: str = "",
    ask: Announce | None = None,
    examples: Sequence[dict[str, Any]] = (),
) -> int:
    """Check the service at `url`, print the report and return the exit status.

    Standard output gets the table, or one JSON document. Each request has `timeout` seconds.
    Unless the list is exactly `examples`, `ask` is called with the number of stores that may be
    added; it raises an exception to refuse.
    """
    path = url.rstrip("/")
    if path.endswith("/api/stores"):  # people copy the address of the list
        url = path.removesuffix("/api/stores")

    def announce(most: int) -> None:
        if ask and not _holds_only(Client(url, timeout, token), list(examples)):
            ask(most)
        complain(
            f"Checking {url}: this adds at most {most} stores, and there is no way to delete one."
        )

    try:
        report = examine(url, read_only=read_only, timeout=timeout, announce=announce, token=token)
    except CannotCheck as error:
        shown = re.sub("//.*@", "//***@", url)  # hides a password
        complain(f"storekeeper: cannot check {shown}: {error}")
        return CANNOT_CHECK
    try:
        sys.stdout.write(as_json(report) + "\n" if json else as_text(report))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe; the verdict stands. Without this, Python would try to
        # flush the rest at exit, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CONFORMS if report.conforms else VIOLATES


def _holds_only(client: Client, stores: list[dict[str, Any]]) -> bool:
    try:
        client.send(exchange := Exchange("GET", STORES))
    except Unreachable:
        return False
    return bool(parse(exchange.content)[0] == stores)


def examine(
    url: str,
    *,
    read_only: bool = False,
    timeout: float = 7.0,
    announce: Announce = lambda _: None,
    token: str = "",
) -> Report:
    """Check every rule, or raise CannotCheck; call `announce` with the most stores to be added."""
    try:
        client = Client(url, timeout, token)
    except ValueError as error:
        raise CannotCheck(str(error)) from None
    return hold(Service(client, read_only), url, announce)


def hold(service: Service, url: str, announce: Announce = lambda _: None) -> Report:
    """Return the report on all rules; raise CannotCheck if the service is gone, or times out
    twice."""
    start = time.monotonic()
    first_contact(service)
    if not service.read_only:
        announce(MAX_ADDED)
        prepare(service)
    results = [run_rule(rule, service) for rule in RULES if not rule.late]
    require_response(service)
    results += [run_rule(rule, service) for rule in RULES if rule.late]
    return Report(url, mode_of(service), results, service.added, time.monotonic() - start)


def mode_of(service: Service) -> str:
    """Return how the service reports validation errors; a read-only run cannot know."""
    if service.read_only:
        return "unknown"
    return "generic" if service.generic else "detailed"


def first_contact(service: Service) -> None:
    """Raise CannotCheck unless the service has the API and lets us in, so that we never write to
    anything else."""
    test, stores = service.test(), service.find(service.marker)
    require_access(stores)
    service.announces = bool(beyond.TAG.fullmatch(stores.header("etag") or ""))
    if not (test.ok or stores.ok):
        reason = f"GET /test gets the status {test.status}, GET /api/stores {stores.status}"
        if place := stores.header("location"):
            reason += f"; it redirects to {brief(place)}"
        raise CannotCheck(f"no Store Resource API there: {reason}")


def prepare(service: Service) -> None:
    """Learn how the service reports errors, and add the store that several checks share; the
    rules find any faults later."""
    for step in (rejecting.detect_mode, Service.settle):
        try:
            step(service)
        except Unreachable as error:
            require_recovery(service, error)
        except Violation:
            require_access(service.seen[-1])


def run_rule(rule: Rule, service: Service) -> Result:
    """Check one rule; return its result."""
    try:
        if rule.writes and service.read_only:
            raise Skipped("it writes, and this run is read-only")
        if rule.detailed and service.generic:
            raise Skipped("the service is in generic mode")
        if rule.announced and not service.announces:
            raise Skipped("the service does not announce it")
        rule.check(service)
    except Skipped as reason:
        return Result(rule, "skipped", str(reason))
    except Violation as found:
        return Result(rule, "failed", found.reason, found.exchange)
    except Unreachable as error:
        require_recovery(service, error)
        return Result(rule, "failed", f"no response: {error.reason}", error.exchange)
    return Result(rule, "passed")


def require_recovery(service: Service, error: Unreachable) -> None:
    """Raise CannotCheck unless the service responds again after an error; also at the second
    timeout."""
    if isinstance(error.__cause__, TimeoutError):
        service.timeouts += 1
    if isinstance(error.__cause__, TooLarge) or service.timeouts > 1:
        raise error
    require_response(service)


def require_response(service: Service) -> None:
    """Raise CannotCheck unless the service still responds at all."""
    try:
        service.test()
    except Unreachable as error:
        raise CannotCheck(f"it stopped responding: {error}") from None


def require_access(response: Response) -> None:
    """Raise CannotCheck if the service denies us access."""
    if closed := CLOSED.get(response.status):
        raise CannotCheck(
            f"{response.method} /api/stores gets the status {response.status}: {closed}"
        )

"""A run from first contact to report: each rule once, in its order; this package only."""

import time
from collections.abc import Callable

from storekeeper.conformance import beyond, reading, rejecting, responses, writing
from storekeeper.conformance.client import Client, TimedOut, TooLarge, Unreachable
from storekeeper.conformance.profile import observe
from storekeeper.conformance.report import Report
from storekeeper.conformance.rules import Result, Rule, Skipped
from storekeeper.conformance.service import Response, Service, Violation

RULES: list[Rule] = sorted(  # those that look at all responses at the end
    [*reading.RULES, *writing.RULES, *rejecting.RULES, *beyond.RULES, *responses.RULES], key=lambda rule: rule.late
)
MOST_ADDED = (
    sum(rule.adds for rule in RULES) + 2
)  # stores: those of the rules, and the two that several of them share
Announce = Callable[[int], None]
CLOSED = {
    401: "it wants authentication: send a token with --token FILE, or in STOREKEEPER_TOKEN",
    403: "it forbids it",
    429: "too many requests",
    503: "unavailable",
}


class CannotCheck(Exception):
    """Nothing can be said of the service: the message says why."""


def examine(
    url: str, *, read_only: bool = False, timeout: float = 7.0, announce: Announce | None = None, token: str = ""
) -> Report:
    """Hold the service at `url` to every rule, or CannotCheck; `announce` is told how many stores it adds at most."""
    try:
        client = Client(url, timeout, token)
    except ValueError as error:
        raise CannotCheck(str(error)) from None
    return Run(Service(client, read_only)).report(url, announce)


class Run:
    """Goes through the rules; a service that is gone, or slow twice, ends it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.slow = 0

    def report(self, url: str, announce: Announce | None = None) -> Report:
        """Return what comes of all rules."""
        service, start = self.service, time.monotonic()
        self.first_contact()
        if not service.read_only:
            if announce:
                announce(MOST_ADDED)
            self.prepare()
        results = [self.result(rule) for rule in RULES if not rule.late]
        profile = observe(service)
        self.alive()
        results += [self.result(rule) for rule in RULES if rule.late]
        mode = "unknown" if service.read_only else "generic" if service.generic else "detailed"
        return Report(url, mode, results, profile, service.added, time.monotonic() - start)

    def first_contact(self) -> None:
        """CannotCheck unless this is the service at all and lets us in: nothing is written to anything else."""
        try:
            test = self.service.test()
            stores = self.service.find(self.service.marker)
        except Unreachable as error:
            raise CannotCheck(said(error)) from None
        admitted(stores)
        self.service.announces = beyond.is_announced(stores)
        if not (test.ok or stores.ok):
            statuses = f"GET /test gets the status {test.http.status}, GET /api/stores {stores.http.status}"
            raise CannotCheck(f"no Store Resource API there: {statuses}")

    def prepare(self) -> None:
        """Learn how errors look, and add the store that several checks share; what is wrong the rules will tell."""
        for step in (rejecting.detect_mode, Service.settle):
            try:
                step(self.service)
            except Unreachable as error:
                self.lost(error)
            except Violation:
                admitted(self.service.seen[-1])

    def result(self, rule: Rule) -> Result:
        """Return what comes of one rule."""
        try:
            if rule.writes and self.service.read_only:
                raise Skipped("it writes, and this run is read-only")
            if rule.detailed and self.service.generic:
                raise Skipped("the service is in generic mode")
            if rule.announced and not self.service.announces:
                raise Skipped("the service does not announce it")
            rule.check(self.service)
        except Skipped as reason:
            return Result(rule, "skipped", str(reason))
        except Violation as found:
            return Result(rule, "failed", str(found), found.exchange)
        except Unreachable as error:
            self.lost(error)
            return Result(rule, "failed", f"no response: {error}", error.exchange)
        return Result(rule, "passed")

    def lost(self, error: Unreachable) -> None:
        """Go on, since an exchange without a response breaks its rule; CannotCheck when the whole service is gone."""
        self.slow += isinstance(error, TimedOut)
        if isinstance(error, TooLarge) or self.slow > 1:
            raise CannotCheck(said(error)) from None
        self.alive()

    def alive(self) -> None:
        """CannotCheck unless the service still responds at all."""
        try:
            self.service.test()
        except Unreachable as error:
            raise CannotCheck(f"it stopped responding: {said(error)}") from None


def admitted(response: Response) -> None:
    """CannotCheck when the service keeps us out."""
    if closed := CLOSED.get(response.http.status):
        method = response.http.method
        raise CannotCheck(f"{method} /api/stores gets the status {response.http.status}: {closed}")


def said(error: Unreachable) -> str:
    """Return why there is no response, with the request that got none."""
    return f"{error} ({error.exchange.method} {error.exchange.target})" if error.exchange else str(error)

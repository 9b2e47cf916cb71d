"""A short run of the fuzzer (`make fuzz-http` is a long one), and broken builds that it has to find."""

import asyncio
import re
import subprocess
import sys
from collections import Counter
from itertools import count
from typing import Any

import pytest
import uvloop
from msgspec.structs import replace

from storekeeper.commands import Before, Command, Create
from storekeeper.http import request as heads
from storekeeper.http.connection import Connection
from storekeeper.http.reader import Phase, RequestReader
from storekeeper.http.request import Request
from storekeeper.http.response import Response
from storekeeper.sqlite import SqliteCollection, committer
from tests import ROOT
from tests.campaigns import fuzz_http
from tests.campaigns.fuzz_http import Found, fuzz_inside, requests_to_damage
from tests.campaigns.mutations import Cases
from tests.harness.cases import thorough
from tests.harness.stores import a_store_with

SEED = 20261121
ENOUGH = 3000
"""Requests within which each of the broken builds is found."""


@pytest.mark.parametrize("requests", [1500, *thorough(ENOUGH, 20_000)])
def test_nothing_that_must_not_happen_does(requests: int) -> None:
    """Inside this process and over sockets; what is found names its seed and shows its bytes."""
    command = [sys.executable, "-m", fuzz_http.__name__, f"--requests={requests}", f"--seed={SEED}"]
    # In a process of its own: not covered, it takes a third of the time.
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["fuzz-http-inside", "fuzz-http-sockets"]


# Broken builds.


def takes_any_host(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(heads, "_HOST", re.compile(rb"(?s).*"))


def takes_any_number_of_fields(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(heads, "MAX_FIELDS", 1000)


def fails_at_a_byte(patch: pytest.MonkeyPatch) -> None:
    check = heads.check

    def raises(request: Request) -> Response | None:
        if any(b"\xff" in value for _, value in request.headers):
            raise RuntimeError("a bug")
        return check(request)

    patch.setattr(heads, "check", raises)


def responses_out_of_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Connection, "_accept", lambda self, request: self._begin(request))


def carries_out_what_it_refuses(patch: pytest.MonkeyPatch) -> None:
    refuse = RequestReader.refuse

    def carries_out(self: RequestReader, response: Response, request: Request | None = None) -> None:
        if self.phase is Phase.BODY and self._request is not None:
            self._request.body = bytes(self._body)
            self._accept(self._request)
        refuse(self, response, request)

    patch.setattr(RequestReader, "refuse", carries_out)


def creates_twice(patch: pytest.MonkeyPatch) -> None:
    write = SqliteCollection.write

    def twice(self: SqliteCollection, command: Command) -> Any:
        if isinstance(command, Create):
            write(self, command)
        return write(self, command)

    patch.setattr(SqliteCollection, "write", twice)


def acknowledges_without_writing(patch: pytest.MonkeyPatch) -> None:
    write = SqliteCollection.write

    def pretends(self: SqliteCollection, command: Command) -> Any:
        if isinstance(command, Create):
            return write(self, command)
        future = asyncio.get_running_loop().create_future()
        future.set_result(a_store_with(command.id, command.payload, 1, "epoch"))
        return future

    patch.setattr(SqliteCollection, "write", pretends)


def writes_what_is_there_already(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(committer, "Before", lambda *before: replace(Before(*before), equal=()))


def forgets_keys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(committer, "Before", lambda *before: replace(Before(*before), remembered={}))


def keeps_connections_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Connection, "sweep", lambda _self, _now: None)


def forgets_to_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Connection, "advance", lambda _self: None)
    patch.setattr(fuzz_http, "MAX_TICKS", 500)


def keeps_what_it_has_read(patch: pytest.MonkeyPatch) -> None:
    made = Connection.connection_made
    kept = []

    def keeps(self: Connection, transport: Any) -> None:
        kept.append(b"x" * 2**17)
        made(self, transport)

    patch.setattr(Connection, "connection_made", keeps)


@pytest.mark.parametrize(
    ("break_it", "found"),
    [
        (takes_any_host, "a request to Host .* was carried out"),
        (takes_any_number_of_fields, "fields were carried out"),
        (fails_at_a_byte, "status=500"),
        # As it comes: it may also be the body of another response.
        (
            responses_out_of_order,
            r"differently|\d changes acknowledged, \d done|hangs|answered with|JSON|version ==",
        ),
        (carries_out_what_it_refuses, "was carried out|a response to nothing that was asked"),
        (creates_twice, "1 changes acknowledged, 2 done|2 changes acknowledged, 3 done"),
        (acknowledges_without_writing, r"\d changes acknowledged, \d done"),
        (writes_what_is_there_already, "0 changes acknowledged, 1 done"),
        (forgets_keys, "key b'again' was not replayed|a bug"),
        (keeps_connections_for_ever, "the connection stays open for ever"),
        (forgets_to_go_on, "the connection hangs"),
        (keeps_what_it_has_read, "memory grew by"),
    ],
)
def test_a_broken_build_is_found(break_it: Any, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it(monkeypatch)
    cases = Cases(requests_to_damage(), SEED)
    with pytest.raises((Found, AssertionError), match=found):
        uvloop.run(fuzz_inside(cases, count(), ENOUGH, Counter()))

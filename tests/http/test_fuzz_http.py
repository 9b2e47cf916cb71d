"""A short run of the fuzzer (`make fuzz-http` is a long one), and broken builds that it must
find."""

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

from storekeeper.domain import commands
from storekeeper.domain.commands import Before, Command, Create, Replace
from storekeeper.http import request as heads
from storekeeper.http.connection import Connection
from storekeeper.http.reader import Phase, RequestReader
from storekeeper.http.request import Request
from storekeeper.http.response import Response
from storekeeper.storage.sqlite import SqliteCollection, writer
from tests import ROOT
from tests.campaigns import fuzz_http
from tests.campaigns.fuzz_http import Found, fuzz_inside, requests_to_damage
from tests.campaigns.mutations import Cases
from tests.harness.cases import thorough
from tests.harness.stores import a_store_with

SEED = 20261121
ENOUGH = 3000
"""Requests within which each of the broken builds is found."""


@pytest.mark.parametrize("requests", [1000, *thorough(ENOUGH, 20_000)])
def test_nothing_that_must_not_happen_does(requests: int) -> None:
    """Inside this process and over sockets; what is found names its seed and shows its bytes."""
    command = [sys.executable, "-m", fuzz_http.__name__, f"--requests={requests}", f"--seed={SEED}"]
    # In a process of its own: not covered, it takes a third of the time.
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "fuzz-http-inside",
        "fuzz-http-sockets",
    ]


# Broken builds.


def fails_at_a_byte(request: Request, check: Any = heads.check) -> Response | None:
    if any(b"\xff" in value for _, value in request.headers):
        raise RuntimeError("a bug")
    result: Response | None = check(request)
    return result


def carries_out(self: RequestReader, *refusal: Any, refuse: Any = RequestReader.refuse) -> None:
    if self.phase is Phase.BODY and self._request is not None:
        self._request.body = bytes(self._body)
        self._complete = self._request
    refuse(self, *refusal)


def twice(self: SqliteCollection, command: Command, write: Any = SqliteCollection.write) -> Any:
    if isinstance(command, Create):
        write(self, command)
    return write(self, command)


def pretends(self: SqliteCollection, command: Command, write: Any = SqliteCollection.write) -> Any:
    if not isinstance(command, Replace):
        return write(self, command)
    future = asyncio.get_running_loop().create_future()
    future.set_result(a_store_with(command.id, command.payload, 1, "epoch"))
    return future


def keeps_bytes(self: Connection, transport: Any, made: Any = Connection.connection_made) -> None:
    KEPT.append(b"x" * 2**17)
    made(self, transport)


KEPT: list[bytes] = []
BROKEN: dict[str, tuple[Any, str, Any, str]] = {
    "takes any host": (
        heads,
        "_HOST",
        re.compile(rb"(?s).*"),
        "a request to Host .* was carried out",
    ),
    "takes any number of fields": (heads, "MAX_FIELDS", 1000, "fields were carried out"),
    "fails at a byte": (heads, "check", fails_at_a_byte, "status=500"),
    # As it comes: it may also be the body of another response.
    "responses out of order": (
        *(Connection, "busy", False),
        r"differently|\d changes acknowledged|hangs|answered with|JSON|version ==|broken off",
    ),
    "carries out what it refuses": (
        *(RequestReader, "refuse", carries_out),
        "was carried out|a response to nothing that was asked|broken off",
    ),
    "creates twice": (
        *(SqliteCollection, "write", twice),
        "1 changes acknowledged, 2 done|2 changes acknowledged, 3 done",
    ),
    "acknowledges without writing": (
        SqliteCollection,
        "write",
        pretends,
        r"\d changes acknowledged, \d done",
    ),
    "writes what is there already": (
        *(writer, "Before", lambda *before: replace(Before(*before), equal=())),
        "0 changes acknowledged, 1 done",
    ),
    "forgets keys": (
        *(writer, "Before", lambda *before: replace(Before(*before), remembered={})),
        "key b'again' was not replayed|a bug",
    ),
    "keeps connections for ever": (
        *(Connection, "sweep", lambda _self, _now: None),
        "the connection stays open for ever",
    ),
    "forgets to continue": (Connection, "advance", lambda _self: None, "the connection hangs"),
    "keeps what it has read": (Connection, "connection_made", keeps_bytes, "memory grew by"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_build_is_found(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    *change, found = BROKEN[broken]
    monkeypatch.setattr(*change)
    monkeypatch.setattr(fuzz_http, "MAX_TICKS", 500)
    requests = requests_to_damage()
    if broken == "ignores If-Match":  # only a few of all requests could show that
        requests = [each for each in requests if b"If-Match" in each]
    cases = Cases(requests, SEED)
    with pytest.raises((Found, AssertionError), match=found):
        uvloop.run(fuzz_inside(cases, count(), ENOUGH, Counter()))
    KEPT.clear()


def test_a_build_that_ignores_if_match_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few of all requests have that field, so only these are damaged here."""
    monkeypatch.setattr(commands, "matches", lambda *_: True)
    with_tag = [data for data in requests_to_damage() if b'If-Match: "' in data]
    with pytest.raises((Found, AssertionError), match=r"was done over \"\d"):
        uvloop.run(fuzz_inside(Cases(with_tag, SEED), count(), ENOUGH, Counter()))

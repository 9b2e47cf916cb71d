"""A token is revoked at the full load that wrk makes: what is sent once the command has returned is not served."""

import shutil
import signal
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness import weakened
from tests.harness.databases import KINDS
from tests.harness.machine import need
from tests.harness.process import TIMEOUT, serving
from tests.harness.process import run as run_command
from tests.harness.tokens import add_token

SECONDS = 3.0
"""How long there is load before the token is revoked, which takes 2 s more; and then again."""

# It asks for store 1, and for store 2 once the file is there: so each response says when its request was sent.
SCRIPT = """
local before, after, revoked, served, refused, other = nil, nil, false, 0, 0, 0
wrong, result = 0, ""
function init(args)
  path = args[1]
  before = wrk.format("GET", "/api/stores/1")
  after = wrk.format("GET", "/api/stores/2")
end
function request()
  if not revoked then
    local file = io.open(path)
    if file then file:close(); revoked = true end
  end
  return revoked and after or before
end
function response(status, headers, body)
  if status == 200 and body:find('"id":2', 1, true) then wrong = wrong + 1 end
  if status == 200 then served = served + 1 elseif status == 401 then refused = refused + 1 else other = other + 1 end
  result = served .. " " .. refused .. " " .. other .. " " .. wrong
end
local threads = {}
function setup(thread) table.insert(threads, thread) end
function done() print("counted " .. threads[1]:get("result")) end
"""


@dataclass
class Seen:
    """How many requests were served, refused, or got another response; and served though they were sent too late."""

    served: int
    refused: int
    other: int
    wrong: int


def revoke_at_full_load(kind: str, tmp_path: Path, seconds: float, **how: Any) -> Seen:
    """Revoke a token after so many seconds of load; it goes on for as long."""
    wrk = shutil.which("wrk") or need("wrk", "wrk is not installed (Debian: apt-get install wrk)")
    script, flag = tmp_path / "revoked.lua", tmp_path / "revoked"
    script.write_text(SCRIPT)
    with ExitStack() as stack:
        url = stack.enter_context(KINDS[kind](tmp_path)).url
        text = add_token(url, "load", "read")
        arguments = [("--workers=2",)] if kind == "sqlite" else [()] * 2
        ports = [
            stack.enter_context(serving(tmp_path, "--auth=all", "--examples", *more, database=url, **how)).port
            for more in arguments
        ]
        began = time.monotonic()
        clients = [
            subprocess.Popen(
                [wrk, "-t1", "-c32", f"-d{TIMEOUT:.0f}s", "-H", f"Authorization: Bearer {text}", "-s", str(script),
                 f"http://127.0.0.1:{port}", "--", str(flag)],
                stdout=subprocess.PIPE, text=True,
            )
            for port in ports
        ]  # fmt: skip
        time.sleep(seconds)
        assert run_command("token", "revoke", "load", "--database", url).returncode == 0
        flag.touch()
        loaded = time.monotonic() - began
        time.sleep(seconds)
        for client in clients:
            client.send_signal(signal.SIGINT)  # wrk ends, and says what it counted
        said = [client.communicate(timeout=TIMEOUT)[0] for client in clients]
    counts = [[int(word) for word in each.rpartition("counted ")[2].split()] for each in said]
    seen = Seen(*(sum(column) for column in zip(*counts, strict=True)))
    print(f"{kind}: {seen.served / loaded:.0f} requests/s served, then {seen.refused} refused, {seen.wrong} wrongly")
    return seen


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_sent_once_revoke_has_returned_is_served_at_full_load(kind: str, tmp_path: Path) -> None:
    """By two workers on SQLite, and by two instances on PostgreSQL."""
    seen = revoke_at_full_load(kind, tmp_path, SECONDS)
    assert seen.wrong == seen.other == 0
    assert seen.served > 10_000 * SECONDS
    assert seen.refused > 10_000


@pytest.mark.thorough
def test_a_token_that_is_served_at_full_load_once_it_is_revoked_would_be_seen(tmp_path: Path) -> None:
    change = weakened.environment("knows_tokens_for_ever")
    seen = revoke_at_full_load("sqlite", tmp_path, 1.0, env=change, program=weakened.PROGRAM)
    assert seen.wrong > 100
    assert seen.refused == 0

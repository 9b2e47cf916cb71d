"""Posts of changes: signed, in order, each until it is accepted; and what is refused at a start."""

import base64
import fcntl
import hmac
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from storekeeper.cli import webhooks
from storekeeper.cli.cursors import save as save_cursor
from storekeeper.client import Change, Reset, Store
from storekeeper.client import webhooks as posts
from storekeeper.domain.stores import Payload
from storekeeper.storage import databases
from tests.harness.client import load
from tests.harness.command import run
from tests.harness.http_server import QuietHandler, http_server
from tests.harness.process import serving

KEY = b"a key of thirty-two letters, yes"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


class Killed(BaseException):
    """Stands for a kill: nothing of the program runs after it."""


class Hook:
    """A receiver that checks each signature, and refuses the first two attempts of each post."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, Any]] = []
        self.attempts: dict[str, int] = {}
        self.wrong: list[str] = []

    def take(self, fields: Any, body: bytes) -> int:
        """Return the status of the response to a post."""
        id, timestamp = fields["webhook-id"], fields["webhook-timestamp"]
        signed = f"{id}.{timestamp}.".encode() + body
        right = "v1," + base64.b64encode(hmac.digest(KEY, signed, "sha256")).decode()
        if right not in fields["webhook-signature"].split(" "):
            self.wrong.append(id)
        self.attempts[id] = self.attempts.get(id, 0) + 1
        if self.attempts[id] <= 2:
            return (401, 503)[self.attempts[id] - 1]
        self.taken.append((id, json.loads(body)))
        return 204


@contextmanager
def receiving(hook: Hook) -> Iterator[str]:
    """Serve a hook; yield its address."""

    class Handler(QuietHandler):
        def do_POST(self) -> None:  # noqa: N802 - as http.server calls it
            body = self.rfile.read(int(self.headers["content-length"]))
            self.respond(hook.take(self.headers, body))

    with http_server(Handler) as port:
        yield f"http://127.0.0.1:{port}/secret-path"


def test_it_leaves_out_no_change_whenever_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(posts, "PAUSES", (0.001,))
    url, hook = f"sqlite:///{tmp_path}/stores.db", Hook()
    load(url, (Payload(f'Store "{number}"', "back\\slash\n\u2028") for number in range(1, 5)))
    (tmp_path / "secret").write_text(f"whsec_{'b' * 32}\n{SECRET}\n")

    def until(is_last: Callable[[str], bool], *, keeps: bool) -> None:
        """Post until a cursor is to be saved; then kill, after it was saved or before."""

        def save(file: Path | None, cursor: str) -> None:
            if keeps or not is_last(cursor):
                save_cursor(file, cursor)
            if is_last(cursor):
                raise Killed

        monkeypatch.setattr(webhooks, "save", save)
        files = {"secret_file": tmp_path / "secret", "cursor_file": tmp_path / "cursor"}
        with pytest.raises(Killed):
            webhooks.webhooks(address, service=service, begin="0", **files)

    with receiving(hook) as address, serving(tmp_path, database=url) as started:
        service = f"http://127.0.0.1:{started.port}"
        until(lambda cursor: cursor.startswith("2."), keeps=False)
        until(lambda cursor: cursor.startswith("4."), keeps=True)
        epoch = databases.epoch(url, renew=True)
        until(lambda cursor: cursor == f"4.{epoch}", keeps=True)
        load(url, [Payload("After the restore")])
        until(lambda cursor: cursor.startswith("5."), keeps=True)
    ids = [id.partition(".")[0] for id, _ in hook.taken]
    assert ids == ["1", "2", "2", "3", "4", "4", "5"]
    assert hook.taken[1] == hook.taken[2]
    assert hook.taken[5][1]["type"] == "list.reset"
    assert hook.taken[5][1]["data"] == {"cursor": f"4.{epoch}"}
    assert hook.taken[6][0] == f"5.{epoch}"
    first = hook.taken[0][1]
    store = {"id": 1, "name": 'Store "1"', "address": "back\\slash\n\u2028"}
    assert first["type"] == "store.created"
    assert first["data"] == {"seq": 1, "store": store, "previous": None}
    assert hook.wrong == []
    told = capsys.readouterr().err
    assert "was not accepted by 127.0.0.1: status 401; it is posted again" in told
    assert "secret-path" not in told


def test_a_post_is_signed_as_the_standard_has_it() -> None:
    """The example that its libraries are tested with."""
    [secret] = posts.read_secrets("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
    event = Reset("msg_p5jXN8AQM9LWM0D4loKWxJek")
    fields = posts.fields_of(event, b'{"test": 2432232314}', [secret, secret], 1614265330.9)
    signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert fields["webhook-signature"] == f"{signature} {signature}"
    assert fields["webhook-timestamp"] == "1614265330"
    change = Change("7.a", 7, "replaced", "at", "anna", Store(1, "A"), Store(1, "B", "C"))
    data = json.loads(posts.body_of(change, 0.0))["data"]
    assert (data["by"], data["previous"]) == ("anna", {"name": "B", "address": "C"})
    reset = json.loads(posts.body_of(event, 0.0))
    assert reset["timestamp"] == "1970-01-01T00:00:00.000Z"


REFUSED = [
    # what is wrong, the options that make it so, what the line says
    ("no beginning", {}, "say where to begin, with --from now"),
    ("no cursor", {"--from": "yesterday"}, "--from: not a cursor"),
    ("no address", {"url": "shop.example"}, "not an http or https URL"),
    ("no service", {"--service": "127.0.0.1"}, "--service: not an http or https URL"),
    ("no secret file", {"--secret-file": "none"}, "No such file"),
    ("an empty secret", {"secret": "\n"}, "has no secret"),
    ("a short secret", {"secret": "whsec_AAAA"}, "24 to 64 bytes in base64"),
    ("a bare secret", {"secret": SECRET.removeprefix("whsec_")}, "a secret is whsec_ and"),
    ("a spoiled cursor file", {"cursor": "x"}, "cursor: not a cursor: 'x'"),
]


@pytest.mark.parametrize(("wrong", "said"), [row[1:] for row in REFUSED], ids=lambda _: "")
def test_a_start_that_cannot_post_says_why_in_one_line(
    tmp_path: Path, wrong: dict[str, str], said: str
) -> None:
    (tmp_path / "secret").write_text(wrong.get("secret", SECRET))
    if "cursor" in wrong:
        (tmp_path / "cursor").write_text(wrong["cursor"])
    options = {
        "--secret-file": f"{tmp_path}/secret",
        "--cursor-file": f"{tmp_path}/cursor",
        **{name: value for name, value in wrong.items() if name.startswith("--")},
    }
    words = [word for option in options.items() for word in option]
    done = run("webhooks", wrong.get("url", "http://127.0.0.1:9/"), *words)
    [line] = done.stderr.decode().splitlines()
    assert (done.returncode, done.stdout) == (2, b"")
    assert said in line


def test_two_processes_do_not_post_from_one_cursor_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    options = ("--secret-file", f"{tmp_path}/secret", "--cursor-file", f"{tmp_path}/cursor")
    with (tmp_path / "cursor.lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        done = run("webhooks", "http://127.0.0.1:9/", *options, "--from", "0")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"another process posts from it" in done.stderr
    assert not (tmp_path / "cursor").exists()

"""`storekeeper token` on every kind of database, tokens in copies, and the token of `storekeeper
check`."""

import asyncio
import json
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from storekeeper.cli import terminal
from storekeeper.cli import tokens as commands
from storekeeper.domain.commands import Create, Replace
from storekeeper.domain.errors import Missing
from storekeeper.domain.stores import Payload
from storekeeper.domain.tokens import USED_INTERVAL, Token, hashed, is_well_formed
from storekeeper.storage import databases
from storekeeper.storage.postgres.schema import COLLECTION_TABLE
from storekeeper.storage.tokens import read_tokens
from tests.harness.command import run as run_command
from tests.harness.databases import Database, Sqlite, handle, make, postgres
from tests.harness.loading import add_all
from tests.harness.process import refused, serving
from tests.harness.tokens import add_token, add_tokens, now


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """In most of these tests, no service needs to notice anything."""
    monkeypatch.setattr(commands, "SETTLE_DELAY", 0.0)


@pytest.fixture
def database(new_database: Callable[[], Database]) -> Database:
    """An empty database of the test's own, in which there may be tokens."""
    return prepared(new_database())


def prepared(database: Database) -> Database:
    make(database.url)
    return database


def add(database: Database, *arguments: str) -> str:
    done = run_command("token", "add", *arguments, "--database", database.url)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().strip()


def test_who_is_the_user_who_logged_in_whatever_user_the_command_runs_as(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operators run commands as the service's user: `storekeeper` of the units does."""
    root, me = pwd.getpwuid(0).pw_name, pwd.getpwuid(os.getuid()).pw_name
    login = tmp_path / "loginuid"
    monkeypatch.setattr(terminal, "_LOGIN", login)
    for text, user in (("", me), ("4294967295", me), ("0", root), ("3999999998", "3999999998")):
        login.write_text(text)
        assert terminal.system_user() == user
    login.unlink()
    assert terminal.system_user() == me


def good(database: Database) -> list[tuple[str, bool]]:
    """Return the names of all tokens, each with whether it is not revoked."""
    return [(token.name, token.revoked is None) for token in read_tokens(database.url)]


def test_a_token_is_printed_once_and_only_its_hash_is_kept(database: Database) -> None:
    began = now()
    done = run_command(
        "token", "add", "ci", "--scope=write", "--expires=90d", "--database", database.url
    )
    text = done.stdout.decode().split()[-1]
    assert done.stdout.decode() == f"{text}\n"
    assert is_well_formed(text.encode())
    assert b"Token ci may write until 20" in done.stderr
    assert b"if it runs with --auth writes or --auth all" in done.stderr
    assert databases.database(database.url).name.encode() in done.stderr
    assert text.encode() not in done.stderr
    (token,) = read_tokens(database.url)
    assert token == Token(
        1,
        "ci",
        "write",
        hashed(text.encode()),
        token.created,
        token.created + 90 * 86_400_000,
        created_by=terminal.system_user(),
    )
    assert began <= token.created <= now()
    listed = run_command("token", "list", "--database", database.url)
    assert text.encode() not in listed.stdout + listed.stderr
    header, row = listed.stdout.decode().splitlines()
    assert header.split() == [
        *("NAME", "SCOPE", "STATE", "ADDED", "BY", "EXPIRES", "USED", "REVOKED", "BY"),
    ]
    assert row.split()[:3] == ["ci", "write", "active"]
    assert row.split()[-1] == "never"


def test_the_list_says_who_added_and_revoked_a_token_and_when(database: Database) -> None:
    user = pwd.getpwuid(os.getuid()).pw_name
    for name in ("till", "wall"):
        add(database, name, "--scope=read")
    assert run_command("token", "revoke", "till", "--database", database.url).returncode == 0
    with databases.write_session(database.url) as session:  # as the version before this column
        session.write("UPDATE tokens SET created_by = NULL WHERE number = 2")
    listed = run_command("token", "list", "--database", database.url).stdout.decode()
    till, wall = (line.split() for line in listed.splitlines()[1:])
    assert (till[2], till[5], till[-1]) == ("revoked", user, user)
    assert wall[2:3] + wall[5:] == ["active", "unknown", "never", "never"]
    printed = run_command("token", "list", "--json", "--database", database.url).stdout
    first, second = json.loads(printed)["tokens"]
    assert list(first) == [
        *("name", "scope", "state", "added", "addedBy", "expires", "used", "revoked"),
        "revokedBy",
    ]
    assert (first["addedBy"], first["revokedBy"], first["state"]) == (user, user, "revoked")
    assert first["revoked"].startswith("20")
    assert (second["addedBy"], second["revoked"], second["revokedBy"]) == (None, None, None)


def test_a_link_opens_the_console_with_the_token(database: Database) -> None:
    link = add(database, "anna", "--link", "https://stores.example/")
    address, _, text = link.partition("#token=")
    assert address == "https://stores.example/console/"
    (token,) = read_tokens(database.url)
    assert (token.scope, token.hash) == ("write", hashed(text.encode()))


def test_a_token_that_cannot_be_printed_is_said_to_be_there(tmp_path: Path) -> None:
    database = prepared(Sqlite(tmp_path))
    reading, writing = os.pipe()
    os.close(reading)
    with Path("/dev/full").open("wb") as full, os.fdopen(writing, "wb") as pipe:
        for name, output, reason in (
            ("ci", full, "No space left on device"),
            ("ci-2", pipe, "Broken pipe"),
        ):
            done = run_command(
                "token", "add", name, "--scope=read", "--database", database.url, stdout=output
            )
            said = (
                f"Token {name} was added but cannot be printed ({reason}): revoke it, and"
                " add one of another name"
            )
            assert refused(done) == [f"storekeeper: {said}"]
    assert good(database) == [("ci", True), ("ci-2", True)]


def fails_at_commit(event: str, table: str) -> bytes:
    return f"""
      CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE 'at the commit'; END $$;
      CREATE CONSTRAINT TRIGGER fail AFTER {event} ON {table} DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION fail()""".encode()


@pytest.mark.parametrize(
    "command", ["token add new --scope=read", "token revoke ci", "epoch --new"]
)
def test_what_perhaps_was_done_is_said_to_be_unknown(command: str) -> None:
    with postgres().database() as url:
        add_token(url, "ci", "read")
        with psycopg.connect(url) as connection:
            connection.execute(fails_at_commit("INSERT OR UPDATE", "tokens"))
            connection.execute(fails_at_commit("UPDATE", COLLECTION_TABLE))
        (line,) = refused(run_command(*command.split(), "--database", url))
    lost = "The connection was lost during COMMIT"
    assert line == f"storekeeper: {lost}; it is unknown whether the command was carried out"


@pytest.mark.parametrize("arguments", [("add", "new", "--scope=read"), ("revoke", "ci")])
def test_tokens_that_another_session_has_locked_are_not_waited_for_without_end(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storekeeper.storage.sessions.LOCK_TIMEOUT", 0.05)
    with postgres().database() as url:
        add_token(url, "ci", "read")
        with psycopg.connect(url) as other:
            other.execute("SELECT 1 FROM tokens FOR UPDATE")
            other.execute("LOCK TABLE tokens IN SHARE MODE")
            done = run_command("token", *arguments, "--database", url)
        (line,) = refused(done)
        assert line.startswith("storekeeper: canceling statement due to lock timeout")
        assert [(token.name, token.revoked) for token in read_tokens(url)] == [("ci", None)]


def test_a_name_is_given_once_for_ever(database: Database) -> None:
    add(database, "ci", "--scope=read")
    for _ in range(2):
        done = run_command("token", "add", "ci", "--scope=write", "--database", database.url)
        assert refused(done) == [
            "storekeeper: Token name ci is or was in use; names cannot be reused"
        ]
        revoked = run_command("token", "revoke", "ci", "--database", database.url)
        assert revoked.said.splitlines() == [
            "Token ci is revoked: within 0 s, requests with it are refused",
            "Requests with token ci are now refused",
        ]
    first = read_tokens(database.url)[0].revoked
    assert first is not None
    assert run_command("token", "list", "--database", database.url).stdout.split()[11] == b"revoked"
    add(database, "next", "--scope=read")
    assert [(token.number, token.name) for token in read_tokens(database.url)] == [
        (1, "ci"),
        (2, "next"),
    ]


def test_the_list_says_which_tokens_are_good(tmp_path: Path) -> None:
    add_tokens(tmp_path)
    _, *rows = (
        run_command("token", "list", f"--database=sqlite:///{tmp_path}/stores.db")
        .stdout.decode()
        .splitlines()
    )
    states = {row.split()[0]: row.split()[2] for row in rows}
    assert states == {
        "revoked": "revoked",
        "expired": "expired",
        "read": "active",
        "write": "active",
    }


@pytest.mark.parametrize(
    ("arguments", "told", "active"),
    [
        (["add", "new", "--scope=read"], "Token new may read in ", [("ci", True), ("new", True)]),
        (
            ["revoke", "ci"],
            "Token ci is revoked: within 2 s, requests with it are refused",
            [("ci", False)],
        ),
    ],
)
def test_they_wait_until_every_process_knows_it_and_who_interrupts_that_is_told_what_was_done(
    arguments: list[str],
    told: str,
    active: list[tuple[str, bool]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        raise KeyboardInterrupt

    database = prepared(Sqlite(tmp_path))
    add(database, "ci", "--scope=read")
    monkeypatch.setattr(commands, "SETTLE_DELAY", 2.0)
    monkeypatch.setattr("storekeeper.cli.tokens.time.sleep", sleep)
    done = run_command("token", *arguments, "--database", database.url)
    assert (done.returncode, waits) == (130, [2.0])
    assert done.stderr.decode().startswith(told)
    assert good(database) == active


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "a b", "--scope=read"], "NAME: expected 1 to 64 letters"),
        (
            ["add", "ci", "--scope=read", "--expires=90"],
            "--expires: expected a number of days from 1d",
        ),
        (["add", "ci"], "--scope is missing"),
        (["add", "ci", "--link=stores.example"], "--link: an address begins with http"),
        (["add", "ci", "--scope=all"], "'all' is not one of 'read', 'write'"),
        (["add", "--scope=read"], "Missing argument 'name'"),
        (["revoke", "\udcff\n"], "NAME: expected 1 to 64 letters"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    (line,) = refused(
        run_command("token", *arguments, f"--database=sqlite:///{tmp_path}/stores.db")
    )
    assert message in line
    assert not list(tmp_path.iterdir())


def test_no_token_makes_a_database(new_database: Callable[[], Database]) -> None:
    url = new_database().url
    for arguments in (["add", "ci", "--scope=read"], ["list"], ["revoke", "ci"]):
        (line,) = refused(run_command("token", *arguments, "--database", url))
        assert line == f"storekeeper: {Missing(databases.database(url).name)}"
    assert not databases.database(url).exists()


def test_a_token_that_there_is_not_cannot_be_revoked(database: Database) -> None:
    add(database, "ci", "--scope=read")
    done = run_command("token", "revoke", "other", "--database", database.url)
    assert refused(done) == [
        "storekeeper: Token other does not exist; see `storekeeper token list`"
    ]


async def test_a_use_is_noted_once_an_hour_and_each_change_has_its_token(
    database: Database,
) -> None:
    for name in ("one", "two"):
        add(database, name, "--scope=write")
    async with handle(database) as collection:
        await collection.write(Create(Payload("A"), token_number=2))
        await asyncio.gather(
            collection.write(Create(Payload("B"), token_number=1)),
            collection.write(Replace(1, Payload("C"))),
        )
        await add_all(collection, [Payload("D")])
        for number, at, used in (
            (1, USED_INTERVAL, USED_INTERVAL),
            (1, USED_INTERVAL + 5, USED_INTERVAL),
            (1, 2 * USED_INTERVAL, 2 * USED_INTERVAL),
            (1, 90 * USED_INTERVAL, 90 * USED_INTERVAL),  # by a clock that is wrong, then set right
            (1, 2 * USED_INTERVAL + 5, 2 * USED_INTERVAL + 5),
        ):
            await collection.mark_used([number, 9], at)
            assert [token.used for token in await collection.tokens()] == [used, None]
    with databases.database(database.url).snapshot() as snapshot:
        assert [row[-2] for row in snapshot.rows("changes")] == [2, 1, 0, 0]


def test_a_copy_has_the_tokens(new_database: Callable[[], Database]) -> None:
    source, target, full = prepared(new_database()), new_database(), new_database()
    for name in ("one", "two"):
        add_token(source.url, name, "read")
    assert run_command("copy", source.url, target.url).returncode == 0
    assert read_tokens(target.url) == read_tokens(source.url) != []
    add_token(full.url, "own", "read")
    [line] = refused(run_command("copy", source.url, full.url))
    says = (
        "there is a file of that name"
        if isinstance(source, Sqlite)
        else "has tokens already: name an empty one"
    )
    assert says in line
    assert good(full) == [("own", True)]


def test_only_auth_keeps_a_backup_from_before_the_first_token_closed(tmp_path: Path) -> None:
    source, backup = (f"sqlite:///{tmp_path}/{name}.db" for name in ("stores", "backup"))
    make(source)
    assert run_command("copy", source, backup).returncode == 0
    text = add_token(source, "later", "write")
    restored = f"sqlite:///{tmp_path}/restored.db"
    assert run_command("copy", backup, restored).returncode == 0
    for arguments, status in ((["--auth=all"], 401), ([], 200)):
        with serving(tmp_path, *arguments, database=restored) as service:
            for headers in ({}, {"authorization": f"Bearer {text}"}):
                for method, body in (("GET", None), ("POST", {"name": "A"})):
                    assert service.request(method, "/api/stores", body, headers).status == status


def test_check_sends_a_token_from_a_file_or_a_variable_and_reports_it_nowhere(
    tmp_path: Path,
) -> None:
    database = f"sqlite:///{tmp_path}/stores.db"
    databases.create(database, examples=True)
    text = add_token(database, "check", "write")
    file = tmp_path / "token"
    file.write_text(f"{text}\n")
    with serving(tmp_path, "--auth=all") as service:
        url = f"http://127.0.0.1:{service.port}"
        assert run_command("check", "--read-only", url).returncode == 2
        # The question whether there are only the examples needs the token too.
        for arguments, env in (
            (["--token", str(file)], {}),
            (["--read-only"], {"STOREKEEPER_TOKEN": text}),
        ):
            done = run_command("check", "--json", *arguments, url, env=env)
            assert done.returncode == 0, done.stdout + done.stderr
            assert text.encode() not in done.stdout + done.stderr
    for content, message in (
        ("", "has no token"),
        ("Authorization: Bearer skt_a", "only a token, without `Authorization"),
        (None, "cannot be read (No such file"),
    ):
        other = tmp_path / "other"
        other.unlink(missing_ok=True)
        if content is not None:
            other.write_text(content)
        assert message in refused(run_command("check", "--token", str(other), url))[-1]
    assert "has no token" in refused(run_command("check", "--token", "/dev/zero", url))[-1]
    # Given where its file belongs, as it is easily done.
    message = refused(run_command("check", "--token", text, url))[-1]
    assert text not in message
    assert "name a file that has the token" in message

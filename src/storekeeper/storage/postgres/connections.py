"""Connections to a database: its URL, and the settings that every promise rests on."""

import logging
import os
import re
import select
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo, ConnStatus, ExecStatus, PGconn, abc

from storekeeper.concurrency.interruption import Interruption
from storekeeper.domain.errors import (
    NO_RESPONSE,
    NO_STANDBY,
    Outcome,
    StorekeeperError,
    Unavailable,
    WrongDatabase,
)

# In a command, which has no log, what psycopg logs in addition to its exception would be a second
# line on stderr.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

Connection = psycopg.Connection[tuple[Any, ...]]

PINNED = {
    # An acknowledged write is on disk, and on the disk of the synchronous standby if there is one.
    "synchronous_commit": "on",
    # Only a warning says that the wait for this standby was cancelled.
    "client_min_messages": "warning",
    # `off` would store the text NULL for an address that is not given.
    "array_nulls": "on",
    # With a stricter level, a bulk create that waited for another writer would fail.
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    # With `off`, a policy that hides rows makes a statement fail, instead of making a list shorter.
    "row_security": "off",
    # `on` would end the session with each error: whether a write was carried out would be unknown.
    "exit_on_error": "off",
    # These would end a session at any moment: the outcome of a write that had just been sent would
    # be unknown.
    "idle_session_timeout": "0",
    "transaction_timeout": "0",
    # By default, the server ends the session of a host that vanished, and its locks, after up to
    # two hours.
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30s",
}
"""The settings of each session: only these override those of the role, the database and the URL,
and later reloads. A setting that the server does not know is left out.
default_transaction_read_only is left to operators, who stop writes with it."""

SERVING = PINNED | {
    "statement_timeout": "5s",
    "lock_timeout": "4s",
    "idle_in_transaction_session_timeout": "4s",
}
"""For the connections of the service. These limits take the lock of writers from an instance that
hangs."""

BULK = PINNED | {
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
"""For imports and copies, which may take long, because their source may be slow."""

_READING = BULK | {"tcp_user_timeout": "0"}
"""For an export, which no client waits for, and which may be read slowly: unread bytes count as
unacknowledged too."""

SHARED_SESSION = "22007"
"""The SQLSTATE of an invalid date, which no other statement here makes: a CASE cannot raise an
error of its own. So `_CLAIM_SESSION` makes one if another client has left its mark, and
`CHECK_CLAIM` if our mark is gone."""

# A pooler that passes a session from client to client would run the statements of one with the
# settings of another.
_CLAIM_SESSION = """SELECT pg_catalog.set_config('storekeeper.session', CASE coalesce(
  pg_catalog.current_setting('storekeeper.session', true), '') WHEN '' THEN 'taken'
  ELSE (pg_catalog.current_setting('storekeeper.session') || ' already')::date::text END, false)"""

# Or it resets the session after each transaction, and all settings are lost; or it sends reads to a
# standby, which may be behind. So this takes its own round trip.
CHECK_CLAIM = """SELECT (CASE pg_catalog.current_setting('storekeeper.session', true)
  WHEN 'taken' THEN '2000-01-01' ELSE 'reset' END)::date"""

SETUP_TIMEOUT = 3.0
"""Seconds within which a thread's new session must respond: a pooler accepts clients while its
server is away."""

_SCHEMAS = """SELECT nspname
  FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace AS space ON space.oid = relnamespace
  WHERE relname = 'storekeeper' AND relkind IN ('r', 'p', 'v', 'm', 'f')
  AND nspname = ANY (pg_catalog.current_schemas(false)) ORDER BY nspname"""
"""Selects every schema of the search path that has a collection."""

_DEFAULTS = {
    "fallback_application_name": "storekeeper",
    # A host that vanished silently is noticed within about 10 s, even on an idle connection.
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "5000",
    # For reads too: a standby may be behind, and a read must see every write that was acknowledged
    # before. `primary` and not `read-write`: while a full disk keeps the server from writing, reads
    # continue.
    "target_session_attrs": "primary",
}


_NOWHERE = {
    "host": "127.0.0.1",
    "hostaddr": "127.0.0.1",
    "port": "1",
    "password": "-",
    "gssencmode": "disable",
}
"""A place where no server listens. libpq needs no password file and no Kerberos ticket for it:
both may come later."""

_NUMBERS = ["port", "connect_timeout", "keepalives"]
_NUMBERS += [name for name, value in _DEFAULTS.items() if value.isdigit()]
_NUMBER = re.compile(r"(-?\d+)?(,\d*)*", re.ASCII)
"""A number, or several ports, one for each host."""


def parameters(url: str, **defaults: str) -> str:
    """Return libpq's connection string; `defaults` override ours. Raises CannotStart, which
    shows no password."""
    given = _given(url)
    _check_given(url, given)
    timeout = os.environ.get("PGCONNECT_TIMEOUT") or "3"
    wanted = _DEFAULTS | {"connect_timeout": timeout} | defaults | given
    wanted["client_encoding"] = "utf8"
    conninfo = make_conninfo("", **wanted)
    # What libpq refuses before it asks any server, it will always refuse.
    trial = PGconn.connect_start(make_conninfo(conninfo, **_NOWHERE).encode())
    reason = trial.error_message.decode(errors="replace")
    # Without a reason, the system would open no socket now.
    if trial.status == ConnStatus.BAD and reason and _NOWHERE["hostaddr"] not in reason:
        raise WrongDatabase(_one_line(reason, url))
    trial.finish()
    return conninfo


def _given(url: str) -> dict[str, str]:
    """Return the parameters in a URL. Raises CannotStart."""
    try:
        found = conninfo_to_dict(url)
    except (psycopg.Error, UnicodeError):
        raise WrongDatabase(
            "not a valid PostgreSQL URL: postgresql://user:password@host:port/database, with"
            " special characters of user and password percent-encoded"
        ) from None
    return {name: str(value) for name, value in found.items() if value is not None}


def _check_given(url: str, given: dict[str, str]) -> None:
    """Raise CannotStart if the parameters of a URL are wrong."""
    # Otherwise a password would be shown as the name of a port and of a database.
    path = url.partition("://")[2].partition("?")[0].partition("/")[2]
    if "@" in given.get("host", "") or "@" in path:
        raise WrongDatabase("an @ or / within user or password must be written as %40 or %2F")
    for name in _NUMBERS:
        if not _NUMBER.fullmatch(given.get(name, "")):
            raise WrongDatabase(f"{name} must be a number")
    for port in given.get("port", "").split(","):
        if port and not (len(port) < 10 and 0 < int(port) < 65536):
            raise WrongDatabase("port must be a number from 1 to 65535")
    if given.get("target_session_attrs", "primary") not in ("read-write", "primary"):
        raise WrongDatabase(
            "target_session_attrs can only be read-write or primary: a standby may be behind"
        )


def describe(url: str) -> str:
    """Return the URL of the database as libpq understands it, without a password; raise
    CannotStart."""
    given: dict[str, str] = {}
    for option in Conninfo.get_defaults():
        if option.val:
            given[option.keyword.decode()] = option.val.decode()
    for name, value in conninfo_to_dict(parameters(url)).items():
        given[name] = str(value)
    if service := given.get("service"):
        return f"postgresql:///?service={quote(service)}"  # its file has the rest
    user = given.get("user", "")
    hosts = (given.get("host") or given.get("hostaddr", "")).split(",")
    ports = given.get("port", "").split(",")  # one for each host, or one for all
    places = ",".join(_place(host, port) for host, port in zip(hosts, cycle(ports)))
    database = given.get("dbname") or user
    return f"postgresql://{quote(user)}@{places}/{quote(database)}"


def _place(host: str, port: str) -> str:
    """Return how a URL names a host and its port."""
    name = f"[{host}]" if ":" in host else quote(host, safe="")
    if port in ("", "5432"):
        return name
    return f"{name}:{port}"


def setup_statements(settings: dict[str, str]) -> tuple[str, ...]:
    """Return the statements that claim a session and pin settings for it."""
    wanted = ", ".join(f"('{name}', '{value}')" for name, value in settings.items())
    # `remote_apply` waits for more than `on`, so it stays.
    pin = f"""SELECT pg_catalog.set_config(
        name, CASE setting WHEN 'remote_apply' THEN setting ELSE value END, false)
      FROM (VALUES {wanted}) AS wanted (name, value) JOIN pg_catalog.pg_settings USING (name)"""
    # READ COMMITTED is never deferrable: that may wait for other transactions.
    return "BEGIN ISOLATION LEVEL READ COMMITTED", _CLAIM_SESSION, pin, "COMMIT"


def set_search_path(schema: str) -> str:
    """Return the statement after which a session looks up names only in that schema."""
    # `pg_temp` comes last, so that no temporary table hides one of ours.
    return f"SET search_path = {sql.Identifier(schema).as_string()}, pg_temp"


def connect(conninfo: str) -> abc.PGconn:
    """Open a connection; return its libpq object, which closes once nothing refers to it.
    Blocks."""
    connection = psycopg.connect(conninfo, autocommit=True)
    libpq = connection.pgconn
    del connection.pgconn  # psycopg would warn that its connection was not closed
    return libpq


@contextmanager
def connected(
    url: str,
    *,
    needs: str = "",
    commits: bool = True,
    interruption: Interruption | None = None,
) -> Iterator[Connection]:
    """Open a connection for a thread, whose statements may take long; commit at the end if it
    `commits`. Blocks, until the server responds or an `interruption` comes.

    Raises what `translate` returns, and Unavailable, with an unknown outcome, if the COMMIT may be
    lost.
    """
    # A server with a slow disk may read nothing of a COPY for seconds.
    conninfo = parameters(url, tcp_user_timeout="30000")
    try:
        with (
            psycopg.connect(conninfo, autocommit=True) as connection,
            (interruption or Interruption()).by_closing(connection.fileno()),
        ):
            _set_up(connection, BULK if commits else _READING)
            connection.execute(CHECK_CLAIM)
            connection.execute(set_search_path(collection_schema(connection)).encode())
            connection.autocommit = False
            yield connection
            if commits:
                _commit(connection)
            else:
                # Otherwise psycopg would commit, and fail after everything was read.
                connection.close()
    except psycopg.Error as error:
        raise translate(error, url, needs) from None


def _set_up(connection: Connection, settings: dict[str, str]) -> None:
    pg = connection.pgconn
    pg.send_query("; ".join(setup_statements(settings)).encode())
    pg.flush()
    response = select.poll()
    response.register(pg.socket, select.POLLIN)
    if not response.poll(SETUP_TIMEOUT * 1000):
        connection.close()  # otherwise psycopg would try to roll it back
        raise Unavailable(NO_RESPONSE)
    results = list(iter(pg.get_result, None))
    failed = [result for result in results if result.status == ExecStatus.FATAL_ERROR]
    if failed:
        connection.close()
        raise psycopg.errors.error_from_result(failed[0])


def translate(error: Exception, url: str, needs: str = "") -> StorekeeperError:
    """Return Unavailable or CannotStart for an error of libpq; `needs` names the right that the
    user may lack."""
    # psycopg's frames refer to the error, and to a socket that timed out: only the garbage
    # collector would close it.
    text = _one_line(error.with_traceback(None), url)
    if getattr(error, "sqlstate", "") == SHARED_SESSION:
        return WrongDatabase(
            "a pooler gives each session to many clients, or sends reads to other servers: use"
            " session pooling, with DISCARD ALL between them, and no load balancing"
        )
    if isinstance(error, psycopg.errors.DuplicateTable | psycopg.errors.DuplicateObject):
        return WrongDatabase(f"tables of another program are there ({text}): name another database")
    if needs and isinstance(error, psycopg.errors.InsufficientPrivilege):
        return WrongDatabase(
            f"{error.diag.message_primary}: the user must own the tables, and {needs}"
        )
    return Unavailable(text)


def collection_schema(connection: Connection) -> str:
    """Return the schema of the collection, or the one for a new collection; raise CannotStart if
    that is unclear."""
    found = [name for (name,) in connection.execute(_SCHEMAS)]
    if not found:
        current = connection.execute("SELECT pg_catalog.current_schema()")
        found = [name for (name,) in current if name]
    if len(found) > 1:
        raise WrongDatabase(
            f"two collections are there, in the schemas {' and '.join(found)}: name one, as by"
            " ALTER ROLE ... SET search_path, or with ?options=-csearch_path%3D... in the URL"
        )
    if not found:
        raise WrongDatabase(
            "the search_path names no schema that exists and that this user can use"
        )
    return str(found[0])


def _commit(connection: Connection) -> None:
    severities: list[str | None] = []
    # Read at once, because libpq frees its notice afterwards.
    connection.add_notice_handler(lambda notice: severities.append(notice.severity_nonlocalized))
    try:
        connection.commit()
    except psycopg.Error:
        raise Unavailable("The connection was lost during COMMIT", Outcome.UNKNOWN) from None
    if "WARNING" in severities:
        raise Unavailable(NO_STANDBY, Outcome.UNKNOWN)


def _one_line(error: Exception | str, url: str) -> str:
    """Return an error of libpq, or its text, as one line, without any password."""
    text = " ".join(str(error).split())
    given = conninfo_to_dict(url)
    for secret in (given.get("password"), given.get("sslpassword"), os.environ.get("PGPASSWORD")):
        if secret:
            text = text.replace(str(secret), "***")
    return text

"""What a session must not inherit: each setting on which a promise or a result rests, pinned. Imports psycopg's sql.

ALTER ROLE, ALTER DATABASE and ALTER SYSTEM, a URL's `options` and PGOPTIONS all give a session its settings, and a
reload changes them while it runs. What the session itself has set comes before all of them.
"""

from psycopg import sql

PINNED = {
    # Acknowledged means that it is on the disk, and on the disk of the synchronous standby if there is one.
    "synchronous_commit": "on",
    # That the wait for this standby was ended is said by a warning, and by nothing else.
    "client_min_messages": "warning",
    # `off` stores the text NULL for an address that is not given.
    "array_nulls": "on",
    # Any other lets a bulk create fail that waited for another writer.
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    # A policy that hides rows makes a statement fail, instead of making a list shorter.
    "row_security": "off",
    # `on` ends the session with each error: whether a write was carried out would be unknown.
    "exit_on_error": "off",
    # Ends of a session that come from nowhere: what was sent just then would be unknown, too.
    "idle_session_timeout": "0",
    "transaction_timeout": "0",
}
"""The settings, and why. One that the server does not know (an older server) is left out. Not among them is
default_transaction_read_only: operators and managed services stop writes by it, and clients are told so."""

SERVING = PINNED | {
    "statement_timeout": "5s",
    "lock_timeout": "4s",
    "idle_in_transaction_session_timeout": "4s",
}
"""For a connection of the service. The client's own deadlines come before these time limits, which free the lock of
writers from an instance that stands still."""

BULK = PINNED | {"statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0"}
"""For what may take its time: bulk creates and copies, whose source may be slow."""


SHARED = "22P02"
"""The SQLSTATE by which the server says that the session is not ours alone."""

# A pooler that hands a session from client to client would have others' statements, and ours, meet others' settings.
# A new or reset session has no such mark: a client that does not fail here has the session to itself.
_TAKE = """SELECT pg_catalog.set_config('storekeeper.session', CASE coalesce(
  pg_catalog.current_setting('storekeeper.session', true), '') WHEN '' THEN 'taken'
  ELSE (pg_catalog.current_setting('storekeeper.session') || ' already')::integer::text END, false)"""


def conversation(settings: dict[str, str], schema: str | None = None) -> tuple[str, ...]:
    """Return the statements that pin settings for the session, and the schema in which names are looked for."""
    # Never deferrable: that may wait for other transactions.
    begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
    return (begin, _TAKE, _pin(settings), *([look_in(schema)] if schema else []), "COMMIT")


def look_in(schema: str) -> str:
    """Return the statement that has names looked for in one schema alone."""
    # No temporary table may stand before ours.
    return f"SET search_path = {sql.Identifier(schema).as_string()}, pg_temp"


def _pin(settings: dict[str, str]) -> str:
    wanted = ", ".join(f"('{name}', '{value}')" for name, value in settings.items())
    # `remote_apply` waits for more than `on`, so it is kept.
    return f"""SELECT pg_catalog.set_config(name, CASE setting WHEN 'remote_apply' THEN setting ELSE value END, false)
      FROM (VALUES {wanted}) AS wanted (name, value) JOIN pg_catalog.pg_settings USING (name)"""

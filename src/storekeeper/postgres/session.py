"""The settings of a session on which a promise or a result rests, pinned for the session. Imports psycopg's sql.

ALTER ROLE, ALTER DATABASE and ALTER SYSTEM, a URL's `options` and PGOPTIONS all give a session its settings, and a
reload changes them while it runs. What the session itself sets overrides all of them.
"""

from psycopg import sql

PINNED = {
    # An acknowledged write is on the disk, and on the disk of the synchronous standby if there is one.
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
    # These would end a session at any moment: the outcome of a write that was sent just then would be unknown.
    "idle_session_timeout": "0",
    "transaction_timeout": "0",
}
"""The pinned settings, and why. One that the server does not know (an older server) is left out. Not among them is
default_transaction_read_only: operators and managed services stop writes with it, and clients are told so."""

SERVING = PINNED | {
    "statement_timeout": "5s",
    "lock_timeout": "4s",
    "idle_in_transaction_session_timeout": "4s",
}
"""For the connections of the service. These time limits release the lock of writers from an instance that hangs."""

BULK = PINNED | {"statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0"}
"""For bulk creates and copies, which may take long, as their source may be slow."""

SHARED_SESSION = "22P02"
"""The SQLSTATE with which `_CLAIM_SESSION` fails in a session that another client has used too."""

# A pooler that passes a session from client to client would run the statements of one with the settings of another.
# A new or reset session has no such mark: a client that does not fail here has the session to itself.
_CLAIM_SESSION = """SELECT pg_catalog.set_config('storekeeper.session', CASE coalesce(
  pg_catalog.current_setting('storekeeper.session', true), '') WHEN '' THEN 'taken'
  ELSE (pg_catalog.current_setting('storekeeper.session') || ' already')::integer::text END, false)"""


def setup_statements(settings: dict[str, str], schema: str | None = None) -> tuple[str, ...]:
    """Return the statements that pin settings for the session, and the schema in which it looks names up."""
    # Never deferrable: that may wait for other transactions.
    begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
    return (begin, _CLAIM_SESSION, _pin(settings), *([set_search_path(schema)] if schema else []), "COMMIT")


def set_search_path(schema: str) -> str:
    """Return the statement that restricts the lookup of names to one schema."""
    # `pg_temp` comes last, so that no temporary table hides one of ours.
    return f"SET search_path = {sql.Identifier(schema).as_string()}, pg_temp"


def _pin(settings: dict[str, str]) -> str:
    wanted = ", ".join(f"('{name}', '{value}')" for name, value in settings.items())
    # `remote_apply` waits for more than `on`, so it stays.
    return f"""SELECT pg_catalog.set_config(name, CASE setting WHEN 'remote_apply' THEN setting ELSE value END, false)
      FROM (VALUES {wanted}) AS wanted (name, value) JOIN pg_catalog.pg_settings USING (name)"""

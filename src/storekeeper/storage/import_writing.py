"""What an import writes, in the words of both databases: under the lock, from the temporary
tables."""

from typing import Any

import msgspec

from storekeeper.domain.changes import Cursor
from storekeeper.domain.commands import Key
from storekeeper.domain.errors import Unavailable
from storekeeper.domain.import_plan import ImportPlan
from storekeeper.domain.import_rows import FieldIs
from storekeeper.domain.intake import Counts, Import, ListedChange
from storekeeper.domain.problems import MAX_LISTED, MAX_SHOWN_LENGTH, shown
from storekeeper.storage.import_comparing import new_name
from storekeeper.storage.sessions import Session
from storekeeper.storage.sql import CHANGES, CONTENT, FIELDS

_CHANGED = "FROM decided JOIN staged ON staged.place = decided.place"
_RESOLVED = f"{_CHANGED} LEFT JOIN resolved ON resolved.line = staged.line"


def _value(field: str, new: str, resolved: str) -> str:
    """Return the expression of a field of a store after the change."""
    return f"""CASE decided.{field}_is WHEN {FieldIs.WRITE:d} THEN {new}
      WHEN {FieldIs.DECIDED:d} THEN {resolved} ELSE stores.{field} END"""


_SHOWN = f"1, {MAX_SHOWN_LENGTH + 1}"
_LISTED = f"""SELECT staged.line, decided.id, is_new, stores.name, substr(stores.address, {_SHOWN}),
    {_value("name", "{new_name}", "resolved.name")},
    substr({_value("address", "staged.address", "resolved.address")}, {_SHOWN})
  {_RESOLVED} LEFT JOIN stores ON stores.id = decided.id WHERE decided.seq IS NOT NULL
  ORDER BY decided.place LIMIT {MAX_LISTED}"""

_CREATE = f"""INSERT INTO stores (id, version, folded, folded_name, {FIELDS})
  SELECT decided.id, seq, folded, folded_name, {{new_name}}, address {_CHANGED}
  WHERE is_new = 1 ORDER BY decided.place"""
_REPLACE = f"""UPDATE stores SET version = seq, folded = decided.folded,
    address = {_value("address", "decided.new_address", "decided.resolved_address")} {{named}}
  FROM (SELECT decided.*, {{new_name}} AS new_name, staged.address AS new_address,
      resolved.name AS resolved_name, resolved.address AS resolved_address
    {_RESOLVED} WHERE is_new = 0 AND seq IS NOT NULL) AS decided
  WHERE stores.id = decided.id AND name_is {{name_is}}"""
_NAMED = f""", folded_name = decided.folded_name,
    name = {_value("name", "decided.new_name", "decided.resolved_name")}"""
# Where the name stays, its two indexes stay as they are.
_REPLACEMENTS = (("", f"= {FieldIs.KEEP:d}"), (_NAMED, f"<> {FieldIs.KEEP:d}"))
_ADD_CHANGES = f"""INSERT INTO {{table}} ({", ".join(CHANGES)})
  SELECT seq, stores.id, {", ".join(f"stores.{name}" for name in CONTENT)}, $1, total, $2,
    CAST($3 AS text)
  FROM decided JOIN stores ON stores.id = decided.id WHERE seq IS NOT NULL ORDER BY place"""

_KEY = "coalesce(staged.attach, staged.key)"
# What the source gives now, unless the row has a version: that says what it began with.
_GIVEN_NAME = "CASE WHEN staged.version IS NULL THEN staged.name END"
_GIVEN_ADDRESS = """CASE WHEN staged.version IS NULL AND staged.has_address = 1
    THEN coalesce(staged.address, '') END"""
_KNOWN = f"external_ids.value = {_KEY} AND external_ids.column_name = CAST($1 AS text)"
_ADD_KEY_CHANGES = f"""INSERT INTO key_changes (seq, column_name, value, attached, given_name,
  given_address, new_name, new_address)
  SELECT seq, CAST($1 AS text), {_KEY}, attaches, external_ids.given_name,
    external_ids.given_address, coalesce({_GIVEN_NAME}, external_ids.given_name),
    coalesce({_GIVEN_ADDRESS}, external_ids.given_address)
  {_CHANGED} LEFT JOIN external_ids ON {_KNOWN}
  WHERE is_new = 0 AND seq IS NOT NULL AND (attaches = 1 OR remembers = 1)"""
_REMEMBER = f"""UPDATE external_ids SET given_name = coalesce(new.name, given_name),
    given_address = CASE new.has_address WHEN 1 THEN coalesce(new.address, '')
      ELSE given_address END
  FROM (SELECT staged.key, name, has_address, address {_CHANGED} WHERE remembers = 1
    AND is_new = 0) AS new
  WHERE external_ids.value = new.key AND external_ids.column_name = CAST($1 AS text)"""
_ADD_IDS = f"""INSERT INTO external_ids (store_id, column_name, value, given_name, given_address)
  SELECT decided.id, CAST($1 AS text), {_KEY}, {_GIVEN_NAME}, {_GIVEN_ADDRESS} {_CHANGED}
  WHERE attaches = 1 OR (is_new = 1 AND {{is_keyed}})"""

_ADD_IMPORT = """INSERT INTO imports (first_seq, last_seq, undoes, file, token_number, user_name)
  VALUES ($1, $2, CAST($3 AS bigint), CAST($4 AS text), $5, CAST($6 AS text))"""

_ADD_KEY = """INSERT INTO keys (n, key, request, seq, at, result)
  SELECT coalesce(max(n), 0) + 1, CAST($1 AS text), $2, $3, $4, CAST($5 AS text) FROM keys"""


def listed_changes(session: Session, options: Import) -> list[ListedChange]:
    """Return the first changes of a plan, as its report shows them."""
    rows = session.execute(_LISTED.format(new_name=new_name(options)))
    return [_listed(*row) for row in rows]


def _listed(line: int, id: int, is_new: int, *texts: str | None) -> ListedChange:
    old = None if is_new else shown_texts(*texts[:2])
    return ListedChange(line, id, old, shown_texts(*texts[2:]))


def shown_texts(name: str | None, address: str | None) -> dict[str, str | None]:
    """Return name and address as a report shows them."""
    return {"name": name and shown(name), "address": address and shown(address)}


def write(session: Session, plan: ImportPlan, now: int) -> None:
    """Write what a plan decided, as of `now`; complete its report."""
    options, report, before = plan.options, plan.report, plan.numbers
    version = before.version + plan.changes
    report.version = str(Cursor(version, before.epoch))
    name = new_name(options)
    if report.created:
        expect(report.created, session.write(_CREATE.format(new_name=name)))
    if report.replaced:
        expect(report.replaced, _replace(session, name))
    if plan.changes:
        values = (max(before.at, now), options.token_number, options.proxy_user)
        add_changes(session, _ADD_CHANGES, values, plan.changes)
        report.first = str(Cursor(before.version + 1, before.epoch))
        report.last = report.version
        record(session, options, before.version + 1, version)
    if plan.column is not None:
        _write_keys(session, plan)
    # What changes nothing in a collection without changes has no version, and needs no replay.
    if options.idempotency_key and version:
        counts = msgspec.convert(report, Counts, from_attributes=True)
        remember_result(session, options.idempotency_key, counts, version, now)


def _replace(session: Session, new_name: str) -> int:
    return sum(
        session.write(_REPLACE.format(new_name=new_name, named=named, name_is=name_is))
        for named, name_is in _REPLACEMENTS
    )


def _write_keys(session: Session, plan: ImportPlan) -> None:
    values = (plan.column,)
    if plan.report.replaced:
        session.write(_ADD_KEY_CHANGES, values)
    if plan.remembers:
        expect(plan.remembers, session.write(_REMEMBER, values))
        # So that an import that compared its rows with what was given before does so again.
        raised = f"UPDATE {session.collection_table} SET memory = memory + 1 WHERE one = 1"
        expect(1, session.write(raised))
    is_keyed = "1 = 1" if plan.options.key_column is not None else "attach IS NOT NULL"
    keyed = session.write(_ADD_IDS.format(is_keyed=is_keyed), values)
    if plan.options.key_column is not None:
        expect(plan.report.created + plan.report.adopted, keyed)


def add_changes(session: Session, statement: str, values: tuple[Any, ...], count: int) -> None:
    """Add `count` rows to the table of changes, and set the numbers of the collection."""
    expect(count, session.write(statement.format(table=session.changes_table), values))
    if session.set_numbers:
        expect(1, session.write(session.set_numbers))


def record(
    session: Session, options: Import, first: int, last: int, undoes: int | None = None
) -> None:
    """Record the first and the last change of an import, or of an undo of the import that begins
    with the change `undoes`."""
    values = (first, last, undoes, options.file, options.token_number, options.user)
    expect(1, session.write(_ADD_IMPORT, values))


def remember_result(
    session: Session, key: Key, counts: msgspec.Struct, version: int, now: int
) -> None:
    """Remember under an Idempotency-Key what was done, for a replay."""
    result = msgspec.json.encode(counts).decode()
    expect(1, session.write(_ADD_KEY, (*key, version, now, result)))


def expect(rows: int, written: int) -> None:
    """Raise Unavailable if a statement wrote another number of rows."""
    if rows != written:
        raise Unavailable("A trigger or a rule of the database kept rows out")

"""Undoes an import, or an undo, in one transaction, in the words that both databases understand
(decision 61)."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from storekeeper.domain.changes import Cursor
from storekeeper.domain.errors import InvalidInput, PreconditionFailed
from storekeeper.domain.intake import Import
from storekeeper.domain.problems import MAX_LISTED, MAX_SHOWN_LENGTH
from storekeeper.domain.reasons import Reason, Violation
from storekeeper.domain.search import MAX_SEARCHED_LENGTH
from storekeeper.domain.undo import (
    Field,
    KeyIs,
    Made,
    Undo,
    UndoCounts,
    Undone,
    UndoneChange,
    UndoPlan,
)
from storekeeper.storage import clock
from storekeeper.storage.collection import Snapshot
from storekeeper.storage.import_writing import (
    add_changes,
    expect,
    record,
    remember_result,
    shown_texts,
)
from storekeeper.storage.intake import CHUNK
from storekeeper.storage.sessions import Session, numbers_of, replayed, require_tag
from storekeeper.storage.sql import CHANGES, CONTENT

_TABLE = """undone (seq bigint, made INTEGER PRIMARY KEY, id bigint, previous bigint,
  name_is bigint,
  address_is bigint, key_is bigint, folded text, folded_name text)"""

_NOT_ONE = Violation(
    Reason.MALFORMED,
    sentence='"from" and "to" must be the first and the last change of one import or undo, as its'
    " report has them",
)

_FIND = "SELECT file FROM imports WHERE first_seq = $1 AND last_seq = $2"


def _field(name: str) -> str:
    return f"""CASE WHEN made.{name} IS NOT DISTINCT FROM was.{name} THEN {Field.UNTOUCHED:d}
      WHEN stores.{name} IS NOT DISTINCT FROM made.{name} THEN {Field.UNDONE:d}
        ELSE {Field.STAYS:d} END"""


def _after(name: str) -> str:
    is_undone = f"""made.{name} IS DISTINCT FROM was.{name}
      AND stores.{name} IS NOT DISTINCT FROM made.{name}"""
    return f"CASE WHEN {is_undone} THEN was.{name} ELSE stores.{name} END"


_HAS_KEY = """EXISTS (SELECT 1 FROM external_ids AS own WHERE own.store_id = made.store_id
        AND own.column_name = keyed.column_name{})"""
_IS_TAKEN = """EXISTS (SELECT 1 FROM external_ids AS other WHERE other.value = keyed.value
        AND other.column_name = keyed.column_name)"""
_MADE = f"""SELECT made.seq, made.store_id, was.seq, {_field("name")}, {_field("address")},
    CASE WHEN keyed.attached = 1 AND {_HAS_KEY.format(" AND own.value = keyed.value")}
      THEN {KeyIs.DETACHED:d}
      WHEN keyed.attached = -1 AND ({_HAS_KEY.format("")} OR {_IS_TAKEN}) THEN {KeyIs.STAYS:d}
      WHEN keyed.attached = -1 THEN {KeyIs.ATTACHED:d} ELSE {KeyIs.AS_IT_IS:d} END,
    {_after("name")}, substr({_after("address")}, 1, {MAX_SEARCHED_LENGTH})
  FROM changes AS made JOIN stores ON stores.id = made.store_id
    LEFT JOIN changes AS was ON was.seq = (
      SELECT max(seq) FROM changes AS earlier WHERE earlier.store_id = made.store_id
        AND earlier.seq < made.seq)
    LEFT JOIN key_changes AS keyed ON keyed.seq = made.seq
  WHERE made.seq > $1 AND made.seq <= $2 ORDER BY made.seq"""

_VALUE = f"CASE undone.{{0}}_is WHEN {Field.UNDONE:d} THEN was.{{0}} ELSE stores.{{0}} END"
_FROM = "FROM undone JOIN changes AS was ON was.seq = undone.previous"
_SHOWN = f"1, {MAX_SHOWN_LENGTH + 1}"
_LISTED = f"""SELECT undone.id, stores.name, substr(stores.address, {_SHOWN}),
  {_VALUE.format("name")},
    substr({_VALUE.format("address")}, {_SHOWN})
  {_FROM} JOIN stores ON stores.id = undone.id ORDER BY undone.made LIMIT {MAX_LISTED}"""

_REPLACE = f"""UPDATE stores SET version = undone.seq, folded = undone.folded,
  folded_name = undone.folded_name,
    name = CASE undone.name_is WHEN {Field.UNDONE:d} THEN undone.name ELSE stores.name END,
    address = CASE undone.address_is WHEN {Field.UNDONE:d} THEN undone.address
      ELSE stores.address END
  FROM (SELECT undone.*, was.name, was.address {_FROM}) AS undone WHERE stores.id = undone.id"""
_ADD_CHANGES = f"""INSERT INTO {{table}} ({", ".join(CHANGES)})
  SELECT undone.seq, stores.id, {", ".join(f"stores.{name}" for name in CONTENT)}, $1, $4, $2,
    CAST($3 AS text)
  FROM undone JOIN stores ON stores.id = undone.id ORDER BY undone.seq"""

_KEYED = "FROM undone JOIN key_changes AS keyed ON keyed.seq = undone.made"
_KNOWN = """known.store_id = undone.id AND known.column_name = keyed.column_name
      AND known.value = keyed.value"""


def _memory(field: str) -> str:
    """Return the expression of what the source last gave, after the undo: what it gave before the
    change, unless it has given something else since."""
    known = f"known.given_{field}"
    return f"""CASE WHEN undone.{field}_is = {Field.UNDONE:d} AND keyed.attached = 0
      AND coalesce(keyed.new_{field}, {known}) IS NOT DISTINCT FROM {known}
      THEN keyed.given_{field} ELSE {known} END"""


# What the source has given until now comes back if the undo is undone.
_ADD_KEY_CHANGES = f"""INSERT INTO key_changes (seq, column_name, value, attached, given_name,
  given_address, new_name, new_address)
  SELECT undone.seq, keyed.column_name, keyed.value,
    CASE WHEN key_is IN ({KeyIs.DETACHED:d}, {KeyIs.ATTACHED:d}) THEN key_is ELSE 0 END,
    known.given_name, known.given_address, {_memory("name")}, {_memory("address")}
  {_KEYED} LEFT JOIN external_ids AS known ON {_KNOWN}
  WHERE known.value IS NOT NULL OR key_is = {KeyIs.ATTACHED:d}"""
_RETURN_MEMORY = f"""UPDATE external_ids SET given_name = after.name, given_address = after.address
  FROM (SELECT known.store_id, known.column_name, {_memory("name")} AS name,
      {_memory("address")} AS address
    {_KEYED} JOIN external_ids AS known ON {_KNOWN} WHERE keyed.attached = 0) AS after
  WHERE external_ids.store_id = after.store_id AND external_ids.column_name = after.column_name"""
_DETACH = f"""DELETE FROM external_ids WHERE (store_id, column_name) IN (
  SELECT undone.id, keyed.column_name {_KEYED} WHERE key_is = {KeyIs.DETACHED:d})"""
_ATTACH = f"""INSERT INTO external_ids (store_id, column_name, value, given_name, given_address)
  SELECT undone.id, keyed.column_name, keyed.value, keyed.given_name, keyed.given_address
  {_KEYED} WHERE key_is = {KeyIs.ATTACHED:d}"""


class Recorded(NamedTuple):
    """An import, or an undo of the import that begins with the change `undoes`.

    `first` and `last` are the cursors of its changes; `who` sent it, if that is known.
    """

    first: str
    last: str
    at: str
    undoes: int | None
    file: str | None
    who: str | None


_LATEST = """SELECT first_seq, last_seq, epoch, changes.at, undoes, file,
    coalesce(imports.user_name, (SELECT tokens.name FROM tokens
      WHERE number = imports.token_number))
  FROM imports JOIN changes ON changes.seq = last_seq CROSS JOIN collection
  ORDER BY first_seq DESC LIMIT $1"""


def latest_imports(snapshot: Snapshot, limit: int) -> list[Recorded]:
    """Return the latest imports and undos, the latest first. Raises Unavailable."""
    return [
        Recorded(str(Cursor(first, epoch)), str(Cursor(last, epoch)), clock.utc(at), *more)
        for first, last, epoch, at, *more in snapshot.select(_LATEST, limit)
    ]


def undo(
    session: Session,
    options: Undo,
    *,
    review: Callable[[UndoPlan], None] = lambda _: None,
    before_commit: Callable[[], None] = lambda: None,
    check: Callable[[], None] = lambda: None,
) -> UndoPlan | UndoCounts:
    """Undo the import, or the undo, with these changes; return what was done, only its counts if
    this is a replay.

    `review` is called with the plan before the lock is taken, and again if others wrote meanwhile;
    it may raise. `check` is called now and then before anything is written, and may raise. Raises
    EpochEnded, InvalidInput, KeyReused, and what the database raises.
    """
    if replay := replayed(session, options, UndoCounts):
        return replay
    session.execute(f"CREATE TEMPORARY TABLE {_TABLE}")
    try:
        plan, file = _make_plan(session, options, check)
    except PreconditionFailed:  # perhaps because the same request was carried out since
        if replay := replayed(session, options, UndoCounts):
            return replay
        raise
    review(plan)
    if options.dry_run:
        return plan
    with session.writing(before_commit):
        if replay := replayed(session, options, UndoCounts):
            return replay
        if not numbers_of(session).is_same_list(plan.numbers):
            plan, file = _make_plan(session, options, check)
            review(plan)
        now = clock.now()
        _write(session, plan, file, now)
    if plan.report.undone:
        clock.WATCH.committed(now, plan.numbers.at)
    return plan


def _make_plan(
    session: Session, options: Undo, check: Callable[[], None]
) -> tuple[UndoPlan, str | None]:
    numbers = numbers_of(session)
    require_tag(options.if_match, numbers)
    first, last = (
        each.number(numbers.version, numbers.epoch) for each in (options.first, options.last)
    )
    found = list(session.execute(_FIND, (first, last)))
    if not found:
        raise InvalidInput("query", {"from": _NOT_ONE})
    plan = UndoPlan(options, numbers)
    session.execute("DELETE FROM undone")
    for start in range(first - 1, last, CHUNK):
        check()
        rows = session.execute(_MADE, (start, min(last, start + CHUNK)))
        session.fill("undone", Undone._fields, plan.decide(map(Made._make, rows)))
    plan.report.changes = [
        UndoneChange(id, shown_texts(*both[:2]), shown_texts(*both[2:]))
        for id, *both in session.execute(_LISTED)
    ]
    return plan, found[0][0]


def _write(session: Session, plan: UndoPlan, file: str | None, now: int) -> None:
    options, report, before = plan.undo, plan.report, plan.numbers
    version = before.version + report.undone
    report.version = str(Cursor(version, before.epoch))
    if report.undone:
        expect(report.undone, session.write(_REPLACE))
        values = (max(before.at, now), options.token_number, options.proxy_user, before.total)
        add_changes(session, _ADD_CHANGES, values, report.undone)
        # In this order: the first keeps what the others change.
        for statement in (_ADD_KEY_CHANGES, _RETURN_MEMORY, _DETACH, _ATTACH):
            session.write(statement)
        report.first = str(Cursor(before.version + 1, before.epoch))
        report.last = report.version
        who = Import(file=file, token_number=options.token_number, user=options.user)
        record(session, who, before.version + 1, version, options.first.seq)
    if options.idempotency_key:
        counts = msgspec.convert(report, UndoCounts, from_attributes=True)
        remember_result(session, options.idempotency_key, counts, version, now)

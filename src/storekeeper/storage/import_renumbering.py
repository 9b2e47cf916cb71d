"""Renumbers the plan of an import if only single stores were written since, and none that its rows
mean, so that a busy list is not locked while all rows are compared again."""

from storekeeper.domain.import_plan import ImportPlan
from storekeeper.storage.import_writing import listed_changes
from storekeeper.storage.sessions import Session, numbers_of
from storekeeper.storage.staging import trimmed

_IMPORTED = "SELECT 1 FROM imports WHERE last_seq > $1 LIMIT 1"
_FROM_LATER = "SELECT 1 FROM staged WHERE version_seq > $1 LIMIT 1"

_IDS = "SELECT store_id FROM changes WHERE seq > $1"
_NAMES = """SELECT name FROM changes WHERE seq > $1
  UNION SELECT was.name FROM changes AS later JOIN changes AS was ON was.seq = (
    SELECT max(seq) FROM changes AS earlier
    WHERE earlier.store_id = later.store_id AND earlier.seq <= $1)
  WHERE later.seq > $1"""
"""The names that changed stores have got since, and those that they had before."""
_TRIMMED_NAMES = f"SELECT {trimmed('name')} FROM ({_NAMES}) AS named"
_KEYS = f"""SELECT value FROM external_ids
  WHERE column_name = CAST($2 AS text) AND store_id IN ({_IDS})"""

_SHIFT = """UPDATE decided SET seq = seq + CAST($1 AS bigint), total = total + CAST($2 AS bigint),
  id = id + is_new * CAST($2 AS bigint)"""


def renumber(session: Session, plan: ImportPlan) -> bool:
    """Make a plan follow the list as it is now, under the lock of writers; return whether it
    does. Otherwise it must be made again."""
    now, before = numbers_of(session), plan.numbers
    if now.is_same_list(before):
        return True
    if not _may_stay(plan) or (now.epoch, now.memory) != (before.epoch, before.memory):
        return False
    if _was_other_than_single_writes(session, before.version) or _a_row_is_touched(session, plan):
        return False
    session.write(_SHIFT, (now.version - before.version, now.total - before.total))
    plan.renumber(now, listed_changes(session, plan.options))
    return True


def _may_stay(plan: ImportPlan) -> bool:
    """Return whether a plan depends on no more than its own stores: not on the whole list."""
    options = plan.options
    return bool(plan.numbers.total) and not options.adopt and options.if_match is None


def _was_other_than_single_writes(session: Session, version: int) -> bool:
    """Return whether there was an import or an undo since, or a row has a version from since."""
    return _finds(session, _IMPORTED, version) or _finds(session, _FROM_LATER, version)


def _a_row_is_touched(session: Session, plan: ImportPlan) -> bool:
    """Return whether a store was written since that a row means, meant or would mean now."""
    version, match = plan.numbers.version, plan.options.match
    if match is None:
        return False
    if match == "id":
        return _finds(session, _row_with("CAST(key AS bigint)", _IDS), version)
    if match == "name":
        is_named = _finds(session, _row_with("key", _NAMES), version)
        return is_named or _finds(session, _row_with("key", _TRIMMED_NAMES), version)
    return _finds(session, _row_with("key", _KEYS), version, plan.column)


def _row_with(key: str, keys: str) -> str:
    """Return the statement that finds a row of the file with one of these keys."""
    return f"SELECT 1 FROM staged WHERE {key} IN ({keys}) LIMIT 1"


def _finds(session: Session, statement: str, *values: object) -> bool:
    return bool(list(session.execute(statement, values)))

"""Renumbers the plan of an import after single writes in between that concern none of its rows,
so that a busy list is not locked while all rows are compared again."""

from storekeeper.domain.import_plan import ImportPlan
from storekeeper.domain.intake import Import
from storekeeper.storage import staging
from storekeeper.storage.import_writing import listed_changes
from storekeeper.storage.sessions import Session, numbers_of

_CHANGED = "SELECT store_id FROM changes WHERE seq > $1"
_NAMES_SINCE = "SELECT name FROM changes WHERE seq > $1"
_NAMES_BEFORE = """SELECT was.name FROM changes AS later JOIN changes AS was ON was.seq = (
    SELECT max(seq) FROM changes AS earlier
    WHERE earlier.store_id = later.store_id AND earlier.seq <= $1)
  WHERE later.seq > $1"""
_KEYS = f"""SELECT value FROM external_ids
  WHERE column_name = CAST($2 AS text) AND store_id IN ({_CHANGED})"""  # noqa: S608 - only from constants

_IMPORTED = "SELECT 1 FROM imports WHERE last_seq > $1 LIMIT 1"
_FROM_LATER = "SELECT 1 FROM staged WHERE version_seq > $1 LIMIT 1"
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
    if any(_is_found(session, plan, each) for each in _touched(plan.options)):
        return False
    session.write(_SHIFT, (now.version - before.version, now.total - before.total))
    plan.renumber(now, listed_changes(session, plan.options))
    return True


def _may_stay(plan: ImportPlan) -> bool:
    """Return whether a plan depends on no more than its own stores: not on the whole list."""
    options = plan.options
    return bool(plan.numbers.total) and not options.adopt and options.if_match is None


def _touched(options: Import) -> list[str]:
    """Return the statements that find whether anything since the version $1 concerns a row: an
    import or an undo, or a write of a store that a row means, meant or would mean now."""
    found = [_IMPORTED, _FROM_LATER]
    if options.match == "id":
        found.append(_meant("CAST(key AS bigint)", _CHANGED))
    elif options.match == "name":
        names = f"{_NAMES_SINCE} UNION {_NAMES_BEFORE}"
        trimmed = f"SELECT {staging.trimmed('name')} FROM ({names}) AS named"  # noqa: S608 - only from constants
        found += [_meant("key", names), _meant("key", trimmed)]
    elif options.key_column is not None:
        found.append(_meant("key", _KEYS))
    return found


def _meant(key: str, keys: str) -> str:
    return f"SELECT 1 FROM staged WHERE {key} IN ({keys}) LIMIT 1"  # noqa: S608 - only from constants


def _is_found(session: Session, plan: ImportPlan, statement: str) -> bool:
    values: tuple[object, ...] = (plan.numbers.version,)
    if "$2" in statement:
        values = (*values, plan.column)
    return bool(list(session.execute(statement, values)))

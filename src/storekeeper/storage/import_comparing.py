"""The statements that compare the staged rows of an import with the stores, in the words of both
databases."""

from typing import NamedTuple

from storekeeper.domain.import_rows import Base, FieldIs
from storekeeper.domain.intake import Import, Numbers
from storekeeper.domain.problems import MAX_SHOWN_LENGTH
from storekeeper.domain.search import BLANKS, MAX_SEARCHED_LENGTH
from storekeeper.domain.stores import MAX_NAME_LENGTH
from storekeeper.storage.staging import trimmed

_SAME_NAME = """FROM (SELECT id FROM stores WHERE name = staged.key
  UNION ALL SELECT id FROM trimmed_names WHERE name = staged.key) AS same"""
_STORES = {
    None: ("CAST(NULL AS bigint)", "1"),
    "id": ("CAST(staged.key AS bigint)", "1"),
    "name": (
        f"(SELECT min(same.id) {_SAME_NAME})",
        f"(SELECT count(*) FROM (SELECT 1 {_SAME_NAME} LIMIT 2) AS two)",
    ),
}
"""For what rows are matched by, the expressions of the store that a row means, and of how many
that could be."""
_WITH_KEY = ("known.store_id", "1")


def _equal(one: str, other: str) -> str:
    return f"(coalesce({one}, '') = coalesce({other}, '') OR {trimmed(one)} = {trimmed(other)})"


def new_name(options: Import) -> str:
    """Return the expression of the name of a row as it is written."""
    if not options.cut_names:
        return "staged.name"
    return _cut("staged.name")


def _cut(name: str) -> str:
    return f"rtrim(substr({name}, 1, {MAX_NAME_LENGTH}), '{BLANKS}')"


_CUT = _cut("joined.base_name")
_UNCUT = f"joined.base_name IS NOT NULL AND joined.old_name = {_CUT}"


def _field_is(field: str, is_given: str, is_unchanged: str, options: Import) -> str:
    """Return the expression of the `FieldIs` of one field."""
    undecided = FieldIs.WRITE if options.on_conflict == "overwrite" else FieldIs.CONFLICT
    return f"""CASE
      WHEN joined.store IS NULL THEN {FieldIs.WRITE:d}
      WHEN NOT {is_given} OR {_equal(f"joined.new_{field}", f"joined.old_{field}")}
        THEN {FieldIs.KEEP:d}
      WHEN resolved.{field}_is IS NOT NULL THEN resolved.{field}_is
      WHEN joined.base = {Base.IGNORED:d} THEN {FieldIs.WRITE:d}
      WHEN joined.base_{field} IS NULL THEN {undecided:d}
      WHEN {_equal(f"joined.given_{field}", f"joined.base_{field}")} THEN {FieldIs.KEEP:d}
      WHEN {_equal(f"joined.old_{field}", f"joined.base_{field}")}{is_unchanged}
        THEN {FieldIs.WRITE:d}
      ELSE {undecided:d} END"""


def _value(field: str) -> str:
    """Return the expression of one field after the change."""
    return f"""CASE named.{field}_is WHEN {FieldIs.WRITE:d} THEN named.new_{field}
      WHEN {FieldIs.DECIDED:d} THEN named.decided_{field} ELSE named.old_{field} END"""


def _base(options: Import) -> str:
    """Return the expression of the `Base` of a row."""
    if options.on_conflict == "ignore-version":
        # PostgreSQL must see each parameter, also those of an expression that needs none.
        return f"coalesce({Base.IGNORED:d}, CAST($3 AS bigint), length(CAST($4 AS text)))"
    unversioned = Base.IGNORED if options.key_column is None else Base.MEMORY
    return f"""CASE WHEN staged.version_seq IS NULL THEN {unversioned:d}
        WHEN staged.version_epoch <> CAST($4 AS text) OR staged.version_seq > CAST($3 AS bigint)
          THEN {Base.UNKNOWN:d}
        WHEN staged.id <> CAST(stores.id AS text) THEN {Base.OTHER:d}
        WHEN stores.version <= staged.version_seq THEN {Base.IGNORED:d}
        ELSE {Base.HISTORY:d} END"""


def _compared(options: Import, rows: str) -> str:
    """Return the WITH of `named`: the staged rows that a condition selects, compared.

    Its parameters are $3 and $4, version and epoch of the list, and $5, the column of keys.
    """
    found, count = _STORES.get(options.match, _WITH_KEY)
    memory, given = "", "CAST(NULL AS text) AS memory_name, CAST(NULL AS text) AS memory_address"
    if options.key_column is not None:
        memory = """LEFT JOIN external_ids AS known
          ON known.value = staged.key AND known.column_name = CAST($5 AS text)"""
        given = "known.given_name AS memory_name, known.given_address AS memory_address"
    return f"""WITH based AS (
      SELECT staged.*, {new_name(options)} AS new_name, stores.id AS store, stores.name AS old_name,
        stores.address AS old_address, stores.version AS store_version, {given},
        {_base(options)} AS base,
        {count} AS matches,
        CASE WHEN stores.version > staged.version_seq THEN (
          SELECT max(seq) FROM changes WHERE store_id = stores.id
            AND seq <= staged.version_seq) END AS base_seq
      FROM staged {memory} LEFT JOIN stores ON stores.id = {found} WHERE {rows}),
    joined AS (
      SELECT based.*, based.address AS new_address, based.name AS given_name,
        based.address AS given_address,
        CASE based.base WHEN {Base.HISTORY:d} THEN was.name WHEN {Base.MEMORY:d}
          THEN memory_name END AS base_name,
        CASE based.base WHEN {Base.HISTORY:d} THEN CASE WHEN was.seq IS NOT NULL
          THEN coalesce(was.address, '') END
          WHEN {Base.MEMORY:d} THEN memory_address END AS base_address
      FROM based LEFT JOIN changes AS was ON was.seq = based.base_seq),
    named AS MATERIALIZED (
      SELECT joined.*, resolved.name AS decided_name, resolved.address AS decided_address,
        {_field_is("name", "joined.name IS NOT NULL", f" OR {_UNCUT}", options)} AS name_is,
        {_field_is("address", "joined.has_address = 1", "", options)} AS address_is
      FROM joined
        LEFT JOIN resolved ON resolved.line = joined.line
          AND resolved.seen = joined.store_version)"""


_NO_TEXT, _NO_NUMBER = "CAST(NULL AS text)", "CAST(NULL AS bigint)"


class _Keys(NamedTuple):
    """What `compare` says about the keys that stores get: expressions, and what they are from."""

    joins: str = ""
    attaches: str = "0"
    other_key: str = _NO_TEXT
    key_of: str = _NO_NUMBER
    like: str = _NO_NUMBER
    last_like: str = _NO_NUMBER
    first_alike: str = _NO_NUMBER
    last_alike: str = _NO_NUMBER


_ATTACHED = _Keys(
    joins="""LEFT JOIN external_ids AS own
        ON own.store_id = named.store AND own.column_name = CAST($5 AS text)
      LEFT JOIN external_ids AS held
        ON held.value = named.attach AND held.column_name = CAST($5 AS text)""",
    attaches="CASE WHEN named.attach IS NOT NULL AND own.value IS NULL THEN 1 ELSE 0 END",
    other_key="""CASE WHEN named.attach IS NOT NULL AND own.value <> named.attach
      THEN own.value END""",
    key_of="CASE WHEN held.store_id IS DISTINCT FROM named.store THEN held.store_id END",
)
_ADOPTED = _Keys(
    joins="""LEFT JOIN adoptable ON named.store IS NULL AND named.key IS NOT NULL
        AND adoptable.like_digest = named.like_digest
      LEFT JOIN stores AS liked ON liked.id = adoptable.id
      LEFT JOIN external_ids AS own
        ON own.store_id = adoptable.id AND own.column_name = CAST($5 AS text)""",
    other_key="own.value",
    like="adoptable.id",
    last_like="adoptable.last_id",
    first_alike="adoptable.first_line",
    last_alike="adoptable.last_line",
)


def _keys(options: Import) -> _Keys:
    if options.attach is not None:
        return _ATTACHED
    if options.adopt:
        return _ADOPTED
    return _Keys()


def _after(field: str, keys: _Keys) -> str:
    """Return the expression of one field after the change: a store that is adopted keeps its
    own."""
    if keys is _ADOPTED:
        return f"CASE WHEN liked.id IS NOT NULL THEN liked.{field} ELSE {_value(field)} END"
    return _value(field)


def _remembers(options: Import) -> str:
    """Return the expression of whether the source's memory would change."""
    if options.key_column is None:
        return "0"
    return """CASE WHEN named.version IS NULL AND (
        (named.name IS NOT NULL AND named.name IS DISTINCT FROM memory_name)
        OR (named.has_address = 1 AND coalesce(named.address, '') IS DISTINCT FROM memory_address))
      THEN 1 ELSE 0 END"""


_CHANGES = f"""CASE WHEN name_is = {FieldIs.WRITE:d} OR address_is = {FieldIs.WRITE:d}
    OR (name_is = {FieldIs.DECIDED:d} AND decided_name IS DISTINCT FROM old_name)
    OR (address_is = {FieldIs.DECIDED:d} AND decided_address IS DISTINCT FROM old_address)
  THEN 1 ELSE 0 END"""


def compare(options: Import) -> str:
    """Return the statement that selects `Found` of the rows at the places after $1 up to $2, but
    for those that plainly change nothing."""
    keys = _keys(options)
    remembers = _remembers(options)
    return f"""{_compared(options, "place > $1 AND place <= $2")}
    SELECT named.place, line, named.key, named.version, wrong, store, store_version, matches,
      base, name_is, address_is, {_CHANGES},
      repeated.first_line, repeated.last_line,
      repeated_attach.first_line, repeated_attach.last_line,
      substr(named.name, 1, {MAX_SHOWN_LENGTH + 1}),
      substr({_after("name", keys)}, 1, {MAX_SHOWN_LENGTH + 1}),
      substr({_after("address", keys)}, 1, {MAX_SEARCHED_LENGTH}),
      {remembers}, named.attach, {keys.attaches}, {keys.other_key}, {keys.key_of},
      {keys.like}, {keys.last_like}, {keys.first_alike}, {keys.last_alike}
    FROM named LEFT JOIN repeated ON repeated.key = named.key
      LEFT JOIN repeated_attach ON repeated_attach.key = named.attach {keys.joins}
    WHERE NOT (store IS NOT NULL AND matches = 1 AND wrong IS NULL
      AND name_is = {FieldIs.KEEP:d} AND address_is = {FieldIs.KEEP:d}
      AND repeated.first_line IS NULL AND repeated_attach.first_line IS NULL
      AND {remembers} = 0 AND {keys.attaches} = 0
      AND {keys.other_key} IS NULL AND {keys.key_of} IS NULL)
    ORDER BY named.place"""


def conflicts(options: Import) -> str:
    """Return the statement that selects what the report says about the rows `in_conflict`."""
    shown = f"1, {MAX_SHOWN_LENGTH + 1}"
    texts = ", ".join(
        f"substr(named.{column}, {shown})"
        for column in (
            "base_name",
            "base_address",
            "old_name",
            "old_address",
            "given_name",
            "given_address",
        )
    )
    listed = "place > $1 AND place <= $2 AND place IN (SELECT place FROM in_conflict)"
    return f"""{_compared(options, listed)}
    SELECT named.line, in_conflict.name_is, in_conflict.address_is, store_version,
      named.has_address, {texts},
      latest.at, (SELECT tokens.name FROM tokens WHERE number = latest.token_number),
        latest.user_name
    FROM in_conflict JOIN named ON named.place = in_conflict.place
      LEFT JOIN changes AS latest ON latest.seq = named.store_version
    WHERE named.store IS NOT NULL
    ORDER BY named.place"""


def parameters(numbers: Numbers, column: str | None) -> tuple[object, ...]:
    """Return the parameters $3 to $5 of these statements, $5 only if there is a column of keys."""
    if column is None:
        return numbers.version, numbers.epoch
    return numbers.version, numbers.epoch, column

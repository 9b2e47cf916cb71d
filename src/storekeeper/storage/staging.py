"""The rows of an import in temporary tables, and the statements that compare them with the stores,
in the words of both databases."""

from collections.abc import Iterable, Iterator
from hashlib import blake2b

from msgspec import UNSET, UnsetType

from storekeeper.domain.import_rows import Base, FieldIs
from storekeeper.domain.intake import FieldName, Import, Numbers, Resolution, SheetRow
from storekeeper.domain.problems import MAX_SHOWN_LENGTH
from storekeeper.domain.search import BLANKS, MAX_SEARCHED_LENGTH, like_text
from storekeeper.domain.stores import MAX_NAME_LENGTH

STAGED_COLUMNS = (
    *SheetRow._fields,
    "version_seq",
    "version_epoch",
    "like_digest",
)

STAGED = """staged (place INTEGER PRIMARY KEY, line bigint, key text, version text, wrong text,
  has_address bigint,
  name text, address text, attach text, id text, version_seq bigint, version_epoch text,
  like_digest bigint)"""
"""The temporary table of the rows of a file. Its types mean the same to both databases, to
SQLite that `place` is the row's number."""

DECIDED = """decided (seq bigint, place INTEGER PRIMARY KEY, id bigint, is_new bigint,
  total bigint, folded text,
  folded_name text, name_is bigint, address_is bigint, attaches bigint, remembers bigint)"""
"""The temporary table of what becomes of the rows."""

TABLES = (
    STAGED,
    DECIDED,
    # The keys that occur more than once, and the lines where their first and last rows begin.
    "repeated (key text PRIMARY KEY, first_line bigint, last_line bigint)",
    "repeated_attach (key text PRIMARY KEY, first_line bigint, last_line bigint)",
    "in_conflict (place INTEGER PRIMARY KEY, name_is bigint, address_is bigint)",
    # Each `_is` is a `FieldIs`, null if nothing was decided; the texts are for DECIDED.
    """resolved (line INTEGER PRIMARY KEY, seen bigint, name_is bigint, name text,
      address_is bigint, address text)""",
    # The stores whose names an export changes, by the name that it has there.
    "trimmed_names (name text, id bigint, PRIMARY KEY (name, id))",
    "like_stores (like_digest bigint, id bigint)",
    # Where rows without a store are like stores.
    """adoptable (like_digest bigint PRIMARY KEY, id bigint, last_id bigint, first_line bigint,
      last_line bigint)""",
)

_FIND_REPEATED = """INSERT INTO {table} SELECT {column}, min(line), max(line) FROM staged
  WHERE {column} IS NOT NULL GROUP BY {column} HAVING count(*) > 1"""
FIND_REPEATED = _FIND_REPEATED.format(table="repeated", column="key")
FIND_REPEATED_ATTACH = _FIND_REPEATED.format(table="repeated_attach", column="attach")

DELETE_REPEATS = """DELETE FROM staged WHERE place IN (
  SELECT place FROM (SELECT place, row_number() OVER (
        PARTITION BY name, address, key, attach, id, version, has_address ORDER BY place) AS number
      FROM staged WHERE wrong IS NULL
        AND (key IS NULL OR key IN (SELECT key FROM repeated))) AS alike
    WHERE number > 1)"""
"""Deletes each row that is as an earlier one: it counts once (decision 59). Two such rows have one
key, or none."""

COUNT_ROWS = "SELECT count(*), coalesce(max(place), 0) FROM staged"

_MASK = 2**63 - 1


def staged(rows: Iterable[SheetRow], options: Import) -> Iterator[tuple[object, ...]]:
    """Yield rows as the table `staged` has them."""
    for row in rows:
        seq, epoch = None, None
        if row.version is not None:
            number, _, epoch = row.version.partition(".")
            seq = int(number)
        like = None
        if options.adopt and row.name is not None:
            like = _digest(like_text(row.name, row.address))
        yield (*row, seq, epoch, like)


def likes(stores: Iterable[tuple[int, str, str | None]]) -> Iterator[tuple[int, int]]:
    """Yield the rows of `like_stores`: equal digests, where stores are like rows (decision 62)."""
    for id, name, address in stores:
        yield _digest(like_text(name, address)), id


def _digest(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=8).digest()) & _MASK


RESOLVED_COLUMNS = ("line", "seen", "name_is", "name", "address_is", "address")


def resolved(options: Import, numbers: Numbers) -> Iterator[tuple[object, ...]]:
    """Yield the decisions of a person as the table `resolved` has them: those that hold in this
    epoch, the last of each line."""
    for each in {each.line: each for each in options.decisions}.values():
        seq, _, epoch = str(each.seen).partition(".")
        if epoch in ("", numbers.epoch):
            name_is, name = _decided(each, "name", each.name)
            address_is, address = _decided(each, "address", each.address)
            yield each.line, int(seq), name_is, name, address_is, address


def _decided(
    each: Resolution, field: FieldName, text: str | UnsetType | None
) -> tuple[int | None, str | None]:
    """Return the `FieldIs` of a field that a person decided, and its text if it gets another."""
    if field in each.present:
        return int(FieldIs.KEEP), None
    if field in each.row:
        return int(FieldIs.WRITE), None
    if text is UNSET:
        return None, None
    return int(FieldIs.DECIDED), text


SOME_STORES = "SELECT id, name, address FROM stores WHERE id > $1 ORDER BY id LIMIT 1000"

FIND_ADOPTABLE = """INSERT INTO adoptable
  SELECT alike.like_digest, like_stores.first, nullif(like_stores.last, like_stores.first),
    first_line,
    nullif(last_line, first_line)
  FROM (SELECT like_digest, min(line) AS first_line, max(line) AS last_line FROM staged
      WHERE wrong IS NULL AND key IS NOT NULL AND like_digest IS NOT NULL
        AND NOT EXISTS (
        SELECT 1 FROM external_ids WHERE value = staged.key AND column_name = CAST($1 AS text))
      GROUP BY like_digest) AS alike
    JOIN (SELECT like_digest, min(id) AS first, max(id) AS last
      FROM like_stores GROUP BY like_digest)
      AS like_stores ON like_stores.like_digest = alike.like_digest"""

# What is compared.

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


def trimmed(text: str) -> str:
    """Return the expression of a text as an export of it would be read."""
    lines = f"replace(replace(coalesce({text}, ''), '\r\n', '\n'), '\r', '\n')"
    return f"trim({lines}, '{BLANKS}')"


FIND_TRIMMED = f"""INSERT INTO trimmed_names
  SELECT {trimmed("name")}, id FROM stores WHERE name <> {trimmed("name")}"""
"""Finds the stores that rows of a file can mean only by a trimmed name."""


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


def _compared(options: Import, rows: str) -> str:
    """Return the WITH of `named`: the staged rows that a condition selects, compared.

    Its parameters are $3 and $4, version and epoch of the list, and $5, the column of keys.
    """
    found, count = _STORES.get(options.match, _WITH_KEY)
    by_key = options.key_column is not None
    unversioned = Base.MEMORY if by_key else Base.IGNORED
    base = f"""CASE WHEN staged.version_seq IS NULL THEN {unversioned:d}
        WHEN staged.version_epoch <> CAST($4 AS text) OR staged.version_seq > CAST($3 AS bigint)
          THEN {Base.UNKNOWN:d}
        WHEN staged.id <> CAST(stores.id AS text) THEN {Base.OTHER:d}
        WHEN stores.version <= staged.version_seq THEN {Base.IGNORED:d}
        ELSE {Base.HISTORY:d} END"""
    if options.on_conflict == "ignore-version":
        base = f"coalesce({Base.IGNORED:d}, CAST($3 AS bigint), length(CAST($4 AS text)))"
    memory, given = "", "CAST(NULL AS text) AS memory_name, CAST(NULL AS text) AS memory_address"
    if by_key:
        memory = """LEFT JOIN external_ids AS known
          ON known.value = staged.key AND known.column_name = CAST($5 AS text)"""
        given = "known.given_name AS memory_name, known.given_address AS memory_address"
    return f"""WITH based AS (
      SELECT staged.*, {new_name(options)} AS new_name, stores.id AS store, stores.name AS old_name,
        stores.address AS old_address, stores.version AS store_version, {given}, {base} AS base,
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


_NO_ADOPTION = ", ".join(["CAST(NULL AS bigint)"] * 4)


def compare(options: Import) -> str:
    """Return the statement that selects `Found` of the rows at the places after $1 up to $2, but
    for those that plainly change nothing."""
    remembers = "0"
    if options.key_column is not None:
        remembers = """CASE WHEN named.version IS NULL AND (
            (named.name IS NOT NULL AND named.name IS DISTINCT FROM memory_name)
            OR (named.has_address = 1 AND coalesce(named.address, '') IS DISTINCT
              FROM memory_address))
          THEN 1 ELSE 0 END"""
    attaches, other, taken, joins = "0", "CAST(NULL AS text)", "CAST(NULL AS bigint)", ""
    adoption = _NO_ADOPTION
    name, address, like = _value("name"), _value("address"), ""
    if options.attach is not None:
        joins = """LEFT JOIN external_ids AS own
            ON own.store_id = named.store AND own.column_name = CAST($5 AS text)
          LEFT JOIN external_ids AS held
            ON held.value = named.attach AND held.column_name = CAST($5 AS text)"""
        attaches = "CASE WHEN named.attach IS NOT NULL AND own.value IS NULL THEN 1 ELSE 0 END"
        other = (
            "CASE WHEN named.attach IS NOT NULL AND own.value <> named.attach THEN own.value END"
        )
        taken = "CASE WHEN held.store_id IS DISTINCT FROM named.store THEN held.store_id END"
    elif options.adopt:
        joins = """LEFT JOIN adoptable ON named.store IS NULL AND named.key IS NOT NULL
            AND adoptable.like_digest = named.like_digest
          LEFT JOIN stores AS liked ON liked.id = adoptable.id
          LEFT JOIN external_ids AS own
            ON own.store_id = adoptable.id AND own.column_name = CAST($5 AS text)"""
        other = "own.value"
        adoption = "adoptable.id, adoptable.last_id, adoptable.first_line, adoptable.last_line"
        like = "WHEN liked.id IS NOT NULL THEN liked."
    if like:
        name = f"CASE {like}name ELSE {name} END"
        address = f"CASE {like}address ELSE {address} END"
    return f"""{_compared(options, "place > $1 AND place <= $2")}
    SELECT named.place, line, named.key, named.version, wrong, store, store_version, matches,
      base, name_is,
      address_is,
      CASE WHEN name_is = {FieldIs.WRITE:d} OR address_is = {FieldIs.WRITE:d}
        OR (name_is = {FieldIs.DECIDED:d} AND decided_name IS DISTINCT FROM old_name)
        OR (address_is = {FieldIs.DECIDED:d} AND decided_address IS DISTINCT FROM old_address)
        THEN 1 ELSE 0 END,
      repeated.first_line, repeated.last_line, repeated_attach.first_line,
        repeated_attach.last_line,
      substr(named.name, 1, {MAX_SHOWN_LENGTH + 1}), substr({name}, 1, {MAX_SHOWN_LENGTH + 1}),
      substr({address}, 1, {MAX_SEARCHED_LENGTH}), {remembers}, named.attach, {attaches}, {other},
        {taken}, {adoption}
    FROM named LEFT JOIN repeated ON repeated.key = named.key
      LEFT JOIN repeated_attach ON repeated_attach.key = named.attach {joins}
    WHERE NOT (store IS NOT NULL AND matches = 1 AND wrong IS NULL
      AND name_is = {FieldIs.KEEP:d} AND address_is = {FieldIs.KEEP:d}
      AND repeated.first_line IS NULL AND repeated_attach.first_line IS NULL
      AND {remembers} = 0 AND {attaches} = 0 AND {other} IS NULL AND {taken} IS NULL)
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

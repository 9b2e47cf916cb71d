"""The rows of an import in temporary tables, in the words of both databases."""

from collections.abc import Iterable, Iterator
from hashlib import blake2b

from msgspec import UNSET, UnsetType

from storekeeper.domain.import_rows import FieldIs
from storekeeper.domain.intake import FieldName, Import, Numbers, Resolution, SheetRow
from storekeeper.domain.search import BLANKS, like_text

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


def trimmed(text: str) -> str:
    """Return the expression of a text as an export of it would be read."""
    lines = f"replace(replace(coalesce({text}, ''), '\r\n', '\n'), '\r', '\n')"
    return f"trim({lines}, '{BLANKS}')"


FIND_TRIMMED = f"""INSERT INTO trimmed_names
  SELECT {trimmed("name")}, id FROM stores WHERE name <> {trimmed("name")}"""
"""Finds the stores that rows of a file can mean only by a trimmed name."""

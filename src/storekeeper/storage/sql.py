"""The tables of a collection and their columns, the same in every database.

Both databases make their statements from these names, and a copy transfers just these tables.
`statements_of_tables` says what each column means.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args, get_type_hints

from storekeeper.domain.changes import MAX_PAGE_BYTES, Change, ChangesPage, ChangesQuery
from storekeeper.domain.errors import CannotStart, Unavailable
from storekeeper.domain.search import FOLDING, MAX_WORDS
from storekeeper.domain.stores import MAX_EXTERNAL_LENGTH, MAX_INTEGER, MAX_NAME_LENGTH
from storekeeper.domain.tokens import Token

CONTENT = {"name": str, "address": str}
"""What clients say about a store: the fields of `stores.Payload`."""

FIELDS = ", ".join(CONTENT)
"""The columns of CONTENT, as statements name them."""

STORES = {"id": int, **CONTENT, "version": int}
"""A store as its latest change left it; `version` is the number of that change."""

CHANGES = {
    "seq": int,
    "store_id": int,
    **CONTENT,
    "at": int,
    "count": int,
    "token_number": int,
    "user_name": str,
}
"""What a change made of its store."""

SEARCHED = {**STORES, "folded": str, "folded_name": str}
"""All columns of a store: `folded` is what `search.folded` returns of it, and `folded_name` what
`search.fold` returns of its name."""

OF_CHANGE = {"id": "store_id", "version": "seq"} | {name: name for name in CONTENT}
"""For each column of a store, the column of its latest change."""

KEYS = {"n": int, "key": str, "request": int, "seq": int, "at": int, "result": str}
"""The Idempotency-Keys that are remembered (decision 36), numbered in the order in which they
were used."""

TOKENS = {
    name: str if str in (kind, *get_args(kind)) else int
    for name, kind in get_type_hints(Token).items()
}
"""A token. Nothing deletes one, so its number and its name are unique for ever."""

EXTERNAL_IDS = {
    "store_id": int,
    "column_name": str,
    "value": str,
    "given_name": str,
    "given_address": str,
}
"""The keys that outside systems have for stores (decision 52): a store has one at most of each
column of a file, and a value of a column names one store. With each, what its source last gave
for it (decision 59)."""

IMPORTS = {
    "first_seq": int,
    "last_seq": int,
    "undoes": int,
    "file": str,
    "token_number": int,
    "user_name": str,
}
"""The imports that changed something, and what undid one (decision 61)."""

KEY_CHANGES = {
    "seq": int,
    "column_name": str,
    "value": str,
    "attached": int,
    "given_name": str,
    "given_address": str,
    "new_name": str,
    "new_address": str,
}
"""What a change of an import did to the key that it found its store by, so that it can be
undone."""

_TOKENS = f"SELECT {', '.join(TOKENS)} FROM tokens"  # noqa: S608 - only from constants
ALL_TOKENS = f"{_TOKENS} ORDER BY number"
"""The statement that selects all tokens."""

UNREVOKED_TOKENS = f"{_TOKENS} WHERE revoked IS NULL ORDER BY number"
"""The statement that selects what `Collection.tokens` returns."""

COUNTED_TOKENS = """(SELECT count(*) FROM tokens), (SELECT count(revoked) FROM tokens),
  (SELECT count(used) FROM tokens)"""
"""Selects how many tokens there are, were revoked, and were used: the end of `Traces`."""

SCHEMA_NUMBER = 9
"""The number of the first schema that has a way to later ones: those before it were never
released."""

TABLES: dict[str, Mapping[str, type]] = {
    "stores": SEARCHED,
    "changes": CHANGES,
    "keys": KEYS,
    "tokens": TOKENS,
    "external_ids": EXTERNAL_IDS,
    "imports": IMPORTS,
    "key_changes": KEY_CHANGES,
}
"""All tables, in the order in which they can be filled. The first column of each is its key, for
external_ids the first two."""

TABLES_OF_9 = ("stores", "changes", "keys", "tokens", "external_ids")
"""The tables of the first schema."""


def statements_of_tables(
    integer: str, text: str, options: str = "", options_by_key: str = ""
) -> str:
    """Return the statements that create TABLES_OF_9, without their indexes, in the words of a
    database.

    These are its types, the end of each CREATE TABLE, and the end for a table that is stored by its
    key.
    """
    return f"""
    CREATE TABLE stores (
      id      {integer} PRIMARY KEY,  -- 1..n without a gap
      name    {text} NOT NULL CHECK (length(name) BETWEEN 1 AND {MAX_NAME_LENGTH}),
      folded  {text} NOT NULL,        -- the search text; a read of it must not read the address
      version {integer} NOT NULL,     -- the seq of its latest change
      address {text}                  -- null: not given
    ) {options};
    CREATE TABLE changes (
      seq      {integer} PRIMARY KEY, -- 1..n without a gap; the greatest is the version
      store_id {integer} NOT NULL,    -- no REFERENCES: PostgreSQL would lock each store
      -- What the store became:
      name     {text} NOT NULL CHECK (length(name) BETWEEN 1 AND {MAX_NAME_LENGTH}),
      address  {text},
      at       {integer} NOT NULL,    -- never falls; as all times: milliseconds since 1970, UTC
      count    {integer} NOT NULL,    -- how many stores there were after it
      token_number {integer} NOT NULL -- of the token that wrote it; 0: none
    ) {options};
    CREATE TABLE keys (
      n       {integer} PRIMARY KEY,  -- grows; the oldest are deleted, the newest never
      -- An Idempotency-Key, perhaps after the number of a token and a blank:
      key     {text} NOT NULL UNIQUE,
      request {integer} NOT NULL,     -- a hash of its request
      seq     {integer} NOT NULL,     -- the change that is its response
      at      {integer} NOT NULL,
      result  {text}                  -- null: the response is a store
    ) {options};
    CREATE TABLE tokens (
      number  {integer} PRIMARY KEY,  -- 1..n; none is deleted
      name    {text} NOT NULL UNIQUE,
      scope   {text} NOT NULL CHECK (scope IN ('read', 'write')),
      hash    {text} NOT NULL UNIQUE, -- SHA-256 in hexadecimal digits
      created {integer} NOT NULL,
      expires {integer},              -- null: never
      revoked {integer},
      used    {integer}               -- within an hour before its latest use
    ) {options};
    CREATE TABLE external_ids (
      store_id    {integer} NOT NULL,
      column_name {text} NOT NULL CHECK (length(column_name) BETWEEN 1 AND {MAX_EXTERNAL_LENGTH}),
      value       {text} NOT NULL CHECK (length(value) BETWEEN 1 AND {MAX_EXTERNAL_LENGTH}),
      PRIMARY KEY (store_id, column_name),
      UNIQUE (value, column_name)     -- in this order: a search only knows the value
    ) {options_by_key};
    """


def additions_of_10(integer: str, text: str, options: str, changes: str) -> str:
    """Return the statements that add to the tables of schema 9 what schema 10 has besides, in the
    words of a database, where the table of changes has this name."""
    return f"""
    -- The name as it is sorted.
    ALTER TABLE stores ADD COLUMN folded_name {text} NOT NULL DEFAULT '';
    -- The user whom a trusted proxy named; null: it named none.
    ALTER TABLE {changes} ADD COLUMN user_name {text};
    ALTER TABLE tokens ADD COLUMN created_by {text};    -- the name of the system's user
    ALTER TABLE tokens ADD COLUMN revoked_by {text};
    -- What the source last gave; null: nothing; empty: an empty cell.
    ALTER TABLE external_ids ADD COLUMN given_name {text};
    ALTER TABLE external_ids ADD COLUMN given_address {text};
    CREATE TABLE imports (
      first_seq {integer} PRIMARY KEY, -- the first of its changes
      last_seq  {integer} NOT NULL,
      undoes    {integer},             -- the first change of what it undid; null: it is an import
      file      {text},                -- null: not known
      token_number {integer} NOT NULL, -- as in the changes
      user_name {text}                 -- as in the changes, or the user who ran the command
    ) {options};
    CREATE TABLE key_changes (
      seq       {integer} PRIMARY KEY, -- of the change
      column_name {text} NOT NULL,
      value     {text} NOT NULL,
      -- 1: the store got the key; -1: it lost it.
      attached  {integer} NOT NULL CHECK (attached IN (-1, 0, 1)),
      given_name {text},               -- what the source had given before
      given_address {text}
    ) {options};
    """


def additions_of_11(integer: str, text: str, collection: str) -> str:
    """Return the statements that add what schema 11 has in addition to schema 10, in the words of a
    database, where the table of the collection has this name."""
    return f"""
    -- What the source gave with this change; null: not known.
    ALTER TABLE key_changes ADD COLUMN new_name {text};
    ALTER TABLE key_changes ADD COLUMN new_address {text};
    -- Grows with each import that changes what a source last gave.
    ALTER TABLE {collection} ADD COLUMN memory {integer} NOT NULL DEFAULT 0;
    """


ROW_ORDER = "1, 2"
"""The columns that give the rows of each table one order."""


_OLDER = (
    "written by an older Storekeeper: upgrade it first, by starting `storekeeper serve`"
    " with it once"
)
_NEWER = "written by a newer Storekeeper: install that version or a later one"


def check_folding(folding: int, subject: str, *, upgrade: bool) -> None:
    """Raise CannotStart if the texts of a collection are not folded as this program folds them.

    Those of an older one can be folded again only if it may be upgraded.
    """
    if folding > FOLDING:
        raise CannotStart(_NEWER, subject=subject)
    if folding < FOLDING and not upgrade:
        raise CannotStart(_OLDER, subject=subject)


def check_schema_number(number: int, known: int, subject: str, *, upgrade: bool) -> None:
    """Raise CannotStart if this program, which knows schemas up to `known`, cannot use a database.

    An older schema can be used only if it may be upgraded.
    """
    if number < SCHEMA_NUMBER:
        problem = (
            f"written before the first release (its schema is {number}): export its stores with the"
            " checkout that wrote it (storekeeper export), and import them here (storekeeper"
            " import)"
        )
    elif number > known:
        problem = (
            f"written by a newer Storekeeper (its schema is {number}, this one knows {known}):"
            " install that version or a later one"
        )
    elif number < known and not upgrade:
        problem = _OLDER
    else:
        return
    raise CannotStart(problem, subject=subject)


def changes_statement(query: ChangesQuery) -> tuple[str, tuple[int, ...]]:
    """Return the statement that selects a page, for both databases, and its parameters.

    It is one statement, so that it reads one moment: a change that commits between two statements
    would be skipped. It finds the end of the page only from the lengths, so that no content is
    loaded behind it.
    """
    order, is_behind = "ASC", ">"
    if query.newest_first:
        order, is_behind = "DESC", "<"
    after = MAX_INTEGER if query.after.seq is None else query.after.seq
    of_store, limit = "", "$2"
    values: tuple[int, ...] = (after, query.limit)
    if query.store is not None:
        of_store, limit = "AND store_id = CAST($2 AS bigint)", "$3"
        values = (after, query.store, query.limit)

    def of(seq: str, column: str) -> str:  # no join, for which PostgreSQL may read the whole table
        return f"(SELECT {column} FROM changes AS one WHERE one.seq = {seq})"  # noqa: S608 - constants

    text = f"""WITH page AS (
        SELECT seq, store_id, at, token_number FROM changes
        WHERE seq {is_behind} CAST($1 AS bigint) {of_store}
        ORDER BY seq {order} LIMIT CAST({limit} AS bigint)),
      pairs AS (
        SELECT page.*, (SELECT max(seq) FROM changes AS earlier
          WHERE earlier.store_id = page.store_id AND earlier.seq < page.seq) AS previous FROM page),
      sized AS (
        SELECT pairs.*, sum(coalesce({of("pairs.seq", "octet_length(address)")}, 0)
            + coalesce({of("pairs.previous", "octet_length(address)")}, 0))
          OVER (ORDER BY seq {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
        FROM pairs)
      SELECT (SELECT coalesce(max(seq), 0) FROM changes), epoch,
        sized.seq, sized.store_id,
        {of("sized.seq", "name")}, {of("sized.seq", "address")}, sized.at,
        (SELECT name FROM tokens WHERE number = sized.token_number), {of("sized.seq", "user_name")},
        sized.previous, {of("sized.previous", "name")}, {of("sized.previous", "address")}
      FROM collection LEFT JOIN sized ON coalesce(before, 0) < {MAX_PAGE_BYTES}
      WHERE one = 1 ORDER BY sized.seq {order}"""  # noqa: S608 - only from constants
    return text, values


def page_of(rows: Iterable[Sequence[Any]], query: ChangesQuery) -> ChangesPage:
    """Return the page in the rows of `changes_statement`.

    Raises EpochEnded if the collection has no such place, Unavailable if a restore left no row
    of the collection.
    """
    found = list(rows)
    if not found:
        raise Unavailable("The row of the collection is missing")
    version, epoch = found[0][:2]
    query.after.number(version, epoch)
    return ChangesPage([Change(*row[2:]) for row in found if row[2] is not None], version, epoch)


def search_statement(position: str) -> str:
    """Return the statement that finds the ids of stores, ascending, except for `Search.id`.

    `position` is the database's function that returns the place of a text in another one: 0 if it
    is not there, 1 if it is empty.
    """
    # CASE looks for a word only in texts that have the words before it. And it keeps PostgreSQL
    # from guessing how few these are: it would then read all stores, and sort, instead of ending at
    # the limit.
    lacking = " ".join(
        f"WHEN {position}(folded, ${number}) = 0 THEN false" for number in range(3, 3 + MAX_WORDS)
    )
    limit, text = f"${3 + MAX_WORDS}", f"${4 + MAX_WORDS}"
    return f"""SELECT id FROM (
        SELECT id FROM stores WHERE id > $1 AND id <> $2 AND CASE {lacking} ELSE true END
        ORDER BY id LIMIT {limit}) AS scanned
      UNION SELECT store_id FROM external_ids
        WHERE value = {text} AND store_id > $1 AND store_id <> $2
      ORDER BY id LIMIT {limit}"""  # noqa: S608 - only from constants

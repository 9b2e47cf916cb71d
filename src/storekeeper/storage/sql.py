"""Domain: the tables of a collection and their columns, the same in every database.

Both databases make their statements from these names, and a copy transfers just these tables.
What each column means stands in `statements_of_tables`.
"""

from collections.abc import Mapping
from typing import get_type_hints

from storekeeper.domain.errors import CannotStart
from storekeeper.domain.tokens import Token

CONTENT = {"name": str, "address": str}
"""What clients say of a store: the fields of `stores.Payload`."""

MAX_INTEGER = 2**63 - 1
"""The greatest integer of a column, in both databases."""

FIELDS = ", ".join(CONTENT)
"""The columns of CONTENT, as statements name them."""

STORES = {"id": int, **CONTENT, "version": int}
"""A store as its latest change left it; `version` is the number of that change."""

CHANGES = {"seq": int, "store_id": int, **CONTENT, "at": int, "count": int, "token_number": int}
"""What a change made of its store."""

SEARCHED = {**STORES, "folded": str}
"""All columns of a store: `folded` is what `search.folded` returns of it."""

OF_CHANGE = {"id": "store_id", "version": "seq"} | {name: name for name in CONTENT}
"""For each column of a store, the column of its latest change."""

KEYS = {"n": int, "key": str, "request": int, "seq": int, "at": int, "result": str}
"""The Idempotency-Keys that are remembered (decision 36), numbered in the order in which they
were used."""

TOKENS = {name: str if kind is str else int for name, kind in get_type_hints(Token).items()}
"""A token. Nothing deletes one, so that its number and its name are unique for ever."""

EXTERNAL_IDS = {"store_id": int, "column_name": str, "value": str}
"""The keys that outside systems have for stores (decision 52): a store has one at most of each
column of a file, and a value of a column names one store."""

MAX_EXTERNAL_LENGTH = 200
"""Characters of a key of an outside system, and of the name of its column."""

_TOKENS = f"SELECT {', '.join(TOKENS)} FROM tokens"  # noqa: S608 - of constants alone
ALL_TOKENS = f"{_TOKENS} ORDER BY number"
"""The statement that selects all tokens."""

GOOD_TOKENS = f"{_TOKENS} WHERE revoked IS NULL ORDER BY number"
"""The statement that selects what `Collection.tokens` returns."""

SCHEMA_NUMBER = 9
"""The number of the first schema that has a way to later ones: those before it were never
released."""

TABLES: dict[str, Mapping[str, type]] = {
    "stores": SEARCHED,
    "changes": CHANGES,
    "keys": KEYS,
    "tokens": TOKENS,
    "external_ids": EXTERNAL_IDS,
}
"""All tables, in the order in which they can be filled. The first column of each is its key, for
the last one the first two."""


def statements_of_tables(
    integer: str, text: str, options: str = "", options_by_key: str = ""
) -> str:
    """Return the statements that create TABLES, without their indexes, in the words of a database.

    These are its types, what ends each CREATE TABLE, and what ends that of a table that is
    stored by its key.
    """
    return f"""
    CREATE TABLE stores (
      id      {integer} PRIMARY KEY,  -- 1..n without a hole
      name    {text} NOT NULL CHECK (length(name) BETWEEN 1 AND 30),
      folded  {text} NOT NULL,        -- what is searched; before the address, which would have to be read to get here
      version {integer} NOT NULL,     -- the seq of its latest change
      address {text}                  -- null: not given
    ) {options};
    CREATE TABLE changes (
      seq      {integer} PRIMARY KEY, -- 1..n without a hole; the greatest is the collection's version
      store_id {integer} NOT NULL,    -- no REFERENCES: PostgreSQL would lock each store, and it holds by construction
      name     {text} NOT NULL CHECK (length(name) BETWEEN 1 AND 30),  -- what the store became
      address  {text},
      at       {integer} NOT NULL,    -- milliseconds since 1970, UTC, as all times that follow; never falls
      count    {integer} NOT NULL,    -- how many stores there were after it
      token_number {integer} NOT NULL -- of the token that wrote it; 0: none
    ) {options};
    CREATE TABLE keys (
      n       {integer} PRIMARY KEY,  -- grows; the oldest are deleted, the newest never
      key     {text} NOT NULL UNIQUE, -- an Idempotency-Key, perhaps behind the number of a token and a blank
      request {integer} NOT NULL,     -- a hash of the request that it was sent with
      seq     {integer} NOT NULL,     -- the change that is its response
      at      {integer} NOT NULL,
      result  {text}                  -- null: the response is a store
    ) {options};
    CREATE TABLE tokens (
      number  {integer} PRIMARY KEY,  -- 1..n; nothing is deleted
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
      UNIQUE (value, column_name)     -- in this order: a search knows the value alone
    ) {options_by_key};
    """


ROW_ORDER = "1, 2"
"""The columns by which the rows of each table have one order."""


def check_schema_number(number: int, known: int, subject: str, *, upgrade: bool) -> None:
    """Raise CannotStart if a database's schema is none that this program, which knows those up
    to `known`, can use.

    An older one can be used only if it may be upgraded.
    """
    if number < SCHEMA_NUMBER:
        problem = (
            f"written before the first release (its schema is {number}): export its stores with the checkout that"
            " wrote it (storekeeper export), and import them here (storekeeper import)"
        )
    elif number > known:
        problem = (
            f"written by a newer Storekeeper (its schema is {number}, this one knows {known}): install that version"
            " or a later one"
        )
    elif number < known and not upgrade:
        problem = "written by an older Storekeeper: upgrade it first, by starting `storekeeper serve` with it once"
    else:
        return
    raise CannotStart(problem, subject=subject)

"""Imports and exports of a database, by the commands, and what they find or leave in it."""

from storekeeper.domain.stores import Payload
from tests.harness.client import load
from tests.harness.collection import run as run_async
from tests.harness.collection import stores
from tests.harness.command import Done, run
from tests.harness.databases import Database, Sqlite, handle

TRICKY = [
    Payload("Main Street", "1 Main Street, Springfield"),
    Payload('The "Corner"', 'Say "hi"'),
    Payload("Two\nlines", "a\r\nb\rc\n"),
    Payload(" blanks ", "\t"),
    Payload("=1+1", "'"),
    Payload("店舗 🏪", "é e\u0301 \u2028"),
    Payload("\ufeffmark", "x" * 100_000),
    Payload("null"),
]


def command(name: str, database: Sqlite, *args: str, stdin: bytes = b"") -> Done:
    """Run a command on a database, which an import makes."""
    creates = ["--create"] * (name == "import")
    return run(name, "--database", database.url, *creates, *args, stdin=stdin)


def fill_with(database: Database, payloads: list[Payload]) -> None:
    load(database.url, payloads)


def content(database: Database) -> list[tuple[str, str | None]]:
    async def main() -> list[tuple[str, str | None]]:
        async with handle(database) as collection:
            listed = await stores(collection)
            assert [store["id"] for store in listed] == list(range(1, len(listed) + 1))
            return [(store["name"], store["address"]) for store in listed]

    return run_async(main())

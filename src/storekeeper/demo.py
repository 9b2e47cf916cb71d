"""The list of `serve --demo`: 1,000 made-up stores with a history of six weeks. Imports `databases`, the domain."""

import random
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec.structs import replace

from storekeeper import databases
from storekeeper.errors import CannotStart
from storekeeper.search import folded
from storekeeper.settings import Settings
from storekeeper.tables import TABLES
from storekeeper.tokens import generate, hashed

_TOWNS = """Bath BA1|Bristol BS1|Cambridge CB2|Canterbury CT1|Cardiff CF10|Chester CH1|Cork T12|Derby DE1|Dublin D02
Dún Laoghaire A96|Durham DH1|Edinburgh EH2|Exeter EX1|Galway H91|Glasgow G1|Hull HU1|Inverness IV1|Leeds LS1|Leith EH6
Lincoln LN1|Margate CT9|Norwich NR1|Oxford OX1|Penzance TR18|Perth PH1|Plymouth PL1|Portsmouth PO1|Ramsgate CT11
Ripon HG4|Sheffield S1|St Andrews KY16|St Ives TR26|Stirling FK8|Swansea SA1|Truro TR1|Whitby YO22|Winchester SO23
Wrexham LL13|York YO1|Youghal P36""".replace("\n", "|").split("|")
_PLACES = """Abbey|Airport|Arcade|Bridge|Canal Side|Castle Hill|Cathedral|Corn Exchange|East Gate|Harbour|Library
Lighthouse|Market Hall|Museum|North Gate|Old Mill|Orchard|Park|Pier|Quayside|Riverside|Station|Tram Depot|University
Waterside""".replace("\n", "|").split("|")
_STREETS = ("High Street", "Mill Lane", "Quay Road", "Station Approach", "Custom House Lane", "Canons Road")
_NAMES = ("anna", "erik", "erp", "noor")
_DAY = 86_400_000
_BEGIN_DAYS, _IMPORT_DAYS = 42, 9
_COUNT, _AT_FIRST, _EDITS, _IMPORTED = 1000, 960, 260, 33


@contextmanager
def prepared(settings: Settings) -> Iterator[tuple[Settings, str]]:
    """Make the database, for as long as this lasts; yield its settings, and a token that may write."""
    if settings.database != Settings().database:
        raise CannotStart("--demo has a database of its own: leave --database out")
    with TemporaryDirectory(prefix="storekeeper-demo-") as folder:
        url = f"sqlite:///{Path(folder, 'demo.db')}"
        yield replace(settings, database=url, auth=settings.auth or "writes"), fill(url)


def fill(url: str) -> str:
    """Fill a new database; return a token of it that may write. Raises CannotStart."""
    chance, now, text = random.Random(1), time.time_ns() // 1_000_000, generate()  # noqa: S311 - no secret
    changes = list(_changes(chance, now))
    latest = {change["store_id"]: _store(change) for change in changes}
    hashes = [hashed((text if name == _NAMES[0] else generate()).encode()) for name in _NAMES]
    of_all = {"scope": "write", "created": now - _BEGIN_DAYS * _DAY}
    tokens = [
        {"number": number, "name": name, "hash": hash, **of_all}
        for number, (name, hash) in enumerate(zip(_NAMES, hashes, strict=True), 1)
    ]
    stores = [latest[id] for id in sorted(latest)]
    with databases.database(url).target() as target:
        for table, rows in {"stores": stores, "changes": changes, "tokens": tokens}.items():
            target.fill(table, _rows(table, rows))
        target.finish(None)
    return text


def _store(change: dict[str, Any]) -> dict[str, Any]:
    searched = folded(change["name"], change["address"])
    return {**change, "version": change["seq"], "id": change["store_id"], "folded": searched}


def _rows(table: str, rows: Iterable[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    return (tuple(row.get(column) for column in TABLES[table]) for row in rows)


def _changes(chance: random.Random, now: int) -> Iterator[dict[str, Any]]:
    """Yield changes in their order: an import, then single ones by day, and a second import in between."""
    contents = [_content(chance, place, *town.rsplit(" ", 1)) for place in _PLACES for town in _TOWNS]
    chance.shuffle(contents)
    begin = now - _BEGIN_DAYS * _DAY
    edits = [(begin + chance.randrange(_DAY, now - begin), chance.randint(1, 4), 0) for _ in range(_EDITS)]
    edits += [(now - _IMPORT_DAYS * _DAY, 3, 0)] * _IMPORTED
    edits += [
        (begin + chance.randrange(_DAY, now - begin), chance.randint(1, 2), 1) for _ in range(_COUNT - _AT_FIRST)
    ]
    count = 0
    for seq, (at, by, is_new) in enumerate([(begin, 3, 1)] * _AT_FIRST + sorted(edits), 1):
        count += is_new
        id = count if is_new else chance.randint(1, count)
        if not is_new:
            contents[id - 1] = _edited(chance, *contents[id - 1])
        name, address = contents[id - 1]
        number = {"seq": seq, "store_id": id, "count": count, "at": at, "token_number": by}
        yield {**number, "name": name, "address": address}


def _content(chance: random.Random, place: str, town: str, postcode: str) -> tuple[str, str | None]:
    address = f"{chance.randint(1, 180)} {chance.choice(_STREETS)}, {town} {postcode}"
    return f"{town} {place}", address if chance.random() < 0.96 else None


def _edited(chance: random.Random, name: str, address: str | None) -> tuple[str, str | None]:
    if chance.random() < 0.4 and len(name) < 22:
        return f"{name} {chance.choice(['Kiosk', 'Coffee', 'Express'])}", address
    town = (address or name).rpartition(", ")[2]
    return name, f"{chance.randint(1, 180)} {chance.choice(_STREETS)}, {town}"

"""The list of `serve --demo`: 1,000 made-up stores with a history of six weeks."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from storekeeper.domain.errors import CannotStart
from storekeeper.domain.search import fold, folded
from storekeeper.domain.tokens import generate, hashed
from storekeeper.settings import Settings
from storekeeper.storage import clock, databases
from storekeeper.storage.sql import TABLES

_TOWNS = """
Bath BA1|Bristol BS1|Cambridge CB2|Canterbury CT1|Cardiff CF10|Chester CH1|Cork T12|Derby DE1
Dublin D02|Dún Laoghaire A96|Durham DH1|Edinburgh EH2|Exeter EX1|Galway H91|Glasgow G1|Hull HU1
Inverness IV1|Leeds LS1|Leith EH6|Lincoln LN1|Margate CT9|Norwich NR1|Oxford OX1|Penzance TR18
Perth PH1|Plymouth PL1|Portsmouth PO1|Ramsgate CT11|Ripon HG4|Sheffield S1|St Andrews KY16
St Ives TR26|Stirling FK8|Swansea SA1|Truro TR1|Whitby YO22|Winchester SO23|Wrexham LL13|York YO1
Youghal P36
"""
_PLACES = """
Abbey|Airport|Arcade|Bridge|Canal Side|Castle Hill|Cathedral|Corn Exchange|East Gate|Harbour
Library|Lighthouse|Market Hall|Museum|North Gate|Old Mill|Orchard|Park|Pier|Quayside|Riverside
Station|Tram Depot|University|Waterside
"""
_STREETS = (
    "High Street",
    "Mill Lane",
    "Quay Road",
    "Station Approach",
    "Custom House Lane",
    "Canons Road",
)
_NAMES = ("anna", "erik", "erp", "noor")
_ERP = 3
_DAY = 86_400_000
_BEGIN, _SECOND_IMPORT = 42 * _DAY, 9 * _DAY
_COUNT, _CREATED, _EDITS, _IMPORTED = 1000, 40, 260, 33


@contextmanager
def database_of(settings: Settings) -> Iterator[tuple[str, str]]:
    """Make a database for as long as this context lasts; yield its URL, and a token that may
    write."""
    if settings.database != Settings().database:
        raise CannotStart("--demo has its own database: leave --database out")
    with TemporaryDirectory(prefix="storekeeper-demo-") as folder:
        url = f"sqlite:///{Path(folder, 'demo.db')}"
        text = generate()
        _fill(url, text)
        yield url, text


def _fill(url: str, text: str) -> None:
    now = clock.now()
    changes = list(_changes(random.Random(1), now))  # noqa: S311 - no secret
    # The latest change of each, in the order of their creation.
    stores = {change["id"]: change for change in changes}.values()
    texts = (text, generate(), generate(), generate())
    tokens = [
        {
            "number": number,
            "name": name,
            "scope": "write",
            "hash": hashed(secret.encode()),
            "created": now - _BEGIN,
        }
        for number, (name, secret) in enumerate(zip(_NAMES, texts, strict=True), 1)
    ]
    with databases.database(url).target() as target:
        for table, rows in {"stores": stores, "changes": changes, "tokens": tokens}.items():
            target.fill(table, (tuple(row.get(column) for column in TABLES[table]) for row in rows))
        target.finish(None)


def _changes(chance: random.Random, now: int) -> Iterator[dict[str, Any]]:
    """Yield changes in their order, with the columns of their stores: an import, single ones,
    and one more import."""

    def street() -> str:
        return f"{chance.randint(1, 180)} {chance.choice(_STREETS)}"

    towns = [town.rpartition(" ") for town in _names(_TOWNS)]
    both = [
        (f"{town} {place}", f"{town} {code}")
        for place in _names(_PLACES)
        for town, _, code in towns
    ]
    both = chance.sample(both, _COUNT)
    names = [name for name, _ in both]
    addresses = [f"{street()}, {town}" if chance.random() < 0.96 else None for _, town in both]
    later = [(now - _SECOND_IMPORT, _ERP, False)] * _IMPORTED
    for n in range(_EDITS + _CREATED):
        at = now - chance.randrange(_BEGIN - _DAY)
        later.append((at, chance.randint(1, 4), n >= _EDITS))
    first = [(now - _BEGIN, _ERP, True)] * (_COUNT - _CREATED)
    count = 0
    for seq, (at, by, is_new) in enumerate(first + sorted(later), 1):
        if is_new:
            count += 1
            id = count
        else:
            id = chance.randint(1, count)
        n = id - 1
        if not is_new and chance.random() < 0.4 and len(names[n]) < 22:
            names[n] += chance.choice((" Kiosk", " Coffee", " Express"))
        elif not is_new:
            addresses[n] = f"{street()}, {both[n][1]}"
        store = {"id": id, "name": names[n], "address": addresses[n], "version": seq}
        change = {"seq": seq, "store_id": id, "count": count, "at": at, "token_number": by}
        texts = {"folded": folded(names[n], addresses[n]), "folded_name": fold(names[n])}
        yield store | change | texts


def _names(text: str) -> list[str]:
    return text.strip().replace("\n", "|").split("|")

"""What an import decides, without a database."""

import tracemalloc
from collections.abc import Iterator

from storekeeper.domain.import_plan import ImportPlan
from storekeeper.domain.import_rows import Base, FieldIs, Found
from storekeeper.domain.intake import Import, Numbers

NUMBERS = Numbers(10, 10, "abcdefgh", 0)


def found(rows: int) -> Iterator[Found]:
    """Yield rows that mean stores, and every second of them with a key again."""
    nothing = dict.fromkeys(Found._fields)
    of_all = {"store_version": 1, "matches": 1, "base": Base.IGNORED, "changes": 1}
    of_all |= {"name_is": FieldIs.WRITE, "address_is": FieldIs.KEEP, "remembers": 0, "attaches": 0}
    texts = {"given": "Name", "name": "Name"}
    for place in range(1, rows + 1):
        first = place - 1 if place % 2 == 0 else None
        own = {"place": place, "line": place, "key": str(place), "id": place, "first_line": first}
        yield Found(**(nothing | of_all | texts | own))  # type: ignore[arg-type]  # of many types


def test_what_is_kept_of_rows_does_not_grow_with_the_file() -> None:
    def peak(rows: int) -> int:
        plan = ImportPlan(Import("id", skip_bad=True), NUMBERS, lambda _line, _why: None)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        for _ in plan.decide(found(rows)):
            pass
        assert (plan.report.replaced, plan.report.bad) == (rows // 2, rows // 2)
        return tracemalloc.get_traced_memory()[1] - before

    tracemalloc.start()
    try:
        assert peak(20_000) < 1.5 * peak(4_000)
    finally:
        tracemalloc.stop()

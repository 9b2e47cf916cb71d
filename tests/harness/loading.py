"""How tests put many stores into a collection at once: by an import."""

from collections.abc import Iterable

from storekeeper.domain.import_plan import ImportPlan
from storekeeper.domain.intake import Import, NeedsMatch, SheetRow
from storekeeper.domain.stores import Payload
from storekeeper.storage.collection import Collection
from storekeeper.storage.intake import import_rows
from storekeeper.storage.sessions import Session


async def add_all(
    collection: Collection, payloads: Iterable[Payload], *, only_if_empty: bool = False
) -> range:
    """Create stores in their order, or none; return their ids."""
    return await collection.in_session(
        lambda session: load_into(session, payloads, only_if_empty=only_if_empty)
    )


def load_into(
    session: Session, payloads: Iterable[Payload], *, only_if_empty: bool = False
) -> range:
    """Create stores in their order, or none; return their ids. Read them once, and keep none.

    With `only_if_empty`, a collection that has stores is left as it is, and the result is range(0).
    """
    try:
        plan = import_rows(session, rows_of(payloads), Import(add=not only_if_empty))
    except NeedsMatch:
        return range(0)
    assert isinstance(plan, ImportPlan)
    return plan.ids


def rows_of(payloads: Iterable[Payload]) -> Iterable[SheetRow]:
    """Return the rows that create these stores."""
    return (
        SheetRow(place, place, None, None, None, 1, each.name, each.address, id=str(place))
        for place, each in enumerate(payloads, 1)
    )

"""Mutants that have `sort`, and whose pages are not the list in that order."""

from collections.abc import Callable
from typing import Any

from tests.storeapi_check.mutants import breaks
from tests.storeapi_check.sorting import Sorting


def _without(name: str) -> Callable[..., bool]:
    """Return an `is_kept` that knows nothing of one filter."""

    def is_kept(self: Sorting, store: Any, query: dict[str, str]) -> bool:
        return Sorting.is_kept(self, store, {key: query[key] for key in query if key != name})

    return is_kept


WRONG: dict[str, dict[str, Callable[..., Any]]] = {
    "later pages have the order of now": {"began": lambda self, version: self.version},
    "sorted pages overlap": {"behind": lambda self, place: place},
    "sorted pages have gaps": {"behind": lambda self, place: place + 2},
    "sorted pages end after the first": {"link": lambda self, target: ""},
    "sign of an order is ignored": {"is_reversed": lambda self, sort: False},
    "names are sorted as they are written": {"folded": lambda self, name: name},
    "no-address is ignored": {"is_kept": _without("no-address")},
    "duplicates is ignored": {"is_kept": _without("duplicates")},
    "changed-after is ignored": {"is_kept": _without("changed-after")},
}


for wrong, methods in WRONG.items():
    breaks(f"the {wrong}", "sorted-pages-are-the-list", of=Sorting, **methods)

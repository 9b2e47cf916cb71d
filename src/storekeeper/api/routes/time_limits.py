"""How long the work for a request may take, on whichever thread it is done."""

from collections.abc import Callable
from time import monotonic

from storekeeper.domain.errors import Unavailable


def within(seconds: float, refusal: str) -> Callable[[int], None]:
    """Return a function that is called with the number of each row, and raises Unavailable once
    these seconds are over."""
    check_time = until(seconds, refusal)

    def check(row: int) -> None:
        if row % 256 == 0:
            check_time()

    return check


def until(seconds: float, refusal: str) -> Callable[[], None]:
    """Return a function that raises Unavailable once these seconds are over."""
    end = monotonic() + seconds

    def check() -> None:
        if monotonic() > end:
            raise Unavailable(refusal)

    return check

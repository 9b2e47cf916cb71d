"""Many small cases in one test, where a test for each would cost more than the cases; and thorough
cases."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


def thorough(*values: Any) -> list[Any]:
    """Return values of a test's parameter for thorough runs only."""
    return [pytest.param(value, marks=pytest.mark.thorough) for value in values]


@contextmanager
def case(name: object) -> Iterator[None]:
    """Make a failure say which case it was."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {name!r:.200}")
        raise

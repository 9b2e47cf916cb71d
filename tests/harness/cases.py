"""Many small cases in one test, as each of its own would cost more around it than in it; and
those for later."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


def thorough(*values: Any) -> list[Any]:
    """Return values of a test's parameter that are more of the same."""
    return [pytest.param(value, marks=pytest.mark.thorough) for value in values]


@contextmanager
def case(name: object) -> Iterator[None]:
    """Let a failure say which case it was."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {name!r:.200}")
        raise

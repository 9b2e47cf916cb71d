"""Many small cases in one test: each of its own would cost more around it than in it."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(name: object) -> Iterator[None]:
    """Let a failure say which case it was."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {name!r:.200}")
        raise

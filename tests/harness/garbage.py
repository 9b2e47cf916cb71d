"""What is left to the garbage collector, which runs seldom: a process may grow by gigabytes until
then."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage() -> Iterator[None]:
    """Fail if the block leaves anything that only the garbage collector frees."""
    gc.collect()
    gc.disable()
    try:
        yield
        left = gc.collect()
    finally:
        gc.enable()
    assert not left

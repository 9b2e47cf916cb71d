"""What coverage cannot handle on its own: threads that start at once, and an interrupt while it
traces."""

import sys
import time
from typing import Any

from coverage.collector import Collector


def let_threads_set_traces() -> None:
    """Let a thread try again if Python 3.11 cannot set its trace function because another thread is
    setting one.

    Otherwise the thread would die at its start, and whatever waits for it would wait for ever.
    """
    settrace = sys.settrace

    def settrace_until_set(function: Any) -> None:
        while True:
            try:
                settrace(function)
            except RuntimeError:
                time.sleep(0)
            else:
                return

    sys.settrace = settrace_until_set


def let_interrupts_pass() -> None:
    """Let the tracer take no lock: if an interrupt ended it there, the lock would stay taken, and
    the next one would wait for ever.

    The interpreter's lock is enough for what coverage does with its data.
    """
    collector: Any = Collector
    collector.lock_data = collector.unlock_data = lambda _collector: None

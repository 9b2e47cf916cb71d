"""What coverage cannot stand by itself: threads that start at once, and an interrupt in the
middle of tracing."""

import sys
import time
from typing import Any

from coverage.collector import Collector


def let_threads_set_traces() -> None:
    """Have a thread try again where Python 3.11 lets it set no trace function because another
    one is just doing that.

    It would die at its start, which is how coverage counts it, and what waits for it would wait
    for ever.
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
    """Have the tracer take no lock: one that an interrupt ends would keep it, and the next would
    wait for ever.

    The interpreter's lock is enough for what coverage does with its data.
    """
    collector: Any = Collector
    collector.lock_data = collector.unlock_data = lambda _collector: None

"""How many requests may wait in a queue, by how long the latest batches took. Imports nothing of the project."""

MAX_WAIT = 2.0
"""Seconds that an admitted request may have to wait, by the estimate; decision 30 allows 5."""

MIN_QUEUE = 64
"""Requests that may wait in any case, even if one slow batch makes the estimate small."""


class QueueLimit:
    """Back-pressure: `limit` requests may wait. To refuse the next at once is better than to respond too late.

    The queue is served in batches of up to `batch` requests, `workers` batches at once. Before the first
    measurement `limit` is `maximum`; it is never more.
    """

    __slots__ = ("_batch", "_maximum", "_seconds", "limit")

    def __init__(self, maximum: int, batch: int, workers: int = 1) -> None:
        self._maximum = maximum
        self._batch = batch * workers
        self._seconds = 0.0
        self.limit = maximum

    def record(self, seconds: float) -> None:
        """Record how long a batch took. The latest counts half, the one before a quarter, and so on."""
        self._seconds = (self._seconds + seconds) / 2
        # A new request waits for the batch under way, for those before its own, and for its own.
        batches = MAX_WAIT / max(self._seconds, 1e-6) - 1
        self.limit = min(self._maximum, max(MIN_QUEUE, int(batches * self._batch)))

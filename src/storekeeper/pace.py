"""Domain: how many may wait, from how long the latest batches took. Imports nothing of the project."""

LONGEST_WAIT = 2.0
"""Seconds that whoever is let in may have to wait, as far as can be told; decision 30 allows 5."""

HANDFUL = 64
"""Those that may wait in any case, whatever one slow batch makes of the estimate."""


class Pace:
    """Keeps `most`, how many may wait; the next ones are better refused at once than answered too late.

    What waits is served in batches of up to `batch`, `lanes` of them at once. Before anything was measured, `most`
    is `limit`; it never is more.
    """

    __slots__ = ("_batch", "_limit", "_seconds", "most")

    def __init__(self, limit: int, batch: int, lanes: int = 1) -> None:
        self._limit = limit
        self._batch = batch * lanes
        self._seconds = 0.0
        self.most = limit

    def note(self, seconds: float) -> None:
        """Take in how long a batch took. The latest counts half, the one before a quarter, and so on."""
        self._seconds = (self._seconds + seconds) / 2
        # Whoever comes now waits for the batch under way, those before its own, and its own.
        batches = LONGEST_WAIT / max(self._seconds, 1e-6) - 1
        self.most = min(self._limit, max(HANDFUL, int(batches * self._batch)))

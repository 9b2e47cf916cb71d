"""What has to hold after each case of `fuzz_http.py`: responses, the database behind them, memory. Imports apsw."""

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import apsw

from tests.campaigns.mutations import Case, End
from tests.oracles.http_reading import CONTINUE, exchanges, requests_in

MAX_GROWTH = 64 * 2**20
"""Bytes that this process may grow by after its first tenth: responses and pages that it caches are half of that."""

_STATE = "SELECT ifnull((SELECT max(id) FROM stores), 0), ifnull((SELECT max(seq) FROM changes), 0)"


class Ledger:
    """What a database holds, seen from outside, and what its clients were told that it holds."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        self.count, self.changes = self._connection.execute(_STATE).get
        self.stores = self._rows()

    def settle(self, written: list[tuple[bytes, dict[str, Any]]], unanswered: int) -> None:
        """Take down what was acknowledged; beyond that at most the unanswered may have happened."""
        count, changes = self._connection.execute(_STATE).get
        more = changes - self.changes - len(written)
        assert 0 <= more <= unanswered, f"{len(written)} acknowledged writes, {changes - self.changes} done"
        for method, store in written:
            self.count += method == b"POST"
            right = range(1, self.count + 1) if method == b"PUT" or unanswered else [self.count]
            assert store["id"] in right, f"{method!r} was answered with {store}, the last id is {self.count}"
            self.stores[store["id"]] = (store["name"], store["address"])
        if more:
            self.count, self.stores = count, self._rows()
        assert self.count == count, f"{count} stores, {self.count} acknowledged"
        self.changes = changes

    def close(self) -> None:
        """Compare everything."""
        assert self.stores == self._rows(), "a store is not what was acknowledged"
        assert sorted(self.stores) == list(range(1, self.count + 1)), "the ids have a hole"
        self._connection.close()

    def _rows(self) -> dict[int, tuple[str, str | None]]:
        rows = self._connection.execute("SELECT id, name, address FROM stores")
        return {id: (name, address) for id, name, address in rows}


def judge(case: Case, received: bytes, ledger: Ledger, figures: Counter[str], *, cut_off: bool = False) -> None:
    """Hold what came back, and what the database holds now, to what was sent. Raises AssertionError."""
    pairs = exchanges(case.sent, received, cut_off=cut_off)
    written = [
        (asked.method, response.json)
        for asked, response in pairs
        if asked and asked.writes and response.status == 200
    ]
    unanswered = sum(asked.writes for asked in islice(requests_in(case.sent), len(pairs), None)) if cut_off else 0
    ledger.settle(written, unanswered)
    figures.update(cases=1, responses=len(pairs), writes=len(written))
    figures["refusals"] += sum(response.status >= 400 for _, response in pairs)


def comparable(case: Case, received: bytes) -> bytes:
    """Return what the two adapters have to agree on: not what they know of their clients by then."""
    plain = received.replace(CONTINUE, b"")
    return plain.replace(b"connection: close\r\n", b"") if case.end is not End.WAITS else plain


class Growth:
    """What this process takes beyond what it took after the first tenth."""

    def __init__(self, figures: Counter[str], requests: int) -> None:
        self._figures = figures
        self._tenth = requests / 10
        self._base = 0

    def look(self) -> None:
        if self._figures["requests"] < self._tenth:
            return
        now = memory()
        self._base = self._base or now
        grown = (now - self._base) // 1024
        self._figures["rss_growth_kib"] = max(self._figures["rss_growth_kib"], grown)
        assert grown * 1024 <= MAX_GROWTH, f"memory grew by {grown} KiB"


def memory() -> int:
    """Return the bytes of memory that this process has; 0 where nothing tells."""
    told = Path("/proc/self/statm")
    return int(told.read_text().split()[1]) * 4096 if told.exists() else 0

"""What must be true after each case of `fuzz_http.py`: responses, the database, memory."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import apsw

from tests.campaigns.mutations import Case
from tests.harness.process import Response
from tests.oracles.entity_tags import read as read_tags
from tests.oracles.http_reading import Asked, exchanges, requests_in

MAX_GROWTH = 64 * 2**20
"""Bytes that this process may grow by after its first tenth; half of that is cached responses and
pages."""

_TAG = re.compile(r'"(\d+)\.([a-z2-7]{8})"')


class Written(NamedTuple):
    """An acknowledged write, the Idempotency-Key and If-Match that it was sent with, and its
    response."""

    method: bytes
    key: bytes | None
    response: Response
    if_match: Sequence[bytes] = ()

    @property
    def store(self) -> tuple[int, str, str | None]:
        store = self.response.json
        return store["id"], store["name"], store["address"]


class Ledger:
    """What a database holds, seen from outside, and what its clients were told that it holds.

    For each acknowledged write it predicts whether that is a change, and its version: a replay is
    not a change, nor is a PUT of the content that the store already has (decisions 35 and 36).
    """

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        self._epoch = self._connection.execute("SELECT epoch FROM collection").get
        self._keys: dict[bytes, int] = {}
        self.changes = self._changes()
        self.stores = self._rows()
        """Name, address and version of each store."""

    def settle(
        self, written: list[Written], unanswered: int = 0, barrier: Written | None = None
    ) -> None:
        """Record what was acknowledged; after that, and before the barrier, at most the unanswered
        writes may have happened.

        The barrier is an acknowledged write that is a change.
        """
        before, done = self.changes, self._changes() - (barrier is not None)
        versions = [self._take_down(each) for each in written]
        more = done - self.changes
        assert 0 <= more <= unanswered, (
            f"{self.changes - before} changes acknowledged, {done - before} done"
        )
        for each, version in zip(written, versions, strict=True):
            self._compare(each, version)
        self._take_up(done)
        if barrier is not None:
            self.settle([barrier])

    def check(self, id: int, response: Response) -> None:
        """Compare the response to a GET of a store."""
        store = response.json
        assert (store["name"], store["address"], self._version(response)) == self.stores[id], (
            response
        )

    def close(self) -> None:
        """Compare everything."""
        assert self.stores == self._rows(), "a store is not what was acknowledged"
        assert sorted(self.stores) == list(range(1, len(self.stores) + 1)), "the ids have a gap"
        self._connection.close()

    def _take_down(self, written: Written) -> int:
        """Return the version that the response must have."""
        if "idempotent-replayed" in written.response.headers:
            assert written.key is not None, "a write without a key was replayed"
            return self._keys.get(written.key, min(self._version(written.response), self.changes))
        assert written.key not in self._keys, f"key {written.key!r} was not replayed"
        id, name, address = written.store
        assert written.method == b"POST" or id in self.stores, (
            f"a {written.method!r} was answered with {written.store}"
        )
        self._check_match(written)
        if written.method == b"POST" or self.stores[id][:2] != (name, address):
            self.changes += 1
            self.stores[id] = name, address, self.changes
        version = self.stores[id][2]
        if written.key is not None:
            self._keys[written.key] = version
        return version

    def _check_match(self, written: Written) -> None:
        """Compare If-Match with the version that there was before the write (decision 34)."""
        if not written.if_match:
            return
        version = self.changes
        if written.method != b"POST":
            version = self.stores[written.store[0]][2]
        current = f'"{version}.{self._epoch}"'
        allowed = read_tags(list(written.if_match))
        assert allowed is not None, f"{written.if_match} is malformed, and was taken"
        assert "*" in allowed or current in allowed, f"{written} was done over {current}"

    def _compare(self, written: Written, version: int) -> None:
        """Compare a response with the change of its version."""
        change = """SELECT store_id, name, address, EXISTS
          (SELECT * FROM changes AS earlier
           WHERE earlier.store_id = change.store_id AND earlier.seq < change.seq)
          FROM changes AS change WHERE seq = ?"""
        *store, previous = self._connection.execute(change, (version,)).get
        assert tuple(store) == written.store, f"{store} was done, {written.store} was acknowledged"
        assert written.method != b"POST" or not previous, f"a POST replaced {store}"
        assert self._version(written.response) == version, (
            f"version {version} was done: {written.response}"
        )

    def _take_up(self, version: int) -> None:
        """Take unacknowledged changes from the database, up to a version."""
        missing = """SELECT store_id, name, address, seq FROM changes
            WHERE seq > ? AND seq <= ? ORDER BY seq"""
        for id, *store in self._connection.execute(missing, (self.changes, version)):
            self.stores[id] = tuple(store)
        self.changes = version

    def _version(self, response: Response) -> int:
        tag = _TAG.fullmatch(response.headers["etag"])
        assert tag is not None, response
        assert tag[2] == self._epoch, response
        return int(tag[1])

    def _changes(self) -> int:
        changes: int = self._connection.execute("SELECT ifnull(max(seq), 0) FROM changes").get
        return changes

    def _rows(self) -> dict[int, tuple[str, str | None, int]]:
        rows = self._connection.execute("SELECT id, name, address, version FROM stores")
        return {id: (name, address, version) for id, name, address, version in rows}


def judge(
    case: Case,
    received: bytes,
    ledger: Ledger,
    figures: Counter[str],
    *,
    cut_off: bool = False,
    barrier: Response | None = None,
) -> None:
    """Compare the responses, and what the database holds now, with what was sent. Raises
    AssertionError.

    The barrier is the response to a PUT that came after all of it, if there was one.
    """
    pairs = exchanges(case.sent, received, cut_off=cut_off)
    written = [
        Written(asked.method, _key(asked), response, asked.values(b"if-match"))
        for asked, response in pairs
        if asked and asked.writes and response.status == 200
    ]
    unanswered = (
        sum(asked.writes for asked in islice(requests_in(case.sent), len(pairs), None))
        if cut_off
        else 0
    )
    ledger.settle(written, unanswered, Written(b"PUT", None, barrier) if barrier else None)
    figures.update(cases=1, responses=len(pairs), writes=len(written))
    figures["refusals"] += sum(response.status >= 400 for _, response in pairs)


def _key(asked: Asked) -> bytes | None:
    return next((value.strip(b'"') for value in asked.values(b"idempotency-key")), None)


class Growth:
    """How much more memory this process uses than after the first tenth."""

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
    """Return the memory of this process in bytes; 0 if the system does not report it."""
    told = Path("/proc/self/statm")
    return int(told.read_text().split()[1]) * 4096 if told.exists() else 0

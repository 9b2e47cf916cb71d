"""What counts for coverage. Counting takes 60 % more time, so tests that repeat what others run do not count.

That can only make the figure lower. A module whose started processes count says
`pytestmark = pytest.mark.count_processes`.
"""

import importlib
import os
import pkgutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from coverage import Coverage

import storekeeper
from tests import ROOT

UNCOUNTED = (
    "api/test_adapters.py",
    "api/test_cache.py",
    "api/test_conditions.py",
    "api/test_contract.py",
    "api/test_decisions.py",
    "api/test_json_corpus.py",
    "api/test_openapi.py",
    "api/test_payloads.py",
    "concurrency/",
    "conformance/test_checks.py::test_a_service_that_keeps_the_contract_conforms",
    "conformance/test_checks.py::test_stores_",
    "conformance/test_checks.py::test_wrong_ids_are_seen_while_others_write",
    "domain/test_collection_failures.py",
    "domain/test_collection_model.py",
    "domain/test_commands.py",
    "domain/test_stores.py",
    "http/test_fuzz_http.py",
    "http/test_plain.py::test_a_",
    "http/test_plain.py::test_what_a_client_sends_means_the_same_whoever_else_sends_what",
    "http/test_receive_budget.py::test_what_is_not_whole_counts_from_its_first_byte_and_is_bounded",
    "http/test_refusals.py",
    "http/test_resources.py",
    "http/test_size_limits.py::test_a_head_may_be_cut_anywhere_in_a_stream_of_requests",
    "http/test_size_limits.py::test_extensions_and_trailers_have_one_limit_however_they_are_cut",
    "oracles/",
    "postgres/test_histories.py",
    "project/",
    "system/test_crash.py",
    "system/test_durability.py",
    "system/test_linearizability.py",
    "system/test_long_lists.py",
    "system/test_powerloss.py",
)
"""How the names begin of tests whose lines of the service others run too, or processes that do not count."""

_PROCESSES = "COVERAGE_PROCESS_CONFIG"
"""Where it is set, an interpreter that starts begins to count."""


class Counting:
    """Counts, in one process that runs tests, while a test runs that counts."""

    def __init__(self, config: pytest.Config) -> None:
        self._coverage = _coverage(config)
        self._processes = os.environ.get(_PROCESSES)
        self._counts = True
        if hasattr(config, "workerinput"):
            _stop()  # what imports run is counted in `import_all`
            self._counts = False

    def begin(self, test: pytest.Item) -> None:
        """Count for this test, or do not."""
        self._count(not test.nodeid.removeprefix("tests/").startswith(UNCOUNTED))
        if test.get_closest_marker("count_processes") and self._processes:
            os.environ[_PROCESSES] = self._processes
        else:
            os.environ.pop(_PROCESSES, None)

    def _count(self, counts: bool) -> None:
        if self._coverage and counts != self._counts:
            self._counts = counts
            (self._coverage.start if counts else self._coverage.stop)()


def import_all(config: pytest.Config) -> None:
    """Count what imports of the service run, here and once, before workers start that do not count theirs."""
    if _coverage(config):
        for module in pkgutil.walk_packages(storekeeper.__path__, "storekeeper."):
            importlib.import_module(module.name)
        _stop()
        del os.environ[_PROCESSES]


def forget_unfinished(folder: Path = ROOT) -> None:
    """Remove what a process has left that was killed while it saved what it had counted."""
    for path in folder.glob(".coverage.*.pid*"):
        if not _whole(path):
            path.unlink()


def _whole(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        try:
            connection.execute("SELECT version FROM coverage_schema")
            return connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        except sqlite3.DatabaseError:
            return False


def _coverage(config: pytest.Config) -> Coverage | None:
    plugin = config.pluginmanager.getplugin("_cov")
    return plugin.cov_controller.cov if plugin else None


def _stop() -> None:
    """Stop counting; a worker of pytest-xdist does so twice at once."""
    while coverage := Coverage.current():
        coverage.stop()

"""A short run of the fuzzer of imports (`make fuzz-imports` is a long one), and a broken service
that it must find."""

from pathlib import Path

import pytest

from tests.campaigns import fuzz_imports
from tests.campaigns.fuzz_imports import Found, fuzz
from tests.campaigns.hostile_sheets import KINDS, Hostile, hostile
from tests.harness.cases import thorough
from tests.harness.client import until

SEED = 20261127


@pytest.mark.parametrize("files", [12, *thorough(100)])
def test_no_file_stops_or_fills_the_service(files: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Others wait longer than a second where many tests run at once."""
    fuzz(files, SEED, 0, longest=10)
    assert capsys.readouterr().out.startswith(f"fuzz-imports files={files} ")


def test_a_file_is_named_by_its_seed_and_its_number() -> None:
    made = [hostile(SEED, number) for number in range(15)]
    assert made == [hostile(SEED, number) for number in range(15)]
    assert len({file.kind for file in made}) > len(KINDS) // 3


@pytest.mark.parametrize(
    ("limit", "file", "says"),
    [
        ("GOOD", Hostile("csv", b"", "text/csv", ""), "file x, csv, 0 bytes, ?: 400"),
        ("MAX_MEMORY", Hostile("csv", b"name\nA\n", "text/csv", "add"), "MiB more"),
    ],
)
def test_what_must_not_happen_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, file: Hostile, says: str
) -> None:
    monkeypatch.setattr(fuzz_imports, limit, set() if limit == "GOOD" else -(2**40))
    with fuzz_imports.started(tmp_path, 60) as run:
        until(lambda: run.others.requests > 1)
        with pytest.raises(Found) as found:
            run.take("x", file)
    assert says in str(found.value)

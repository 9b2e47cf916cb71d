"""The pages' tables of limits name constants that there are."""

import re
from importlib import import_module
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs/limits.md").read_text()


def test_every_constant_of_the_tables_of_limits_exists() -> None:
    found = 0
    for row in re.findall(r"^\| .*", PAGE, re.MULTILINE):
        module = None
        for before, name in re.findall(r"`(?:([a-z_.]+)\.)?(_?[A-Z][A-Z_]+)`", row.split(" | ")[2]):
            module = before or module
            if module is not None:  # one row names modules behind the constant
                assert hasattr(import_module(f"storekeeper.{module}"), name), f"{module}.{name}"
                found += 1
    assert found > 90

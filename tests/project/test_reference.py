"""The pages of docs/reference say what the code has."""

import re

import pytest

from tools import reference

PAGES = {path.stem: path.read_text() for path in reference.PAGES.glob("*.md")}


@pytest.mark.parametrize("name", reference.MADE)
def test_a_page_has_what_is_made_for_it(name: str) -> None:
    assert PAGES[name] == reference.renewed(name, PAGES[name]), "make reference"


def test_the_limits_that_clients_meet_have_the_values_of_their_constants() -> None:
    page = PAGES["limits"].partition(reference.BEGIN)[0]
    rows = re.findall(r"^\| .* \| (.*) \| `([a-z_.]+)\.([A-Z_]+)` \| .* \|$", page, re.MULTILINE)
    assert len(rows) > 8
    for shown, module, name in rows:
        assert reference.quantity(reference.constant(module, name), name, "") in shown, name

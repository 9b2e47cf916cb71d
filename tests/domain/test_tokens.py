"""The form of tokens, their names and their expiry."""

import re

import pytest

from storekeeper.domain.errors import CannotStart
from storekeeper.domain.tokens import check_name, expiry, generate, hashed, is_well_formed

DAY = 24 * 60 * 60 * 1000


def test_a_new_token_has_its_form_and_is_no_other() -> None:
    texts = {generate() for _ in range(500)}
    assert len(texts) == 500
    assert all(
        re.fullmatch(r"skt_[0-9A-Za-z]{49}", text) and is_well_formed(text.encode())
        for text in texts
    )
    assert len({hashed(text.encode()) for text in texts}) == 500
    assert set("".join(text[4:] for text in texts)) > set("0aAzZ9")


def test_a_token_with_another_character_has_not_the_form_of_one() -> None:
    text = generate()
    for place in range(len(text)):
        for other in "x0-":
            changed = text[:place] + other + text[place + 1 :]
            assert is_well_formed(changed.encode()) == (changed == text)
    for wrong in (
        "",
        "skt_",
        text[:-1],
        text + "0",
        f" {text}",
        f"{text}\n",
        text.lower(),
        "ü" * 53,
    ):
        assert not is_well_formed(wrong.encode())


@pytest.mark.parametrize("name", ["a", "CI", "shop-1.example_2", "a" * 64, "0"])
def test_a_name(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "a b", "a" * 65, "-a", ".a", "_a", "ü", "a\n", "a/b"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(CannotStart, match="NAME: expected 1 to 64 letters"):
        check_name(name)


def test_an_expiry_is_a_number_of_days() -> None:
    assert [expiry(text, 7) for text in ("1d", "90d", "36500d")] == [
        7 + days * DAY for days in (1, 90, 36_500)
    ]
    for wrong in (
        "",
        "d",
        "0d",
        "90",
        "-1d",
        "1.5d",
        "1h",
        "36501d",
        "99999d",
        "1d ",
        "1\uff19d",
        "01d",
    ):
        with pytest.raises(
            CannotStart, match="--expires: expected a number of days from 1d to 36500d, such as 90d"
        ):
            expiry(wrong, 7)

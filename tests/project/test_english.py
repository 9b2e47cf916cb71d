"""The English of pages, docstrings, comments and messages: forms that a native speaker avoids."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT

FORBIDDEN = {
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\banew\b": "again",
    r"\bholes?\b": "gap",
    r"\bbeside\b": "next to, in addition to, while … runs",
    r"\b(go|goes|went) on\b(?! the\b)": "continue",
    r"\b(is|are|be|was|were|no|still) good\b": "valid",
    r"\bgood for\b": "valid for",
    r"(?<!let )(?<!leave )(?<!left )\balone\b": "only",
    r"\b(has|had|having) to\b": "must",
    r"(?<!may )(?<!might )(?<!would )\bhave to\b": "must",
    r"\bmay not\b": "cannot, must not",
    r"(?<![Tt]here )\b(is|are|was|were) none\b": "is not one",
    r"(?<![Tt]here )\b(is|are|was|were) no (?!(longer|more|less|later|earlier)\b)": "is not a",
    r"(?<![\"'\[`])(?<!user )(?<!postgres or )\bnobody\b": "no client, no process",
    r"\b([Ss]omebody|[Ww]hoever|[Ww]homever)\b": "the client, the user, another process",
    r"\b(of|by|for|from|to|with) (whose|whom)\b": "a clause with a subject",
    r"\bof which\b": "a clause with a subject",
    r"\b(say|says|said|tell|tells|told|know|knows|knew|known) of\b": "about",
    r"[,;:.] else\b(?! if\b)": "otherwise",
    r"\bbehind (a|an|another|its|that|the|those) "
    r"(change|comma|cursor|data|head|line|lock|others|place|tag|text)\b": "after, under (a lock)",
    r"\bamid\b": "during, within",
    r"\bin so many words\b": "explicitly",
    r"\bso many (?!\w+ that\b)": "the number, `count`",
    r"\bof (then|before)\b": "earlier, at that time",
    r"\b(epoch|content|cursor|moment|one) of now\b": "the current",
    r"\b[Tt]he present (?=[a-z])": "the current",
    r"\b(the|its|their) begin\b": "the beginning",
    r"(?<!last )\bgood (tokens?|rows?|files?|keys?)\b": "valid",
    r"\b([Ww]here|as far as) one (is|was|can|sees)\b": "you, the user",
    r"(?<=[a-z]\. )Of (an?|several|those)\b": "a sentence with a subject first",
    r"\bshall\b": "is to, must",
}
"""The forms, as regular expressions, and what to say instead. A space is any white space."""

THIS = Path(__file__)
"""This module, which has all the forms."""


def pages() -> Iterator[Path]:
    """Yield the pages, and the files of the repository that people read or copy."""
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted((ROOT / "docs").rglob("*.md"))
    yield from sorted((ROOT / "src").rglob("*.md"))
    yield from (ROOT / name for name in ("Makefile", "Dockerfile"))
    yield ROOT / "src/storekeeper/api/pages/openapi.json"
    yield from sorted((ROOT / "deploy").iterdir())
    yield from sorted((ROOT / "examples").iterdir())


def modules() -> Iterator[Path]:
    for folder in ("src", "bench", "tools", "tests"):
        yield from (path for path in sorted((ROOT / folder).rglob("*.py")) if path != THIS)
    yield from sorted((ROOT / "src/storekeeper/console").glob("*.js"))


def words(path: Path) -> str:
    """Return what a page says outside its code, the comments and strings of a module, or all of
    another file.

    Each line keeps its number.
    """
    text = path.read_text()
    if path.suffix == ".py":
        lines = [""] * (text.count("\n") + 2)
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in KINDS:
                for number, line in enumerate(token.string.splitlines(), token.start[0]):
                    lines[number - 1] += f"{line} "
    elif path.suffix == ".js":
        lines = re.sub(SCRIPT_CODE, blank_script, text).splitlines()
    elif path.suffix == ".md":
        text = re.sub(r"^```.*?^```", blank, text, flags=re.DOTALL | re.MULTILINE)
        lines = re.sub(r"`[^`]*`", blank, text).splitlines()
    elif path.suffix == ".json":
        lines = text.replace("\\n", "  ").splitlines()
    else:
        lines = text.splitlines()
    return "\n".join(" ".join(line.strip(" #/*").split()) for line in lines)


def blank(code: re.Match[str]) -> str:
    return "`" + "\n" * code[0].count("\n") + "`"


SCRIPT_CODE = r"""(//.*|/\*[\s\S]*?\*/|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`)|[^/"`\n]+|[/"`]"""
"""A comment or a string of a script, as the group, or what is between them."""


def blank_script(code: re.Match[str]) -> str:
    return code[1] or " "


KINDS = {tokenize.COMMENT, tokenize.STRING}
KINDS.add(getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))  # Python 3.12 has it
"""The tokens of Python that have words for people."""


def found(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the form and what to say instead, for each forbidden form in a text."""
    for form, better in FORBIDDEN.items():
        for match in re.finditer(form.replace(" ", r"\s"), text):
            yield text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), better


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Ids have no holes.", "holes"),
        ("each row has\nto be valid", "has to"),
        ("a token that is no token of ours", "is no"),
        ("a header field that is none", "is none"),
        ("what nobody reads", "nobody"),
        ("closed; else it fails", "; else"),
        ("a folder, of whose backups the latest stay", "of whose"),
        ("the tag has the epoch of now", "epoch of now"),
        ("pages in the order of then", "of then"),
        ("a request with a good token", "good token"),
        ("it waits for so many seconds", "so many"),
        ("The list. Of a store, it is the number", "Of a"),
    ],
)
def test_a_forbidden_form_is_found(text: str, form: str) -> None:
    assert [match for _, match, _ in found(text)] == [form]


def test_plain_english_has_no_forbidden_form() -> None:
    text = (
        "There is no gap. If there are none, let alone two, continue. A client that would\n"
        'have to wait is no longer refused. It writes as the user "nobody", or goes on the wire.'
    )
    assert list(found(text)) == []


def test_of_a_script_only_comments_and_texts_are_english(tmp_path: Path) -> None:
    script = tmp_path / "script.js"
    script.write_text("if (a) b; else c(`${d} is\nno use`); // beside\n/**\n * anew */\n")
    assert sorted((line, form) for line, form, _ in found(words(script))) == [
        (1, "is no"),
        (2, "beside"),
        (4, "anew"),
    ]


def test_pages_comments_and_messages_say_it_plainly() -> None:
    places = [
        f"{path.relative_to(ROOT)}:{line}: {form!r}, say: {better}"
        for path in (*pages(), *modules())
        for line, form, better in found(words(path))
    ]
    assert places == []

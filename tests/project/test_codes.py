"""No code of ours reads a message to find out what happened: errors and problems have codes."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from storekeeper.domain.problems import WORDS
from tests import ROOT

SOURCE = ROOT / "src" / "storekeeper"
TEXTS = {"args", "message", "problem"}
"""The attributes of an error that have its message."""

READING = re.compile(
    r"message\b\)?\??\.(?:includes|indexOf|match|search|split|startsWith|endsWith)\("
    r"|\.(?:test|exec)\([^)]*message\b"
    r"|message\b\)? ?={2,3} ?[\"'`]"
)
"""What a script does to find out what a message says."""


def is_message(node: ast.AST, errors: set[str]) -> bool:
    """Return whether a node is the message of one of these errors."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str":
        return any(isinstance(each, ast.Name) and each.id in errors for each in node.args)
    return (
        isinstance(node, ast.Attribute)
        and node.attr in TEXTS
        and isinstance(node.value, ast.Name)
        and node.value.id in errors
    )


def read_in(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that compare the message of an error, cut it apart or search it."""
    handlers = [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]
    errors = {node.name for node in handlers if node.name}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            if any(is_message(each, errors) for each in (node.left, *node.comparators)):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "split" and not node.args:
                continue  # makes one line of it
            of_module = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
            method = is_message(node.func.value, errors)
            if method or (of_module and any(is_message(each, errors) for each in node.args)):
                yield node.lineno


@pytest.mark.parametrize(
    "line",
    [
        'again = "locked" in str(error)',
        'reason, _, path = str(error).partition(" - at")',
        'text = re.sub("a", "b", str(error))',
        'known = error.problem == "The disk is full"',
    ],
)
def test_code_that_reads_a_message_is_found(line: str) -> None:
    program = f"try:\n    pass\nexcept ValueError as error:\n    {line}\n"
    assert list(read_in(ast.parse(program))) == [4]


def test_no_module_reads_the_message_of_an_error() -> None:
    places = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line in read_in(ast.parse(path.read_text()))
    ]
    assert places == []


@pytest.mark.parametrize(
    "line",
    [
        'message.includes("is not the version")',
        '/"name" is required/.test(message)',
        'data.message.split(":")',
        'data.message === "Not Found"',
    ],
)
def test_a_script_that_reads_a_message_is_found(line: str) -> None:
    assert READING.search(line)


def test_no_script_of_the_console_reads_a_message() -> None:
    scripts = sorted((SOURCE / "console").glob("*.js"))
    assert [path.name for path in scripts if READING.search(path.read_text())] == []


def entries(script: Path, name: str) -> set[str]:
    """Return the names of the entries of an object in a script."""
    text = script.read_text().partition(f"const {name} = {{\n")[2].partition("\n};")[0]
    return set(re.findall(r"^  (\w+): ", text, re.MULTILINE))


def test_document_and_console_know_each_reason_that_a_row_can_have() -> None:
    document = json.loads((SOURCE / "api" / "pages" / "openapi.json").read_text())
    problem = document["components"]["schemas"]["Problem"]["properties"]["reason"]
    assert problem["enum"] == [reason.value for reason in WORDS]
    assert entries(SOURCE / "console" / "words.js", "problems") == set(WORDS)

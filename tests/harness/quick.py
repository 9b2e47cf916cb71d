"""Which tests are quick: those that start no process. Read from the code that they reach, and held while they run."""

import asyncio
import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from inspect import isclass, isfunction, ismodule
from types import CodeType

import pytest
from playwright.sync_api import sync_playwright

ROOTS = (subprocess, multiprocessing, asyncio.create_subprocess_exec, sync_playwright)
"""Who names one of these, or anything of `tests/campaigns`, starts processes."""

BY_PARAMETER = {"stored_in", "new_database", "_stop_what_tests_share"}
"""Fixtures that start a process only if a parameter of the test is `postgres`."""

EVENTS = {"subprocess.Popen", "os.fork", "os.posix_spawn"}
"""What Python tells an audit hook before it starts a process (PEP 578)."""


def is_quick(item: pytest.Item) -> bool:
    """Tell whether neither a test nor its fixtures reach what starts a process."""
    if not isinstance(item, pytest.Function):
        return False
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    if "postgres" in parameters:
        return False
    fixtures = item._fixtureinfo.name2fixturedefs
    functions = [each[-1].func for name, each in fixtures.items() if name not in BY_PARAMETER]
    return not any(_starts(function) for function in (item.function, *functions, *filter(isfunction, parameters)))


@cache
def _starts(function: Callable[..., object]) -> bool:
    seen: dict[int, object] = {}
    waiting: list[object] = [function]
    while waiting:
        value = waiting.pop()
        if any(value is root for root in ROOTS) or _module(value).startswith("tests.campaigns."):
            return True
        if id(value) not in seen:
            seen[id(value)] = value
            waiting += _named_by(value)
    return False


def _module(value: object) -> str:
    return str(getattr(value, "__name__" if ismodule(value) else "__module__", ""))


def _named_by(value: object) -> Iterator[object]:
    """Yield what the code of a function names, and of a class of the tests that of its methods."""
    value = getattr(getattr(value, "hypothesis", None), "inner_test", value)
    value = getattr(value, "__wrapped__", value)
    if isclass(value) and _module(value).startswith("tests."):
        yield from vars(value).values()
    elif isinstance(value, property):
        yield value.fget
    elif isfunction(value) and _module(value).startswith("tests."):
        names = set(_names(value.__code__))
        found = [value.__globals__[name] for name in names & value.__globals__.keys()]
        yield from found
        for module in filter(ismodule, found):
            if _module(module).startswith("tests."):
                yield from (vars(module)[name] for name in names & vars(module).keys())


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


_running: list[str] = []


def _refuse(event: str, _arguments: tuple[object, ...]) -> None:
    if event in EVENTS and _running:
        raise RuntimeError(f"{_running[-1]} is taken for quick and starts a process")


sys.addaudithook(_refuse)


@contextmanager
def no_process(name: str) -> Iterator[None]:
    """Let nothing start a process meanwhile."""
    _running.append(name)
    try:
        yield
    finally:
        _running.pop()

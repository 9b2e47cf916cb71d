"""Settings as options of commands."""

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from storekeeper.settings import DEFAULT_DATABASE, VARIABLES, Settings, make, refuse_unknown


def _parameter(field: msgspec.structs.FieldInfo) -> inspect.Parameter:
    """Return Typer's parameter for a setting."""
    kind: Any
    default: Any
    shown: bool | str
    kind, *_, text = typing.get_args(field.type)
    if typing.get_origin(kind) is tuple:
        kind = list[str]
    known = VARIABLES.get(field.name)
    default, shown = field.default, True
    if default == DEFAULT_DATABASE:  # None shows that the user named no database
        default, shown = None, DEFAULT_DATABASE
        kind = kind | None
    option = typer.Option(envvar=known, help=text, show_default=shown)
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )


def with_settings(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options of these settings to a command, which gets them as `settings`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        parameters = [
            each
            for each in inspect.signature(command).parameters.values()
            if each.name != "settings"
        ]
        parameters += [
            _parameter(field) for field in msgspec.structs.fields(Settings) if field.name in names
        ]

        @functools.wraps(command)
        def wrapped(**values: Any) -> Any:
            refuse_unknown()
            settings = make({name: values.pop(name) for name in names})
            return command(settings=settings, **values)

        signature = inspect.Signature(parameters)
        wrapped.__signature__ = signature  # type: ignore[attr-defined]  # Typer reads it
        return wrapped

    return decorate

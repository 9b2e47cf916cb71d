"""Settings as options of commands. Imports the settings."""

import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any

import typer

from storekeeper.settings import Settings, make, option, refuse_unknown, variable


def _options(*names: str) -> list[inspect.Parameter]:
    """Return Typer's parameters for settings."""
    hints = typing.get_type_hints(Settings, include_extras=True)
    defaults = dict(zip(Settings.__struct_fields__, Settings.__struct_defaults__, strict=True))
    parameters = []
    for name in names:
        kind: Any
        kind, meta = typing.get_args(hints[name])
        flag = option(name)
        if typing.get_origin(kind) is tuple:
            kind = list[str]
        if kind is bool:
            flag += "/--no-" + name.replace("_", "-")
        annotation = Annotated[kind, typer.Option(flag, envvar=variable(name), help=meta.description)]
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=annotation)
        )
    return parameters


def with_settings(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options of these settings to a command, which gets them as its argument `settings`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = [p for p in inspect.signature(command).parameters.values() if p.name != "settings"]

        def wrapped(**values: Any) -> Any:
            refuse_unknown()
            settings = make({name: values.pop(name) for name in names})
            return command(settings=settings, **values)

        wrapped.__signature__ = inspect.Signature(own + _options(*names))  # type: ignore[attr-defined]  # Typer reads it
        wrapped.__name__ = command.__name__
        wrapped.__doc__ = command.__doc__
        return wrapped

    return decorate

"""Settings as options of commands, and what holds for the values of all options."""

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer
from typer.core import TyperCommand

from storekeeper.domain.errors import CannotStart
from storekeeper.settings import DEFAULT_DATABASE, VARIABLES, Settings, make, refuse_unknown


class Commands(typer.Typer):
    """Commands that take no empty value."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """Register a command."""
        return super().command(name, cls=_Command, **options)


class _Command(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line. Raises CannotStart for an empty value, as a script gives it whose
        variable is not set: taken for "none", it would do something else than was meant."""
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        for parameter in self.params:
            value = given.get(str(parameter.name))
            if value == "" or (isinstance(value, list) and "" in value):
                subject = parameter.opts[0]
                if parameter.param_type_name == "argument":
                    subject = parameter.make_metavar(ctx).strip("[]")
                raise CannotStart("is empty: give it a value, or leave it out", subject=subject)
        return super().parse_args(ctx, args)


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

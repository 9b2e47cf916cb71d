"""One definition per setting: option, variable, default, range and help derive from it. Imports the domain."""

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta

from storekeeper.errors import CannotStart

PREFIX = "STOREKEEPER_"
_NOT_SETTINGS = {"STOREKEEPER_REQUIRE"}
"""Variables with this prefix that are no settings: this one is the test suite's."""

_SERVICE_LINK = re.compile(
    r"STOREKEEPER_(\w+_)?(SERVICE_(HOST|PORT)\w*=.*|PORT_\d+_\w+=.*|PORT=[a-z]+://.*)", re.DOTALL
)
_YES = {"yes": "true", "on": "true", "y": "true", "t": "true"}
_NO = {"no": "false", "off": "false", "n": "false", "f": "false"}
"""What the command line accepts as a boolean besides true, false, 1 and 0."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that an operator may set. `--error-detail` is also `STOREKEEPER_ERROR_DETAIL`, and so on."""

    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="Port to listen on; 0 picks a free one.")] = 8080
    database: Annotated[
        str,
        Meta(description="Where the stores are: sqlite:///relative.db, sqlite:////absolute.db or postgresql://..."),
    ] = "sqlite:///storekeeper.db"
    workers: Annotated[
        int, Meta(ge=1, le=64, description="Processes that serve; all of them share the database.")
    ] = 1
    error_detail: Annotated[
        Literal["detailed", "generic"],
        Meta(description="Whether a 400 names the fields and rules that were violated."),
    ] = "detailed"
    missing_store: Annotated[Literal["404", "500"], Meta(description="Status for an id that no store has.")] = "404"
    unknown_keys: Annotated[
        Literal["ignore", "reject"],
        Meta(description="What happens to payload keys other than name and address."),
    ] = "ignore"
    examples: Annotated[bool, Meta(description="Put 3 example stores into an empty database.")] = True
    fast_lane: Annotated[
        bool, Meta(description="Serve the API's routes without going through ASGI: same responses, faster.")
    ] = True
    ready_needs_writes: Annotated[
        bool, Meta(description="Respond to /health/ready with 503 while writes are refused, not only reads.")
    ] = False


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + name.upper()


def option(name: str) -> str:
    """Return the command line option of a setting."""
    return "--" + name.replace("_", "-")


def make(values: Mapping[str, Any]) -> Settings:
    """Return checked settings from typed or textual values; raise CannotStart with the option that is wrong."""
    try:
        return msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`")
        message = f"{option(name)} (or {variable(name)}): {reason[0].lower()}{reason[1:]}"
        if name in values and (value := repr(values[name])) not in message:
            message += f", not {value}"
        raise CannotStart(message) from None


def from_environment(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings from the environment. Raises CannotStart."""
    environ = without_service_links(environ)
    refuse_unknown(environ)
    hints = get_type_hints(Settings)
    values = {name: environ[variable(name)] for name in hints if environ.get(variable(name))}
    for name, value in values.items():
        if hints[name] is bool:
            values[name] = (_YES | _NO).get(value.lower(), value.lower())
    return make(values)


def without_service_links(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return all but the variables that Kubernetes adds for a Service whose name begins with `storekeeper`."""
    return {name: value for name, value in environ.items() if not _SERVICE_LINK.fullmatch(f"{name}={value}")}


def refuse_unknown(environ: Mapping[str, str] = os.environ) -> None:
    """Raise CannotStart if a variable looks like a setting but is none: else a typing error would go unnoticed."""
    known = {variable(name) for name in Settings.__struct_fields__} | _NOT_SETTINGS
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known:
            raise CannotStart(
                f"{name} is set but is no setting; there are {', '.join(sorted(known - _NOT_SETTINGS))}"
            )

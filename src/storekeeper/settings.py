"""The settings: each is defined once, with its default, range and help."""

import os
import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Annotated, Any, Literal, TypeAlias, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from storekeeper.domain.errors import CannotStart

PREFIX = "STOREKEEPER_"
_NOT_SETTINGS = {"STOREKEEPER_REQUIRE", "STOREKEEPER_TOKEN"}
"""Variables with this prefix that are not settings: one of the tests, and the token of
`storekeeper check`."""

DEFAULT_DATABASE = "sqlite:///storekeeper.db"
"""The only database that is made without --create: the one of a start that names no database."""

DATABASES = "sqlite:///relative.db, sqlite:////absolute.db or postgresql://..."

Auth: TypeAlias = Literal["open", "writes", "all"]
"""Which requests need a token."""

_NAME = r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*"
_ORIGIN = re.compile(rf"[a-z][a-z0-9+.-]*://(?:{_NAME}|\[[0-9a-f:]+\])(?::([1-9][0-9]{{0,4}}))?")
_ORIGIN_RULE = "expected an origin as browsers send it, such as https://shop.example"
_DEFAULT_PORT = re.compile(r"http://.*:80|https://.*:443")

_SERVICE_LINK = re.compile(
    r"STOREKEEPER_(\w+_)?(SERVICE_(HOST|PORT)\w*=.*|PORT_\d+_\w+=.*|PORT=[a-z]+://.*)", re.DOTALL
)
_ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~%!$&'()*+,;=:@-]+)+")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWN_HEADERS = frozenset(
    (
        "accept",
        "accept-language",
        "access-control-request-headers",
        "access-control-request-method",
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "idempotency-key",
        "if-match",
        "if-none-match",
        "last-event-id",
        "origin",
        "proxy-connection",
        "referer",
        "sec-fetch-site",
        "traceparent",
        "transfer-encoding",
        "upgrade",
        "x-request-id",
    )
)
"""Headers that mean something else."""

_TRUE = ("yes", "on", "y", "t")
_FALSE = ("no", "off", "n", "f")
"""What the command line accepts as a boolean in addition to true, false, 1 and 0."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that an operator may set, with its help. `--error-detail` is also
    `STOREKEEPER_ERROR_DETAIL`.

    An option with several values is repeated; its variable has all values, separated by blanks.
    """

    host: Annotated[str, "Address to listen on."] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535), "Port to listen on; 0 picks a free one."] = 8080
    uds: Annotated[
        str | None, "Path of a Unix socket to listen on instead; its owner and group can connect."
    ] = None
    database: Annotated[str, f"Where the stores are: {DATABASES}"] = DEFAULT_DATABASE
    create: Annotated[
        bool, "Make the database if it is missing. Without --database, that is so."
    ] = False
    workers: Annotated[int, Meta(ge=1, le=64), "Number of processes that serve the database."] = 1
    error_detail: Annotated[
        Literal["detailed", "generic"], "Whether a 400 names the violated fields and rules."
    ] = "detailed"
    missing_store: Annotated[
        Literal["404", "500"], "Status of the response if no store has the id."
    ] = "404"
    unknown_keys: Annotated[
        Literal["ignore", "reject"],
        "What to do with keys of a payload that are not fields of a store.",
    ] = "ignore"
    examples: Annotated[bool, "Put 3 example stores into a database that is made."] = True
    auth: Annotated[
        Auth | None,
        "Which requests need a token: none (open), writes, or all. Default: open, and only on"
        " loopback.",
    ] = None
    cors_origin: Annotated[
        tuple[str, ...],
        "Origin of another site whose pages may read and write, such as https://shop.example."
        " Repeatable.",
    ] = ()
    allowed_host: Annotated[
        tuple[str, ...],
        "Public name of a proxy in front of a service on loopback, such as stores.example."
        " Repeatable.",
    ] = ()
    root_path: Annotated[
        str, "Path below which a proxy serves it, such as /shops; links begin with that."
    ] = ""
    user_header: Annotated[
        str | None,
        "Header in which a trusted proxy names the user; the history shows that name.",
    ] = None
    trusted_proxy: Annotated[
        tuple[str, ...],
        "Address of a proxy that may name users, or unix for all clients of --uds. Repeatable.",
    ] = ()
    demo: Annotated[
        bool, "Serve 1,000 made-up stores from a temporary database; writes need its token."
    ] = False
    open: Annotated[bool, "Open the console in the browser."] = False
    ready_needs_writes: Annotated[
        bool, "Let /health/ready respond with 503 also while only writes are refused."
    ] = False
    metrics: Annotated[bool, "Count responses, and show the counts at /metrics."] = True
    access_log: Annotated[
        Literal["off", "errors", "all"], "Which responses are logged: none, errors, or all."
    ] = "off"
    log_format: Annotated[Literal["logfmt", "json"], "Format of the log on stderr."] = "logfmt"
    drain_delay: Annotated[
        int,
        Meta(ge=0, le=3600),
        "Seconds from SIGTERM, while /health/ready is 503, until no more client is accepted.",
    ] = 0


_TYPES = get_type_hints(Settings, include_extras=True)
"""The type of each setting, with its range."""

OF_ONE_START = frozenset({"create"})
"""The settings without a variable: what restarts the service must not make a database again."""

VARIABLES = {
    name: PREFIX + name.upper() for name in Settings.__struct_fields__ if name not in OF_ONE_START
}
"""The environment variable of each setting."""


def variable(name: str) -> str:
    """Return the environment variable of a setting that has one."""
    return VARIABLES[name]


def option(name: str) -> str:
    """Return the command line option of a setting."""
    return "--" + name.replace("_", "-")


def make(values: Mapping[str, Any]) -> Settings:
    """Return checked settings from typed or textual values; None means not given. Raises
    CannotStart, which names the wrong option."""
    given = {name: value for name, value in values.items() if value is not None}
    if "database" not in given:
        given["create"] = True
    settings = Settings(**{name: _converted(name, value) for name, value in given.items()})
    # Otherwise a file of that name is made. The URL is not shown: it may have a password.
    if settings.database != settings.database.strip():
        raise _invalid("database", "remove the blanks and line ends around the URL")
    for origin in settings.cors_origin:
        found = _ORIGIN.fullmatch(origin)
        if not found or int(found[1] or 0) > 65535 or _DEFAULT_PORT.fullmatch(origin):
            raise _invalid("cors_origin", _ORIGIN_RULE, origin)
    for host in settings.allowed_host:
        if not re.fullmatch(_NAME, host.lower()):
            raise _invalid(
                "allowed_host", "expected a host name without a port, such as stores.example", host
            )
    if settings.root_path and not _ROOT_PATH.fullmatch(settings.root_path):
        reason = "expected a path such as /shops, without a slash at its end"
        raise _invalid("root_path", reason, settings.root_path)
    _check_proxies(settings)
    return settings


def _check_proxies(settings: Settings) -> None:
    header, proxies = settings.user_header, settings.trusted_proxy
    if header is not None and (not _HEADER.fullmatch(header) or header.lower() in _OWN_HEADERS):
        raise _invalid(
            "user_header", "expected the name of a header that has no other meaning", header
        )
    for proxy in proxies:
        try:
            if proxy != "unix":
                ip_address(proxy)
        except ValueError:
            reason = "expected an IP address, or unix"
            raise _invalid("trusted_proxy", reason, proxy) from None
    if header and not proxies:
        raise _invalid("user_header", "name the proxy that sends it, with --trusted-proxy")
    if proxies and not header:
        raise _invalid("trusted_proxy", "name the header that it sends, with --user-header")


def _converted(name: str, value: Any) -> Any:
    """Return a value as the type of its setting. Raises CannotStart."""
    try:
        return msgspec.convert(value, _TYPES[name], strict=False)
    except msgspec.ValidationError as error:
        reason = str(error)
        raise _invalid(name, reason[0].lower() + reason[1:], value) from None


def _invalid(name: str, reason: str, value: Any = None) -> CannotStart:
    shown = "" if value is None or repr(value) in reason else f", not {value!r}"
    return CannotStart(f"{reason}{shown}", subject=f"{option(name)} (or {variable(name)})")


def is_loopback(host: str) -> bool:
    """Return whether a service that listens on this address is reachable only from this
    machine."""
    try:
        address = ip_address(host)
        # Before Python 3.13, `is_loopback` ignores the IPv4 address in an IPv6 one.
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback
    except ValueError:  # a name: any name but localhost may lead elsewhere
        return host == "localhost"


def from_environment(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings from the environment. Raises CannotStart."""
    environ = without_service_links(environ)
    refuse_unknown(environ)
    hints = get_type_hints(Settings)
    values = {name: environ[known] for name, known in VARIABLES.items() if environ.get(known)}
    return make({name: _parsed(hints[name], value) for name, value in values.items()})


def _parsed(kind: Any, value: str) -> Any:
    if kind is bool:
        return _boolean(value.lower())
    if get_origin(kind) is tuple:
        return value.split()
    return value


def _boolean(value: str) -> str:
    if value in _TRUE:
        return "true"
    if value in _FALSE:
        return "false"
    return value


def without_service_links(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables, but without those that Kubernetes adds for a Service named
    `storekeeper…`."""
    return {
        name: value
        for name, value in environ.items()
        if not _SERVICE_LINK.fullmatch(f"{name}={value}")
    }


def refuse_unknown(environ: Mapping[str, str] = os.environ) -> None:
    """Raise CannotStart if a variable with our prefix is not a setting: it may be misspelt. Also
    if the one of the database is empty: another list would be made in the place of the one meant.
    """
    if environ.get(variable("database")) == "":
        reason = "the variable is empty: name the database, or do not set it"
        raise CannotStart(reason, subject=variable("database"))
    settings = set(VARIABLES.values())
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in settings | _NOT_SETTINGS:
            raise CannotStart(
                f"not a setting; settings are {', '.join(sorted(settings))}", subject=name
            )

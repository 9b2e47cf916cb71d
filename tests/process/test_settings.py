"""Settings: defaults, variables, and what is refused."""

from functools import partial
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from storekeeper.domain.errors import CannotStart
from storekeeper.process.service import application
from storekeeper.settings import (
    VARIABLES,
    Settings,
    from_environment,
    is_loopback,
    make,
    option,
    refuse_unknown,
    variable,
)
from storekeeper.storage.databases import absolute, sqlite_path
from tests.harness.command import run
from tests.harness.process import refused

Unnamed = partial(Settings, create=True)
"""The settings of a start that names no database."""


GOOD: list[tuple[dict[str, str], Settings]] = [
    ({"PORT": "", "REQUIRE": "postgres"}, Unnamed()),
    ({"PORT": "0"}, Unnamed(port=0)),
    ({"PORT": "65535", "HOST": "::1"}, Unnamed(port=65535, host="::1")),
    ({"WORKERS": "4"}, Unnamed(workers=4)),
    *(({"EXAMPLES": no}, Unnamed(examples=False)) for no in ("false", "0", "no")),
    ({"EXAMPLES": "On"}, Unnamed()),
    ({"METRICS": "off"}, Unnamed(metrics=False)),
    (
        {"ACCESS_LOG": "errors", "LOG_FORMAT": "json"},
        Unnamed(access_log="errors", log_format="json"),
    ),
    ({"DRAIN_DELAY": "10"}, Unnamed(drain_delay=10)),
    (
        {"MISSING_STORE": "500", "UNKNOWN_KEYS": "reject"},
        Unnamed(missing_store="500", unknown_keys="reject"),
    ),
    ({"ERROR_DETAIL": "generic"}, Unnamed(error_detail="generic")),
    ({"DATABASE": "sqlite:////a.db"}, Settings(database="sqlite:////a.db")),
    (
        {"CORS_ORIGIN": "https://a.example:65535  http://[::1]:5173"},
        Unnamed(cors_origin=("https://a.example:65535", "http://[::1]:5173")),
    ),
    (
        {"AUTH": "writes", "ALLOWED_HOST": "S.example"},
        Unnamed(auth="writes", allowed_host=("S.example",)),
    ),
]


def test_a_variable_sets_its_setting() -> None:
    assert from_environment({"HOME": "/", "PORT": "1"}) == Unnamed()
    for variables, expected in GOOD:
        assert (
            from_environment({f"STOREKEEPER_{name}": value for name, value in variables.items()})
            == expected
        )


BAD = [
    *(
        ("port", value, f"expected `int` {limit}, not {value!r}")
        for value, limit in (("65536", "<= 65535"), ("-1", ">= 0"))
    ),
    ("port", "http", "expected `int`, got `str`, not 'http'"),
    ("workers", "0", "expected `int` >= 1, not '0'"),
    ("workers", "65", "expected `int` <= 64, not '65'"),
    ("drain_delay", "-1", "expected `int` >= 0, not '-1'"),
    ("drain_delay", "3601", "expected `int` <= 3600, not '3601'"),
    ("examples", "perhaps", "expected `bool`, got `str`, not 'perhaps'"),
    *(
        (name, "Some", "invalid enum value 'Some'")
        for name in (
            "error_detail",
            "access_log",
            "log_format",
            "missing_store",
            "unknown_keys",
            "auth",
        )
    ),
]


@pytest.mark.parametrize(("name", "value", "reason"), BAD)
def test_a_bad_value_is_refused_with_its_option_and_its_variable(
    name: str, value: str, reason: str
) -> None:
    with pytest.raises(CannotStart) as error:
        from_environment({variable(name): value})
    assert str(error.value) == f"{option(name)} (or {variable(name)}): {reason}"
    with pytest.raises(CannotStart):
        make({name: value})


@pytest.mark.parametrize(
    "origin",
    [
        *(
            "*",
            "null",
            "shop.example",
            "https://shop.example/",
            "https://Shop.example",
            "https://shop.example:443",
        ),
        *(
            "http://shop.example:80",
            "https://*.shop.example",
            "https://shop.example,https://b",
            "https://",
            "//a",
        ),
        *("ö://a", "https://a.example:99999", "http://[::1]:65536"),
    ],
)
def test_what_no_browser_sends_as_an_origin_is_refused(origin: str) -> None:
    for values in ([origin], ["https://shop.example", origin]):
        with pytest.raises(CannotStart) as error:
            from_environment({"STOREKEEPER_CORS_ORIGIN": " ".join(values)})
        assert str(error.value) == (
            "--cors-origin (or STOREKEEPER_CORS_ORIGIN): expected an origin as browsers send"
            " it, such as"
            f" https://shop.example, not {origin!r}"
        )


@pytest.mark.parametrize(
    "database",
    ["sqlite:///stores.db\n", "sqlite:///stores.db ", "\tpostgresql://me:secret@there/y"],
)
def test_a_database_with_a_blank_around_it_is_refused(database: str) -> None:
    """As a variable that was read from a file often has. Otherwise there would be a new, empty list
    in another file."""
    with pytest.raises(CannotStart) as error:
        from_environment({"STOREKEEPER_DATABASE": database})
    assert (
        str(error.value)
        == "--database (or STOREKEEPER_DATABASE): remove the blanks and line ends around the URL"
    )


def test_an_empty_variable_of_the_database_begins_no_list() -> None:
    with pytest.raises(CannotStart, match=r"^STOREKEEPER_DATABASE: the variable is empty"):
        refuse_unknown({"STOREKEEPER_DATABASE": ""})


@pytest.mark.parametrize(
    "host", ["*", "stores.example:8080", "http://stores.example", ".example", "[::1]", "ö"]
)
def test_what_is_no_host_name_is_refused(host: str) -> None:
    with pytest.raises(
        CannotStart, match=r"--allowed-host .* expected a host name without a port, such as stores"
    ):
        make({"allowed_host": [host]})


@pytest.mark.parametrize(
    ("loopback", "hosts"),
    [
        (True, "127.0.0.1 127.9.9.9 ::1 ::ffff:127.0.0.1 localhost"),
        (False, " 0.0.0.0 :: 192.168.1.1 ::ffff:192.168.1.1 127.0.0.1.example localhost.example"),
    ],
)
def test_what_only_this_machine_reaches_is_loopback(loopback: bool, hosts: str) -> None:
    assert {is_loopback(host) for host in hosts.split(" ")} == {loopback}


@pytest.mark.parametrize(
    "name", ["STOREKEEPER_PROT", "STOREKEEPER_", "STOREKEEPER_port", "STOREKEEPER_PORT_"]
)
def test_a_variable_that_is_no_setting_is_refused_and_all_that_are_listed(name: str) -> None:
    with pytest.raises(CannotStart) as error:
        refuse_unknown({name: "1", "STOREKEEPER_PORT": "1"})
    assert str(error.value).startswith(f"{name}: not a setting; settings are ")
    assert all(known in str(error.value) for known in VARIABLES.values())
    assert "STOREKEEPER_REQUIRE" not in str(error.value)


def test_what_kubernetes_adds_for_a_service_of_our_name_is_no_setting() -> None:
    links = {
        "STOREKEEPER_PORT": "tcp://10.0.0.7:80",
        "STOREKEEPER_SERVICE_HOST": "10.0.0.7",
        "STOREKEEPER_SERVICE_PORT_HTTP": "80",
        "STOREKEEPER_PORT_80_TCP": "tcp://10.0.0.7:80",
        "STOREKEEPER_PORT_80_TCP_ADDR": "10.0.0.7",
        "STOREKEEPER_POSTGRES_SERVICE_HOST": "10.0.0.8",
        "STOREKEEPER_POSTGRES_PORT": "tcp://10.0.0.8:5432",
        "STOREKEEPER_POSTGRES_PORT_5432_TCP_PROTO": "tcp",
    }
    assert from_environment(links) == Unnamed()
    assert from_environment({**links, "STOREKEEPER_PORT": "80"}).port == 80
    done = run("export", "--database", "sqlite:////nowhere/at/all.db", env=links)
    assert (
        b"storekeeper: /nowhere/at/all.db: there is no such database: name another one"
        in done.stderr
    )


def test_another_server_is_told_of_a_wrong_setting_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STOREKEEPER_PORT", "x")
    with pytest.raises(SystemExit) as ended:
        application()
    assert ended.value.code == 2
    assert (
        capsys.readouterr().err
        == "storekeeper: --port (or STOREKEEPER_PORT): expected `int`, got `str`, not 'x'\n"
    )


def test_what_may_make_a_database_has_no_variable_and_is_so_where_none_is_named() -> None:
    """Nothing that restarts by itself may carry it."""
    with pytest.raises(CannotStart, match="STOREKEEPER_CREATE: not a setting"):
        from_environment({"STOREKEEPER_CREATE": "1"})
    for database in ("sqlite:///storekeeper.db", "postgresql:///stores"):
        assert not from_environment({"STOREKEEPER_DATABASE": database}).create
        assert not make({"database": database}).create
    assert make({}).create
    assert make({"database": None}).create


def test_every_setting_is_an_option_a_variable_and_described() -> None:
    text = " ".join(
        run("serve", "--help", env={"COLUMNS": "400", "TERM": "dumb"}).stdout.decode().split()
    )
    for field in msgspec.structs.fields(Settings):
        assert f"{option(field.name)} " in text
        assert VARIABLES.get(field.name, "") in text
        assert get_args(field.type)[-1] in text


UNKNOWN = "--database: unknown kind of database"
BAD_STARTS: list[tuple[list[str], str]] = [
    (["--port", "70000"], "--port (or STOREKEEPER_PORT): expected `int` <= 65535, not 70000"),
    (["--port", "x"], "Invalid value for '--port'"),
    (["--workers", "0"], "--workers (or STOREKEEPER_WORKERS): expected `int` >= 1, not 0"),
    (["--error-detail", "some"], "'some' is not one of 'detailed', 'generic'"),
    (["--prot", "1"], "No such option: --prot"),
    (["extra"], "unexpected extra argument"),
    (["STOREKEEPER_PORT=x"], "(env var: 'STOREKEEPER_PORT')"),
    (["STOREKEEPER_PROT=1"], "STOREKEEPER_PROT: not a setting"),
    (["--cors-origin", "https://a.example", "--cors-origin", "*"], "as browsers send it, such as"),
    *(
        (["--root-path", path], "expected a path such as /shops, without a slash at its end")
        for path in ("shops", "/shops/", "/", "/a b", "//a", "/a?b")
    ),
    (["--user-header", "X-User"], "name the proxy that sends it, with --trusted-proxy"),
    (["--trusted-proxy", "unix"], "name the header that it sends, with --user-header"),
    (["--trusted-proxy", "proxy", "--user-header", "X-User"], "expected an IP address, or unix"),
    (["--trusted-proxy", "unix", "--user-header", "Host"], "a header that has no other meaning"),
    (["--trusted-proxy", "unix", "--user-header", "X User"], "expected the name of a header"),
    (["--host", "999.1.1.1", "--auth", "open"], "cannot listen on 999.1.1.1 port 0"),
    *(
        (["--database", url], message)
        for url, message in (
            ("mysql://x", f"{UNKNOWN} 'mysql'; use sqlite:///relative.db"),
            ("/srv/stores.db", f"{UNKNOWN} '/srv/stores.db'; use"),
            ("sqlite:/stores.db", f"{UNKNOWN} 'sqlite:/stores.db'; use"),
            ("postgresql:/me:secret@there", f"{UNKNOWN}; use"),
            ("host=there password=secret", f"{UNKNOWN}; use"),
            *(
                (f"sqlite:{end}", "names no file")
                for end in ("//x", "///", "///:memory:", "///a%00b")
            ),
            ("sqlite:///x.db?timeout=5", "in the name of a file, write %3F for a ?"),
            ("sqlite:///\udcff.db", "\\udcff.db' is not UTF-8"),
            ("postgresql:///x?host=%FF", "--database"),
            *(
                (
                    f"postgresql://me:{password}@there/y",
                    "an @ or / within user or password must be written",
                )
                for password in ("secret@x", "12/secret")
            ),
            ("postgresql://there:secret/y", "--database: port must be a number"),
            ("postgresql://there/y?sslmode=on", '--database: invalid sslmode value: "on"'),
            ("postgresql:///?service=a", '--database: definition of service "a" not found'),
            ("postgresql://there:99999/y", "--database: port must be a number from 1 to 65535"),
            ("postgresql://there/y?connect_timeout=1s", "connect_timeout must be a number"),
            (f"postgresql://there/y?port={'9' * 5000}", "--database: port must be a number"),
            (
                "postgresql://a,b/y?port=5432,0",
                "--database: port must be a number from 1 to 65535",
            ),
        )
    ),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_STARTS)
def test_a_bad_start_says_so_in_one_line_and_ends_with_2(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    environ = {"STOREKEEPER_PORT": "0", "STOREKEEPER_DATABASE": f"sqlite:///{tmp_path}/stores.db"}
    if arguments[0].startswith("STOREKEEPER"):
        environ |= dict([arguments[0].split("=")])
        arguments = []
    [line] = refused(run("serve", *arguments, env=environ))
    assert message in line
    assert "secret" not in line


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///stores.db", Path.cwd() / "stores.db"),
        ("sqlite:///data/stores.db", Path.cwd() / "data" / "stores.db"),
        ("sqlite:////var/lib/stores.db", Path("/var/lib/stores.db")),
        ("sqlite:////var/a%20b%23.db", Path("/var/a b#.db")),
        ("sqlite:///what%3F.db", Path.cwd() / "what?.db"),
    ],
)
def test_a_url_names_a_file(url: str, path: Path) -> None:
    assert sqlite_path(url) == sqlite_path(absolute(url)) == path
    assert absolute(url).startswith("sqlite:////")

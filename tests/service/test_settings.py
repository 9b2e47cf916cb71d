"""Settings: defaults, variables, and what is refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from storekeeper.databases import absolute, sqlite_path
from storekeeper.errors import CannotStart
from storekeeper.service import application
from storekeeper.settings import Settings, from_environment, is_loopback, make, option, refuse_unknown, variable
from tests.harness.command import run

NAMES = Settings.__struct_fields__


def test_an_empty_environment_gives_the_defaults() -> None:
    assert from_environment({}) == Settings()
    assert from_environment({"STOREKEEPER_PORT": "", "HOME": "/", "PORT": "1"}) == Settings()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"STOREKEEPER_PORT": "0"}, Settings(port=0)),
        ({"STOREKEEPER_PORT": "65535", "STOREKEEPER_HOST": "::1"}, Settings(port=65535, host="::1")),
        ({"STOREKEEPER_WORKERS": "4"}, Settings(workers=4)),
        ({"STOREKEEPER_EXAMPLES": "false"}, Settings(examples=False)),
        ({"STOREKEEPER_EXAMPLES": "0"}, Settings(examples=False)),
        ({"STOREKEEPER_EXAMPLES": "no"}, Settings(examples=False)),
        ({"STOREKEEPER_EXAMPLES": "On"}, Settings()),
        ({"STOREKEEPER_METRICS": "off"}, Settings(metrics=False)),
        ({"STOREKEEPER_ACCESS_LOG": "errors"}, Settings(access_log="errors")),
        ({"STOREKEEPER_LOG_FORMAT": "json"}, Settings(log_format="json")),
        ({"STOREKEEPER_DRAIN_DELAY": "10"}, Settings(drain_delay=10)),
        ({"STOREKEEPER_MISSING_STORE": "500"}, Settings(missing_store="500")),
        ({"STOREKEEPER_ERROR_DETAIL": "generic"}, Settings(error_detail="generic")),
        ({"STOREKEEPER_UNKNOWN_KEYS": "reject"}, Settings(unknown_keys="reject")),
        ({"STOREKEEPER_DATABASE": "sqlite:////a.db"}, Settings(database="sqlite:////a.db")),
        ({"STOREKEEPER_REQUIRE": "postgres"}, Settings()),
        (
            {"STOREKEEPER_CORS_ORIGIN": "https://a.example:65535  http://[::1]:5173"},
            Settings(cors_origin=("https://a.example:65535", "http://[::1]:5173")),
        ),
        ({"STOREKEEPER_AUTH": "writes"}, Settings(auth="writes")),
        ({"STOREKEEPER_ALLOWED_HOST": "Stores.example"}, Settings(allowed_host=("Stores.example",))),
    ],
)
def test_a_variable_sets_its_setting(environ: Mapping[str, str], expected: Settings) -> None:
    assert from_environment(environ) == expected


BAD = [
    ("port", "65536", "expected `int` <= 65535, not '65536'"),
    ("error_detail", "Some", "invalid enum value 'Some'"),
    ("port", "-1", "expected `int` >= 0, not '-1'"),
    ("port", "http", "expected `int`, got `str`, not 'http'"),
    ("workers", "0", "expected `int` >= 1, not '0'"),
    ("workers", "65", "expected `int` <= 64, not '65'"),
    ("error_detail", "some", "invalid enum value 'some'"),
    ("drain_delay", "-1", "expected `int` >= 0, not '-1'"),
    ("drain_delay", "3601", "expected `int` <= 3600, not '3601'"),
    ("access_log", "some", "invalid enum value 'some'"),
    ("log_format", "text", "invalid enum value 'text'"),
    ("missing_store", "410", "invalid enum value '410'"),
    ("unknown_keys", "drop", "invalid enum value 'drop'"),
    ("auth", "some", "invalid enum value 'some'"),
    ("examples", "perhaps", "expected `bool`, got `str`, not 'perhaps'"),
]


@pytest.mark.parametrize(("name", "value", "reason"), BAD)
def test_a_bad_value_is_refused_with_its_option_and_its_variable(name: str, value: str, reason: str) -> None:
    with pytest.raises(CannotStart) as error:
        from_environment({variable(name): value})
    assert str(error.value) == f"{option(name)} (or {variable(name)}): {reason}"
    with pytest.raises(CannotStart):
        make({name: value})


@pytest.mark.parametrize(
    "origin",
    [
        *("*", "null", "shop.example", "https://shop.example/", "https://Shop.example", "https://shop.example:443"),
        *("http://shop.example:80", "https://*.shop.example", "https://shop.example,https://b", "https://", "//a"),
        *("ö://a", "https://a.example:99999", "http://[::1]:65536"),
    ],
)
def test_what_no_browser_sends_as_an_origin_is_refused(origin: str) -> None:
    for values in ([origin], ["https://shop.example", origin]):
        with pytest.raises(CannotStart) as error:
            from_environment({"STOREKEEPER_CORS_ORIGIN": " ".join(values)})
        assert str(error.value) == (
            "--cors-origin (or STOREKEEPER_CORS_ORIGIN): expected an origin as browsers send it, such as"
            f" https://shop.example, not {origin!r}"
        )


@pytest.mark.parametrize(
    "database", ["sqlite:///stores.db\n", "sqlite:///stores.db ", "\tpostgresql://me:secret@there/y"]
)
def test_a_database_with_a_blank_around_it_is_refused(database: str) -> None:
    """As a variable that was read from a file often has: else there would be a new, empty list in another file."""
    with pytest.raises(CannotStart) as error:
        from_environment({"STOREKEEPER_DATABASE": database})
    assert str(error.value) == "--database (or STOREKEEPER_DATABASE): remove the blanks and line ends around the URL"


@pytest.mark.parametrize("host", ["*", "stores.example:8080", "http://stores.example", ".example", "[::1]", "ö"])
def test_what_is_no_host_name_is_refused(host: str) -> None:
    with pytest.raises(CannotStart, match=r"--allowed-host .* expected a host name without a port, such as stores"):
        make({"allowed_host": [host]})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost"])
def test_what_only_this_machine_reaches_is_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "192.168.1.1", "::ffff:192.168.1.1", "127.0.0.1.example", "localhost.example"]
)
def test_what_others_may_reach_is_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("name", ["STOREKEEPER_PROT", "STOREKEEPER_", "STOREKEEPER_port", "STOREKEEPER_PORT_"])
def test_a_variable_that_is_no_setting_is_refused_and_all_that_are_listed(name: str) -> None:
    with pytest.raises(CannotStart) as error:
        refuse_unknown({name: "1", "STOREKEEPER_PORT": "1"})
    assert str(error.value).startswith(f"{name}: not a setting; settings are ")
    assert all(variable(setting) in str(error.value) for setting in NAMES)
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
    assert from_environment(links) == Settings()
    assert from_environment({**links, "STOREKEEPER_PORT": "80"}).port == 80
    done = run("export", "--database", "sqlite:////nowhere/at/all.db", env=links)
    assert b"--database: there is no such database, /nowhere/at/all.db: name the one of your service" in done.stderr


def test_another_server_is_told_of_a_wrong_setting_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STOREKEEPER_PORT", "x")
    with pytest.raises(SystemExit) as ended:
        application()
    assert ended.value.code == 2
    assert (
        capsys.readouterr().err == "storekeeper: --port (or STOREKEEPER_PORT): expected `int`, got `str`, not 'x'\n"
    )


def test_every_setting_is_an_option_a_variable_and_described() -> None:
    text = " ".join(run("serve", "--help", env={"COLUMNS": "400", "TERM": "dumb"}).stdout.decode().split())
    for field in msgspec.structs.fields(Settings):
        assert f"{option(field.name)} " in text
        assert variable(field.name) in text
        assert get_args(field.type)[-1] in text


@pytest.mark.parametrize(
    ("arguments", "environ", "message"),
    [
        (["--port", "70000"], {}, "--port (or STOREKEEPER_PORT): expected `int` <= 65535, not 70000"),
        (["--port", "x"], {}, "Invalid value for '--port'"),
        (["--workers", "0"], {}, "--workers (or STOREKEEPER_WORKERS): expected `int` >= 1, not 0"),
        (["--error-detail", "some"], {}, "'some' is not one of 'detailed', 'generic'"),
        (["--prot", "1"], {}, "No such option: --prot"),
        (["extra"], {}, "unexpected extra argument"),
        ([], {"STOREKEEPER_PORT": "x"}, "(env var: 'STOREKEEPER_PORT')"),
        ([], {"STOREKEEPER_PROT": "1"}, "STOREKEEPER_PROT: not a setting"),
        (
            ["--database", "mysql://x"],
            {},
            "--database: unknown kind of database 'mysql'; use sqlite:///relative.db",
        ),
        (["--database", "/srv/stores.db"], {}, "--database: unknown kind of database '/srv/stores.db'; use"),
        (["--database", "sqlite:/stores.db"], {}, "--database: unknown kind of database 'sqlite:/stores.db'; use"),
        (["--database", "postgresql:/me:secret@there"], {}, "--database: unknown kind of database; use"),
        (["--database", "host=there password=secret"], {}, "--database: unknown kind of database; use"),
        *(
            (["--database", f"sqlite:{end}"], {}, "names no file")
            for end in ("//x", "///", "///:memory:", "///a%00b")
        ),
        (["--database", "sqlite:///x.db?timeout=5"], {}, "in the name of a file, write %3F for a ?"),
        (["--database", "sqlite:///\udcff.db"], {}, "\\udcff.db' is not UTF-8"),
        (["--database", "postgresql:///x?host=%FF"], {}, "--database"),
        (
            ["--database", "postgresql://me:secret@there@x/y"],
            {},
            "an @ or / within user or password has to be written",
        ),
        (
            ["--database", "postgresql://me:12/secret@there/y"],
            {},
            "an @ or / within user or password has to be written",
        ),
        (["--database", "postgresql://there:secret/y"], {}, "--database: port has to be a number"),
        (["--database", "postgresql://there/y?sslmode=on"], {}, '--database: invalid sslmode value: "on"'),
        (["--database", "postgresql:///?service=a"], {}, '--database: definition of service "a" not found'),
        (["--database", "postgresql://there:99999/y"], {}, "--database: port has to be a number from 1 to 65535"),
        (["--database", "postgresql://there/y?connect_timeout=1s"], {}, "connect_timeout has to be a number"),
        (["--database", f"postgresql://there/y?port={'9' * 5000}"], {}, "--database: port has to be a number"),
        (["--database", "postgresql://a,b/y?port=5432,0"], {}, "--database: port has to be a number from 1 to 65535"),
        (["--cors-origin", "https://a.example", "--cors-origin", "*"], {}, "as browsers send it, such as"),
        (["--host", "999.1.1.1", "--auth", "open"], {}, "cannot listen on 999.1.1.1 port 0"),
    ],
)
def test_a_bad_start_says_so_in_one_line_and_ends_with_2(
    tmp_path: Path, arguments: list[str], environ: dict[str, str], message: str
) -> None:
    url = [] if "--database" in arguments else ["--database", f"sqlite:///{tmp_path}/stores.db"]
    done = run("serve", *url, *arguments, env={"STOREKEEPER_PORT": "0"} | environ)
    assert done.returncode == 2
    assert done.stdout == b""
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("storekeeper: ")
    assert message in lines[0]
    assert "secret" not in lines[0]


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

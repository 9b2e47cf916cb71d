"""Where the database is, and who may know: URLs, passwords, TLS."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from storekeeper.domain.errors import CannotStart
from storekeeper.storage.postgres import connections as session
from tests.harness.cases import thorough
from tests.harness.client import until
from tests.harness.command import run as run_command
from tests.harness.databases import Postgres, make, postgres
from tests.harness.machine import need
from tests.harness.postgres_server import Server, running
from tests.harness.process import serving
from tests.harness.stores import an_export, without_versions
from tests.oracles.promises import wait_until_ready

SECRET = "s3cret-%41/?&"
ENCODED = "s3cret-%2541%2F%3F%26"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server that asks for a password: the user `keeper` has it."""
    postgres()
    with running() as server:
        server.sql(f"CREATE ROLE keeper LOGIN SUPERUSER PASSWORD '{SECRET}'")
        rules = server.data / "pg_hba.conf"
        rules.write_text("host all keeper 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        server.reload()
        yield server


@pytest.mark.parametrize(
    "query",
    [
        "host=127.0.0.1,127.0.0.1&port=1,{port}",
        "host=127.0.0.1,127.0.0.1&port=1,{port}&target_session_attrs=read-write",
        "host=127.0.0.1&port={port}&target_session_attrs=primary&application_name=mine&connect_timeout=5",
        "host={folder}&port={port}&sslmode=disable&keepalives_idle=9",
    ],
)
def test_a_url_is_what_libpq_takes(database: Postgres, query: str) -> None:
    server = postgres()
    name = database.url.rpartition("/")[2]
    words = query.format(port=server.port, folder=server.folder)
    done = run_command("export", "--database", f"postgres://storekeeper@/{name}?{words}")
    assert b"no such database" in done.stderr, done.stderr
    make(database.url)
    done = run_command("export", "--database", f"postgres://storekeeper@/{name}?{words}")
    assert (done.returncode, done.stdout) == (0, an_export()), done.stderr


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://keeper@[::1]:5433/stores",
        "postgresql://keeper@[fe80::1],db2:5433/stores",
        "postgresql://keeper@%2Frun%2Fpostgresql:5433/stores",
    ],
)
def test_a_url_is_shown_as_one_that_can_be_used(url: str) -> None:
    assert session.describe(url) == url


@pytest.mark.parametrize(
    "how", ["URL", "service", *thorough("PGPASSWORD", "passfile", "PGPASSFILE")]
)
def test_a_password_may_come_from_wherever_libpq_takes_it(
    guarded: Server, tmp_path: Path, how: str
) -> None:
    with guarded.database() as url:
        plain = url.replace("storekeeper@", "keeper@")
        env: dict[str, str] = {}
        passfile, services = tmp_path / "passfile", tmp_path / "services"
        passfile.write_text(f"127.0.0.1:{guarded.port}:*:keeper:{SECRET}\n")
        passfile.chmod(0o600)
        name = url.rpartition("/")[2]
        services.write_text(
            f"[stores]\nhost=127.0.0.1\nport={guarded.port}\nuser=keeper\npassword={SECRET}\ndbname={name}\n"
        )
        match how:
            case "URL":
                plain = url.replace("storekeeper@", f"keeper:{ENCODED}@")
            case "PGPASSWORD":
                env["PGPASSWORD"] = SECRET
            case "passfile":
                plain += f"?passfile={passfile}"
            case "PGPASSFILE":
                env["PGPASSFILE"] = str(passfile)
            case "service":
                plain, env["PGSERVICEFILE"] = "postgresql://?service=stores", str(services)
        with serving(tmp_path, database=plain, env=env) as running_service:
            assert running_service.request("POST", "/api/stores", {"name": "A"}).json["id"] == 1
            shown = f"database=postgresql://keeper@127.0.0.1:{guarded.port}/{name}"
            if how == "service":
                shown = 'database="postgresql:///?service=stores"'
            until(lambda: shown in running_service.log)
            assert SECRET not in running_service.log
        assert without_versions(
            run_command("export", "--database", plain, env=env).stdout
        ) == an_export((1, "A"))


@pytest.mark.parametrize("how", ["service", *thorough("URL", "PGAPPNAME")])
def test_its_sessions_have_the_name_that_libpq_is_told(
    database: Postgres, tmp_path: Path, how: str
) -> None:
    """By that, people tell instances apart in what the server shows and logs."""
    services = tmp_path / "services"
    services.write_text("[mine]\napplication_name=mine\n")
    query = {"URL": "?application_name=mine", "service": "?service=mine"}.get(how, "")
    env = {"PGSERVICEFILE": str(services)} | ({"PGAPPNAME": "mine"} if how == "PGAPPNAME" else {})
    with serving(tmp_path, database=database.url + query, env=env) as service:
        assert service.request("GET", "/health/ready").status == 200
        ours = f"datname = '{database.url.rpartition('/')[2]}' AND backend_type = 'client backend'"
        assert (
            postgres().sql(f"SELECT DISTINCT application_name FROM pg_stat_activity WHERE {ours}")
            == "mine"
        )


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://keeper:{ENCODED}@127.0.0.1:{{port}}/nowhere",
        f"postgresql://keeper:wrong{ENCODED}@127.0.0.1:{{port}}/{{name}}",
        f"postgresql://keeper:{ENCODED}@127.0.0.1:1/{{name}}",
        f"postgresql://keeper:{SECRET}@127.0.0.1:{{port}}/{{name}}",
        f"postgresql://keeper:x@{SECRET}@127.0.0.1:{{port}}/{{name}}",
        f"postgresql://keeper:{ENCODED}@127.0.0.1:x{{port}}/{{name}}?sslmode={ENCODED}",
        f"postgresql://keeper@127.0.0.1:{{port}}/{{name}}?password={ENCODED}&no_such_word=1",
        f"mysql://keeper:{SECRET}@127.0.0.1/{{name}}",
    ],
)
def test_a_password_is_in_no_message_and_in_no_log(
    guarded: Server, tmp_path: Path, url: str
) -> None:
    """Whatever is wrong with the URL or with the connection."""
    with guarded.database() as good:
        database = url.format(port=guarded.port, name=good.rpartition("/")[2])
        done = run_command("export", "--database", database)
        assert done.returncode == 2
        assert done.stderr.count(b"\n") == 1
        texts = [done.stderr.decode()]
        if not any(word in database for word in ("mysql", SECRET, "no_such_word", "sslmode")):
            with serving(tmp_path, database=database, create=False) as unready:
                texts.append(unready.request("GET", "/health/ready").body.decode())
                until(lambda: "database unreachable, retrying" in unready.log)
                texts.append(unready.log)
        for text in texts:
            assert "s3cret" not in text


def test_a_password_is_not_in_the_log_when_the_server_goes_away(
    guarded: Server, tmp_path: Path
) -> None:
    with (
        guarded.database() as url,
        serving(tmp_path, database=url.replace("storekeeper@", f"keeper:{ENCODED}@")) as here,
    ):
        assert here.request("POST", "/api/stores", {"name": "A"}).status == 200
        guarded.kill()
        assert here.request("POST", "/api/stores", {"name": "A"}).status == 503
        guarded.start()
        wait_until_ready(here)
        until(lambda: "database reachable again" in here.log)
        assert "database unreachable, retrying" in here.log
        assert "s3cret" not in here.log


def test_tls_is_used_and_verified_as_the_url_says(tmp_path: Path) -> None:
    postgres()
    if not shutil.which("openssl"):
        need("postgres", "openssl is not installed (Debian: apt-get install openssl)")
    with running() as server:
        key, certificate = server.data / "server.key", server.data / "server.crt"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
             "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key,
             "-out", certificate],
            check=True, capture_output=True,
        )  # fmt: skip
        for file in (key, certificate):
            file.chmod(0o600)
            if server.uid is not None and server.gid is not None:
                os.chown(file, server.uid, server.gid)
        server.configure(ssl="on")
        rules = server.data / "pg_hba.conf"
        rules.write_text("hostnossl all keeper all reject\n" + rules.read_text())
        server.sql("CREATE ROLE keeper LOGIN SUPERUSER")
        server.stop()
        server.start()
        trusted = tmp_path / "root.crt"
        shutil.copy(certificate, trusted)
        with server.database() as url:
            keeper = url.replace("storekeeper@", "keeper@")
            verified = f"{keeper}?sslmode=verify-full&sslrootcert={trusted}"
            with serving(tmp_path, database=verified) as here:
                assert here.request("POST", "/api/stores", {"name": "A"}).status == 200
            assert run_command("export", "--database", f"{keeper}?sslmode=disable").returncode == 2
            other = verified.replace("127.0.0.1", "localhost")
            done = run_command("export", "--database", other.replace("verify-full", "verify-ca"))
            assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("attributes", ["any", "standby", "prefer-standby", "read-only"])
def test_a_url_that_allows_a_standby_is_refused(attributes: str) -> None:
    with pytest.raises(CannotStart, match="may be behind"):
        session.parameters(f"postgresql://host/stores?target_session_attrs={attributes}")

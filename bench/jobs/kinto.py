"""Kinto, on PostgreSQL, as its pages have it for production."""

import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg

from bench.jobs.peer import Feed, Peer
from bench.jobs.sqlite import version_of
from tests.harness import postgres_server

RECORDS = "/v1/buckets/default/collections/stores/records"


class Kinto(Peer):
    """A backup of its database is a copy by PostgreSQL."""

    name = "Kinto"
    licence = "Apache-2.0"
    ready = "/v1/"
    has_own_files = False

    def version(self) -> str:
        return version_of(self.programs, "kinto").split()[1]

    def prepare(self) -> None:
        self._stack = ExitStack()
        self._server = self._stack.enter_context(postgres_server.running())
        self._url = self._server.new_database()
        self.http.auth = ("token", "of-a-client")
        lines = [
            "[server:main]", "use = egg:waitress#main", "host = 127.0.0.1", f"port = {self.port}",
            "threads = 8", "[app:main]", "use = egg:kinto", "kinto.userid_hmac_secret = secret",
            "kinto.includes = kinto.plugins.default_bucket kinto.plugins.history",
            "multiauth.policies = basicauth",
            "kinto.storage_backend = kinto.core.storage.postgresql",
            f"kinto.storage_url = {self._url}",
            "kinto.permission_backend = kinto.core.permission.postgresql",
            f"kinto.permission_url = {self._url}",
            "kinto.cache_backend = kinto.core.cache.memory",
        ]  # fmt: skip
        (self.folder / "kinto.ini").write_text("\n".join(lines))
        self._migrate()

    def _migrate(self) -> None:
        subprocess.run(
            [self.programs / "py/bin/kinto", "migrate", "--ini", "kinto.ini"],
            cwd=self.folder, check=True, capture_output=True,
        )  # fmt: skip

    def command(self) -> Sequence[str | Path]:
        return [self.programs / "py/bin/kinto", "start", "--ini", "kinto.ini",
                "--port", str(self.port)]  # fmt: skip

    def close(self) -> None:
        self._stack.close()

    def _copy(self, source: str, target: str) -> None:
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{target}"'.encode())
            connection.execute(f'CREATE DATABASE "{target}" TEMPLATE "{source}"'.encode())

    def back_up(self, kept: Path) -> None:
        del kept
        self._copy(urlsplit(self._url).path[1:], "kept")

    def restore(self, kept: Path) -> None:
        del kept
        self._copy("kept", urlsplit(self._url).path[1:])

    def create(self, name: str, *, key: str = "", id: str = "") -> httpx.Response:
        data = {"name": name, "id": id} if id else {"name": name}
        headers = {"Idempotency-Key": key} if key else {}
        return self.http.post(RECORDS, json={"data": data}, headers=headers)

    def own_id(self) -> str:
        return "5d9a4f4e-2f0c-4b0a-9d5e-0e5a0f4c4711"

    def tag(self, id: str) -> str:
        return self.http.get(f"{RECORDS}/{id}").headers["etag"]

    def save(self, id: str, name: str, tag: str) -> httpx.Response:
        headers = {"If-Match": '"1"' if tag == "stale" else tag}
        return self.http.put(f"{RECORDS}/{id}", json={"data": {"name": name}}, headers=headers)

    def names(self) -> list[str]:
        return [record["name"] for record in self.http.get(RECORDS).json()["data"]]

    def feed(self, cursor: str) -> Feed:
        response = self.http.get(RECORDS, params={"_since": cursor} if cursor else {})
        names = {each["id"]: each["name"] for each in response.json()["data"]}
        return Feed(names, response.headers["etag"], told=not response.is_success)

    def earlier_names(self, id: str) -> list[str]:
        found = self.http.get("/v1/buckets/default/history", params={"record_id": id}).json()
        return [entry["target"]["data"]["name"] for entry in found["data"]]

"""Directus, on SQLite."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import httpx

from bench.jobs.peer import Peer
from bench.jobs.sqlite import check
from bench.jobs.storekeeper import merged

TOKEN = "token-of-the-administrator"


class Directus(Peer):
    """One collection with a text as its primary key, so that clients may choose it."""

    name = "Directus"
    licence = "BUSL-1.1 (free for small companies)"
    ready = "/server/ping"

    def version(self) -> str:
        package = self.programs / "dir/node_modules/directus/package.json"
        found = json.loads(package.read_text())
        return str(found["version"])

    def environment(self) -> dict[str, str]:
        return super().environment() | {
            "HOST": "127.0.0.1", "PORT": str(self.port), "KEY": "key", "SECRET": "secret",
            "DB_CLIENT": "sqlite3", "DB_FILENAME": str(self.folder / "data.db"),
            "ADMIN_EMAIL": "admin@example.com", "ADMIN_PASSWORD": "password",
            "ADMIN_TOKEN": TOKEN, "TELEMETRY": "false", "EXTENSIONS_PATH": "./extensions",
            "STORAGE_LOCATIONS": "local", "STORAGE_LOCAL_ROOT": "./uploads",
        }  # fmt: skip

    def prepare(self) -> None:
        subprocess.run(
            [self._program, "bootstrap"], cwd=self.folder, env=self.environment(),
            check=True, capture_output=True,
        )  # fmt: skip
        self.http.headers["authorization"] = f"Bearer {TOKEN}"

    @property
    def _program(self) -> Path:
        return self.programs / "dir/node_modules/.bin/directus"

    def command(self) -> Sequence[str | Path]:
        return [self._program, "start"]

    def set_up(self) -> None:
        text = {"schema": {}, "type": "string"}
        key = {"field": "id", "type": "uuid", "schema": {"is_primary_key": True},
               "meta": {"special": ["uuid"]}}  # fmt: skip
        fields = [key, {"field": "name", **text}, {"field": "address", **text}]
        body = {"collection": "stores", "schema": {}, "meta": {}, "fields": fields}
        self.http.post("/collections", json=body).raise_for_status()

    def create(self, name: str, *, key: str = "", id: str = "") -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        body = {"name": name, "id": id} if id else {"name": name}
        return self.http.post("/items/stores", json=body, headers=headers)

    def own_id(self) -> str:
        return "5d9a4f4e-2f0c-4b0a-9d5e-0e5a0f4c4711"

    def tag(self, id: str) -> str:
        return str(self.http.get(f"/items/stores/{id}").headers.get("etag", ""))

    def save(self, id: str, name: str, tag: str) -> httpx.Response:
        headers = {"If-Match": tag or '"old"'}
        return self.http.patch(f"/items/stores/{id}", json={"name": name}, headers=headers)

    def names(self) -> list[str]:
        return [each["name"] for each in self.http.get("/items/stores?limit=-1").json()["data"]]

    def earlier_names(self, id: str) -> list[str]:
        query = {"filter[collection][_eq]": "stores", "filter[item][_eq]": id}
        found = self.http.get("/revisions", params=query).json()
        return [entry["data"]["name"] for entry in found["data"]]

    def merge(self) -> str:
        id = self.id_of(self.create("Old name"))
        sheet = self.http.get("/items/stores", params={"export": "csv"}).text
        self.http.patch(f"/items/stores/{id}", json={"address": "1 New Road"})
        files = {"file": ("stores.csv", sheet.replace("Old name", "New name"), "text/csv")}
        response = self.http.post("/utils/import/stores", files=files)
        assert response.is_success, response.text
        return merged(self.http.get(f"/items/stores/{id}").json()["data"])

    def verify(self) -> str:
        return check(self.folder / "data.db")

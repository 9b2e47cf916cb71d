"""Directus, on its SQLite."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import httpx

from bench.jobs.peer import Peer
from bench.jobs.sqlite import check

EMAIL, PASSWORD = "admin@example.com", "password-of-this-run"
ITEMS = "/items/stores"


class Directus(Peer):
    """One collection, with its revisions switched on, that its administrator may read and write."""

    name = "Directus"
    licence = "BUSL-1.1"
    ready = "/server/ping"

    @property
    def _program(self) -> Path:
        return self.programs / "directus/node_modules/.bin/directus"

    def version(self) -> str:
        package = self.programs / "directus/node_modules/directus/package.json"
        found = json.loads(package.read_text())
        self.licence = found.get("license", self.licence)
        return str(found["version"])

    def environment(self) -> dict[str, str]:
        found = super().environment()
        return found | {
            "PATH": f"{self.programs}/node/bin:{found['PATH']}",
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            "SECRET": "a-secret-of-this-run-only-0123456789",
            "DB_CLIENT": "sqlite3",
            "DB_FILENAME": str(self._data),
            "ADMIN_EMAIL": EMAIL,
            "ADMIN_PASSWORD": PASSWORD,
            "TELEMETRY": "false",
            "RATE_LIMITER_ENABLED": "false",
            "CACHE_ENABLED": "false",
        }

    @property
    def _data(self) -> Path:
        return self.folder / "data.db"

    def prepare(self) -> None:
        subprocess.run(
            [self._program, "bootstrap"],
            cwd=self.folder, env=self.environment(), check=True, capture_output=True,
        )  # fmt: skip

    def command(self) -> Sequence[str | Path]:
        return [self._program, "start"]

    def set_up(self) -> None:
        self._sign_in()
        fields: list[dict[str, object]] = [
            {"field": "id", "type": "string", "schema": {"is_primary_key": True, "length": 36},
             "meta": {"special": ["uuid"]}},
            {"field": "name", "type": "string", "schema": {}},
            {"field": "address", "type": "string", "schema": {}},
        ]  # fmt: skip
        made = {"collection": "stores", "schema": {}, "meta": {"accountability": "all"}}
        self.http.post("/collections", json=made | {"fields": fields}).raise_for_status()

    def _sign_in(self) -> None:
        body = {"email": EMAIL, "password": PASSWORD}
        found = self.http.post("/auth/login", json=body).raise_for_status().json()
        self.http.headers["authorization"] = f"Bearer {found['data']['access_token']}"

    def create(self, name: str, *, key: str = "", id: str = "") -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        body = {"name": name, "id": id} if id else {"name": name}
        return self.http.post(ITEMS, json=body, headers=headers)

    def own_id(self) -> str:
        return "7b1c6a51-6f5c-4a0e-9d5e-0f2d6f0c4711"

    def tag(self, id: str) -> str:
        return str(self.http.get(f"{ITEMS}/{id}").raise_for_status().headers.get("etag", ""))

    def save(self, id: str, name: str, tag: str) -> httpx.Response:
        headers = {"If-Match": tag or '"old"'}
        return self.http.patch(f"{ITEMS}/{id}", json={"name": name}, headers=headers)

    def names(self) -> list[str]:
        found = self.http.get(ITEMS, params={"limit": -1}).raise_for_status().json()
        return [store["name"] for store in found["data"]]

    def earlier_names(self, id: str) -> list[str]:
        only = {"filter[item][_eq]": id, "filter[collection][_eq]": "stores", "fields": "data"}
        found = self.http.get("/revisions", params={**only, "limit": "-1"}).raise_for_status()
        return [revision["data"].get("name", "") for revision in found.json()["data"]]

    def merge(self) -> str:
        """Edit the name by the API, and the address in the exported CSV."""
        made = self.http.post(ITEMS, json={"name": "Sheet", "address": "Old"}).json()["data"]
        sheet = self.http.get(ITEMS, params={"export": "csv", "fields": "id,name,address"}).text
        self.http.patch(f"{ITEMS}/{made['id']}", json={"name": "Edited here"}).raise_for_status()
        files = {"file": ("stores.csv", sheet.replace("Old", "New"), "text/csv")}
        self.http.post("/utils/import/stores", files=files).raise_for_status()
        store = self.http.get(f"{ITEMS}/{made['id']}").json()["data"]
        if (store["name"], store["address"]) == ("Edited here", "New"):
            return "both edits are kept"
        return "the edit made meanwhile is overwritten"

    def verify(self) -> str:
        return check(self._data)

"""NocoDB, on its SQLite."""

import json
from collections.abc import Sequence
from pathlib import Path

import httpx

from bench.jobs.peer import Peer
from bench.jobs.sqlite import check

EMAIL, PASSWORD = "admin@example.com", "Password-of-this-run-1"

START = """
const express = require('express');
const { Noco } = require('nocodb');
const app = express();
let isUp = false;
app.use((request, response, next) => (isUp ? next() : response.status(503).end()));
const server = app.listen(Number(process.env.PORT), '127.0.0.1', async () => {
  app.use(await Noco.init({}, server, app));
  isUp = true;
});
"""
"""Its npm package is a library; this is the program around it that its image has."""


class NocoDb(Peer):
    """One table of one base that its first user may read and write."""

    name = "NocoDB"
    licence = "Sustainable Use License"
    ready = "/api/v1/health"
    _base = _table = ""

    @property
    def _records(self) -> str:
        return f"/api/v2/tables/{self._table}/records"

    @property
    def _installed(self) -> Path:
        return self.programs / "nocodb/node_modules"

    def version(self) -> str:
        found = json.loads((self._installed / "nocodb/package.json").read_text())
        return str(found["version"])

    def environment(self) -> dict[str, str]:
        return super().environment() | {
            "NODE_PATH": str(self._installed),
            "PORT": str(self.port),
            "NC_DISABLE_TELE": "true",
            "NC_AUTH_JWT_SECRET": "a-secret-of-this-run-only-0123456789",
        }

    def prepare(self) -> None:
        (self.folder / "start.cjs").write_text(START)

    def command(self) -> Sequence[str | Path]:
        return [self.programs / "node/bin/node", "start.cjs"]

    def set_up(self) -> None:
        body = {"email": EMAIL, "password": PASSWORD}
        signed = self.http.post("/api/v1/auth/user/signup", json=body).raise_for_status()
        self.http.headers["xc-auth"] = signed.json()["token"]
        made = self.http.post("/api/v2/meta/bases", json={"title": "Company"})
        self._base = made.raise_for_status().json()["id"]
        table = {
            "title": "stores",
            "table_name": "stores",
            "columns": [
                {"title": "name", "column_name": "name", "uidt": "SingleLineText"},
                {"title": "address", "column_name": "address", "uidt": "SingleLineText"},
            ],
        }
        path = f"/api/v2/meta/bases/{self._base}/tables"
        self._table = self.http.post(path, json=table).raise_for_status().json()["id"]

    def create(self, name: str, *, key: str = "", id: str = "") -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        body: dict[str, object] = {"name": name}
        if id:
            body["Id"] = int(id)
        return self.http.post(self._records, json=body, headers=headers)

    def id_of(self, response: httpx.Response) -> str:
        return str(response.json()["Id"])

    def own_id(self) -> str:
        return "4711"

    def tag(self, id: str) -> str:
        found = self.http.get(f"{self._records}/{id}").raise_for_status()
        return str(found.headers.get("etag", ""))

    def save(self, id: str, name: str, tag: str) -> httpx.Response:
        headers = {"If-Match": tag or '"old"'}
        body = {"Id": int(id), "name": name}
        return self.http.patch(self._records, json=body, headers=headers)

    def names(self) -> list[str]:
        found = self.http.get(self._records, params={"limit": 1000}).raise_for_status().json()
        return [record["name"] for record in found["list"]]

    def earlier_names(self, id: str) -> list[str]:
        """Return the names in the record's history, as its own page asks for it."""
        asked = {"operation": "recordAuditList", "row_id": id, "fk_model_id": self._table}
        found = self.http.get(f"/api/v2/internal/nc/{self._base}", params=asked)
        entries = [json.loads(each["details"]) for each in found.raise_for_status().json()["list"]]
        return [entry.get("old_data", {}).get("name", "") for entry in entries]

    def merge(self) -> str:
        return "not run: only its page imports sheets"

    def verify(self) -> str:
        return check(self.folder / "noco.db")

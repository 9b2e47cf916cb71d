"""json-server, on its file."""

import json
from collections.abc import Sequence
from pathlib import Path

import httpx

from bench.jobs.peer import Peer


class JsonServer(Peer):
    """It says itself that it is for prototypes."""

    name = "json-server"
    licence = "MIT"
    ready = "/stores"

    def version(self) -> str:
        package = self.programs / "js/node_modules/json-server/package.json"
        found = json.loads(package.read_text())
        self.licence = found.get("license", self.licence)
        return str(found["version"])

    def prepare(self) -> None:
        (self.folder / "db.json").write_text('{"stores": []}')

    def command(self) -> Sequence[str | Path]:
        program = self.programs / "js/node_modules/.bin/json-server"
        return [program, f"--port={self.port}", "db.json"]

    def create(self, name: str, *, key: str = "", id: str = "") -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        body = {"name": name, "id": id} if id else {"name": name}
        return self.http.post("/stores", json=body, headers=headers)

    def own_id(self) -> str:
        return "4711"

    def tag(self, id: str) -> str:
        return str(self.http.get(f"/stores/{id}").headers.get("etag", ""))

    def save(self, id: str, name: str, tag: str) -> httpx.Response:
        return self.http.put(f"/stores/{id}", json={"name": name}, headers={"If-Match": tag})

    def names(self) -> list[str]:
        return [store["name"] for store in self.http.get("/stores").json()]

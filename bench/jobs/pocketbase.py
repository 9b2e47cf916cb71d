"""PocketBase, on its SQLite."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import httpx

from bench.jobs.peer import Peer
from bench.jobs.sqlite import check

EMAIL, PASSWORD = "admin@example.com", "password-of-this-run"
RECORDS = "/api/collections/stores/records"


class PocketBase(Peer):
    """One collection that its administrator may read and write."""

    name = "PocketBase"
    licence = "MIT"
    ready = "/api/health"

    @property
    def _program(self) -> Path:
        return self.programs / "pocketbase"

    def version(self) -> str:
        done = subprocess.run(
            [self._program, "--version"], capture_output=True, text=True, check=True
        )
        return done.stdout.split()[-1]

    def prepare(self) -> None:
        subprocess.run(
            [self._program, "superuser", "upsert", EMAIL, PASSWORD, f"--dir={self._data}"],
            cwd=self.folder, check=True, capture_output=True,
        )  # fmt: skip

    @property
    def _data(self) -> Path:
        return self.folder / "pb_data"

    def command(self) -> Sequence[str | Path]:
        return [self._program, "serve", f"--http=127.0.0.1:{self.port}", f"--dir={self._data}"]

    def set_up(self) -> None:
        body = {"identity": EMAIL, "password": PASSWORD}
        path = "/api/collections/_superusers/auth-with-password"
        self.http.headers["authorization"] = self.http.post(path, json=body).json()["token"]
        fields: list[dict[str, object]] = [
            {"name": name, "type": "text"} for name in ("name", "address")
        ]
        fields.append({"name": "updated", "type": "autodate", "onCreate": True, "onUpdate": True})
        made = {"name": "stores", "type": "base", "fields": fields}
        self.http.post("/api/collections", json=made).raise_for_status()

    def create(self, name: str, *, key: str = "", id: str = "") -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        body = {"name": name, "id": id} if id else {"name": name}
        return self.http.post(RECORDS, json=body, headers=headers)

    def own_id(self) -> str:
        return "abcdefghijklmn1"

    def tag(self, id: str) -> str:
        return str(self.http.get(f"{RECORDS}/{id}").headers.get("etag", ""))

    def save(self, id: str, name: str, tag: str) -> httpx.Response:
        headers = {"If-Match": tag or '"old"'}
        return self.http.patch(f"{RECORDS}/{id}", json={"name": name}, headers=headers)

    def names(self) -> list[str]:
        found = self.http.get(RECORDS, params={"perPage": 1000}).json()
        return [record["name"] for record in found["items"]]

    def verify(self) -> str:
        return check(self._data / "data.db")

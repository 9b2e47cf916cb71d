"""Storekeeper, from this checkout, on SQLite."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx

from bench.jobs.peer import Feed, Peer

COMMAND = Path(sys.executable).with_name("storekeeper")


class Storekeeper(Peer):
    """Its restore and its check are commands."""

    name = "Storekeeper"
    licence = "Apache-2.0"
    ready = "/health/ready"

    @property
    def url(self) -> str:
        """The database's."""
        return f"sqlite:///{self.folder}/stores.db"

    def version(self) -> str:
        return self._run("--version").split()[1]

    def prepare(self) -> None:
        self._run("create", "--no-examples", "--database", self.url)

    def command(self) -> Sequence[str | Path]:
        return [COMMAND, "serve", "--database", self.url, f"--port={self.port}"]

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=True)
        return done.stdout

    def back_up(self, kept: Path) -> None:
        kept.mkdir()
        self._run("backup", f"{kept}/kept.db", "--database", self.url)

    def restore(self, kept: Path) -> None:
        self._run("restore", f"{kept}/kept.db", "--database", self.url)

    def create(self, name: str, *, key: str = "", id: str = "") -> httpx.Response:  # noqa: ARG002
        headers = {"Idempotency-Key": key} if key else {}
        return self.http.post("/api/stores", json={"name": name}, headers=headers)

    def tag(self, id: str) -> str:
        return self.http.get(f"/api/stores/{id}").headers["etag"]

    def save(self, id: str, name: str, tag: str) -> httpx.Response:
        headers = {"If-Match": f'"1.{tag}old"' if tag == "stale" else tag}
        return self.http.put(f"/api/stores/{id}", json={"name": name}, headers=headers)

    def names(self) -> list[str]:
        return [store["name"] for store in self.http.get("/api/stores").json()]

    def feed(self, cursor: str) -> Feed:
        response = self.http.get("/api/changes", params={"after": cursor or "0", "limit": 1000})
        if response.status_code == 410:
            return Feed({}, "", told=True)
        page = response.json()
        stores = [change["store"] for change in page["changes"]]
        return Feed({str(each["id"]): each["name"] for each in stores}, page["next"], told=False)

    def earlier_names(self, id: str) -> list[str]:
        changes = self.http.get("/api/changes", params={"store": id}).json()["changes"]
        return [change["store"]["name"] for change in changes]

    def merge(self) -> str:
        id = self.id_of(self.create("Old name"))
        sheet = self.http.get("/api/export", params={"format": "csv"}).text
        self.http.patch(f"/api/stores/{id}", json={"address": "1 New Road"})
        response = self.http.post(
            "/api/imports",
            params={"match": "id"},
            content=sheet.replace("Old name", "New name").encode(),
            headers={"content-type": "text/csv"},
        )
        assert response.is_success, response.text
        return merged(self.http.get(f"/api/stores/{id}").json())

    def verify(self) -> str:
        done = subprocess.run(
            [COMMAND, "verify", self.url], capture_output=True, text=True, check=False
        )
        return "`storekeeper verify` finds it" if done.returncode else "`verify` finds nothing"


def merged(store: dict[str, str]) -> str:
    """Return whether a store has both edits: the sheet's of its name, the other of its address."""
    kept = [field for field in ("name", "address") if (store.get(field) or "").find("New") >= 0]
    return "both edits are kept" if len(kept) == 2 else f"only the edit of its {kept[0]} is kept"

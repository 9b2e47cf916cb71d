"""A table of one's own: FastAPI with SQLModel on SQLite, as their tutorials have it."""

from collections.abc import Sequence
from pathlib import Path

import httpx

from bench.jobs.peer import Peer
from bench.jobs.sqlite import check, version_of

PROGRAM = """
from fastapi import FastAPI, HTTPException
from sqlmodel import Field, Session, SQLModel, create_engine, select


class Store(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    name: str
    address: str | None = None


engine = create_engine("sqlite:///stores.db", connect_args={"check_same_thread": False})
SQLModel.metadata.create_all(engine)
app = FastAPI()


@app.get("/stores")
def list_stores() -> list[Store]:
    with Session(engine) as session:
        return list(session.exec(select(Store)))


@app.post("/stores")
def create_store(store: Store) -> Store:
    with Session(engine) as session:
        session.add(store)
        session.commit()
        session.refresh(store)
        return store


@app.put("/stores/{id}")
def replace_store(id: int, store: Store) -> Store:
    with Session(engine) as session:
        found = session.get(Store, id)
        if found is None:
            raise HTTPException(404)
        found.name, found.address = store.name, store.address
        session.add(found)
        session.commit()
        session.refresh(found)
        return found
"""


class FastApi(Peer):
    """What is not in the tutorials is not in it."""

    name = "FastAPI with SQLModel"
    licence = "MIT"
    ready = "/stores"

    def version(self) -> str:
        return " and ".join(version_of(self.programs, each) for each in ("fastapi", "sqlmodel"))

    def prepare(self) -> None:
        (self.folder / "program.py").write_text(PROGRAM)

    def command(self) -> Sequence[str | Path]:
        return [self.programs / "py/bin/uvicorn", "program:app", f"--port={self.port}"]

    def create(self, name: str, *, key: str = "", id: str = "") -> httpx.Response:
        body: dict[str, object] = {"name": name}
        if id:
            body["id"] = int(id)
        headers = {"Idempotency-Key": key} if key else {}
        return self.http.post("/stores", json=body, headers=headers)

    def own_id(self) -> str:
        return "4711"

    def tag(self, id: str) -> str:  # noqa: ARG002 - there is none
        return ""

    def save(self, id: str, name: str, tag: str) -> httpx.Response:
        headers = {"If-Match": tag or '"old"'}
        return self.http.put(f"/stores/{id}", json={"name": name}, headers=headers)

    def names(self) -> list[str]:
        return [store["name"] for store in self.http.get("/stores").json()]

    def verify(self) -> str:
        return check(self.folder / "stores.db")

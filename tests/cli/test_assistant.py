"""An assistant's session, with the official client: find, propose, edit, refused conflict."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.memory import create_connected_server_and_client_session

from storekeeper.cli.assistant import make_server
from storekeeper.client import AsyncClient
from storekeeper.domain.stores import Payload
from tests.harness.client import load
from tests.harness.command import run
from tests.harness.in_process import inside
from tests.harness.process import serving

READS = {
    "search_stores",
    "get_store",
    "store_history",
    "changes_since",
    "propose_edit",
    "propose_create",
    "preview_import",
}
WRITES = {"edit_store", "create_store"}


@asynccontextmanager
async def session(folder: Path, *, write: bool) -> AsyncIterator[tuple[ClientSession, AsyncClient]]:
    """Yield an assistant's session, and another client of the same service."""
    url = f"sqlite:///{folder}/stores.db"
    load(url, [Payload("Harbour", "20 Quay Road"), Payload("Airport Kiosk")])
    async with inside(folder, database=url) as service:
        transport: Any = httpx.ASGITransport(app=service.service)

        def client() -> AsyncClient:
            http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
            return AsyncClient(http_client=http, patience=5)

        server = make_server(client(), write=write)
        async with (
            client() as other,
            create_connected_server_and_client_session(server) as assistant,
        ):
            yield assistant, other


async def call(assistant: ClientSession, tool: str, **values: Any) -> Any:
    """Return what a tool returned; of a refusal its text."""
    result = await assistant.call_tool(tool, values)
    if result.isError:
        return result.content[0].text  # type: ignore[union-attr]
    return result.structuredContent


async def test_an_assistant_finds_proposes_edits_and_is_refused_what_it_has_not_seen(
    tmp_path: Path,
) -> None:
    async with session(tmp_path, write=True) as (assistant, other):
        start = await call(assistant, "changes_since", cursor="now")
        found = await call(assistant, "search_stores", words="quay")
        harbour = {"id": 1, "name": "Harbour", "address": "20 Quay Road"}
        assert found == {"stores": [harbour]}

        wish = {"id": 1, "address": "21 Quay Road"}
        proposed = await call(assistant, "propose_edit", **wish)
        assert proposed["before"] == harbour
        assert proposed["after"] == harbour | wish
        approved = {"tag": proposed["tag"], "proposal": proposed["proposal"]}

        # Another client saves first: the edit is refused, and nothing is changed.
        await other.patch(1, name="Harbour East")
        refused = await call(assistant, "edit_store", **wish, **approved)
        assert "Another client saved first: call get_store" in refused
        assert (await other.get(1)).address == "20 Quay Road"

        again = await call(assistant, "propose_edit", **wish)
        assert again["before"]["name"] == "Harbour East"
        approved = {"tag": again["tag"], "proposal": again["proposal"]}
        edited = await call(assistant, "edit_store", **wish, **approved)
        assert edited["store"] == {"id": 1, "name": "Harbour East", "address": "21 Quay Road"}
        # The same call again is done once, and the proposal allows nothing else.
        assert await call(assistant, "edit_store", **wish, **approved) == edited
        assert "used for another request" in await call(
            assistant, "edit_store", id=1, name="Mine", **approved
        )

        history = await call(assistant, "store_history", id=1, limit=2)
        assert [change["store"]["address"] for change in history["changes"]] == [
            "21 Quay Road",
            "20 Quay Road",
        ]
        since = await call(assistant, "changes_since", cursor=start["next"])
        assert [change["type"] for change in since["changes"]] == ["replaced", "replaced"]

        removal = await call(assistant, "propose_edit", id=1, remove_address=True)
        assert removal["after"]["address"] is None
        tag, proposal = edited["tag"], removal["proposal"]
        removed = await call(
            assistant, "edit_store", id=1, remove_address=True, tag=tag, proposal=proposal
        )
        assert removed["store"]["address"] is None


async def test_a_proposal_creates_once_and_a_preview_imports_nothing(tmp_path: Path) -> None:
    async with session(tmp_path, write=True) as (assistant, other):
        proposed = await call(assistant, "propose_create", name="Airport", address="1 Way")
        assert [store["id"] for store in proposed["alike"]] == [2]
        new = {"name": "Airport", "address": "1 Way", "proposal": proposed["proposal"]}
        made = await call(assistant, "create_store", **new)
        assert await call(assistant, "create_store", **new) == made
        assert made["store"]["id"] == len(await other.list()) == 3
        csv = f"id,name\n1,Renamed\n9,Lost\n2,{'x' * 31}\n"
        preview = await call(assistant, "preview_import", csv=csv)
        problems = preview["report"]["problems"]
        assert [problem["reason"] for problem in problems] == ["unknown_store", "too_long"]
        fine = await call(assistant, "preview_import", csv="id,name\n1,Renamed\n")
        assert (fine["report"]["dryRun"], fine["report"]["replaced"]) == (True, 1)
        assert (await other.get(1)).name == "Harbour"


async def test_nothing_but_reading_and_proposing_without_write(tmp_path: Path) -> None:
    async with session(tmp_path, write=False) as (assistant, other):
        tools = (await assistant.list_tools()).tools
        assert {tool.name for tool in tools} == READS
        assert all(tool.annotations and tool.annotations.readOnlyHint for tool in tools)
        assert all(len(tool.description or "") > 40 for tool in tools)
        before = (await other.list()).cursor
        new = {"name": "Never", "proposal": "p"}
        assert "Unknown tool" in await call(assistant, "create_store", **new)
        assert "not found. Nothing was changed" in await call(assistant, "get_store", id=99)
        long = await call(assistant, "propose_edit", id=1, name="x" * 31)
        assert long["changes_something"]
        assert (await other.list()).cursor == before


async def test_the_command_serves_an_assistant_over_its_standard_streams(tmp_path: Path) -> None:
    with serving(tmp_path, "--examples") as service:
        address = f"http://127.0.0.1:{service.port}"
        command = ["-m", "storekeeper", "mcp", "--service", address, "--write"]
        server = StdioServerParameters(command=sys.executable, args=command)
        async with stdio_client(server) as streams, ClientSession(*streams) as assistant:
            await assistant.initialize()
            assert {tool.name for tool in (await assistant.list_tools()).tools} == READS | WRITES
            store = await call(assistant, "get_store", id=1)
            assert store["store"]["name"] == "Main Street"
    done = run("mcp", "--service", "nowhere")
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == ["storekeeper: --service: not an http or https URL"]

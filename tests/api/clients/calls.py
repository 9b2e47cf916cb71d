"""What a program does with the client that openapi-python-client generates."""

import sys
from io import BytesIO

from stores_client import AuthenticatedClient, Client
from stores_client.api.changes import list_changes
from stores_client.api.operations import me
from stores_client.api.stores import create_store, import_stores, list_stores, patch_store
from stores_client.models import ErrorBody, ErrorBodyOutcome, Imported, Payload, PayloadPatch, Store
from stores_client.types import File


def main(service: str, gateway: str) -> None:
    client = Client(base_url=service)
    made = create_store.sync(client=client, body=Payload(name="Harbour"), idempotency_key="one")
    assert isinstance(made, Store)
    assert (made.id, made.name, made.address) == (1, "Harbour", None)
    moved = patch_store.sync(1, client=client, body=PayloadPatch(address="20 Quay Road"))
    assert isinstance(moved, Store)
    assert moved.address == "20 Quay Road"
    refused = create_store.sync(client=client, body=Payload(name=""))
    assert isinstance(refused, ErrorBody)
    outcome: ErrorBodyOutcome | object = refused.outcome
    assert outcome is not ErrorBodyOutcome.UNKNOWN
    sheet = File(BytesIO(b"id,name\n,Station\n"))
    done = import_stores.sync(client=client, body=sheet, match="id", dry_run=True)
    assert isinstance(done, Imported)
    assert done.created == 1
    page = list_changes.sync(client=client, limit=1)
    assert page is not None
    assert not isinstance(page, str | ErrorBody)
    assert page.changes[0].store.name == "Harbour"
    stores = list_stores.sync(client=AuthenticatedClient(base_url=service, token="skt_none"))
    assert isinstance(stores, list), "where tokens are not looked at, any is as good as none"
    assert me.sync(client=client) is not None
    # A page of HTML, because the proxy does not reach the service.
    assert isinstance(list_stores.sync(client=Client(base_url=gateway)), str)


main(*sys.argv[1:])

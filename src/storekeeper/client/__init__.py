"""A client of the service, for programs with and without asyncio (extra `client`).

    from dataclasses import replace
    from storekeeper.client import Client

    with Client("http://127.0.0.1:8080") as stores:
        shop = stores.create("South Gate")
        stores.edit(shop.id, lambda store: replace(store, address="1 South Gate"))

What may be lost on the way is sent again: a write with its key, so that it is done once.
"""

from storekeeper.client.aio import AsyncClient
from storekeeper.client.core import KEEP
from storekeeper.client.errors import (
    ClientError,
    Conflict,
    EpochEnded,
    KeyReused,
    NoAccess,
    NotFound,
    Refused,
    RowsRefused,
    Unavailable,
)
from storekeeper.client.mirror import AsyncMirror, Copied, Mirror
from storekeeper.client.model import Change, ChangesPage, Listing, Reset, Store
from storekeeper.client.sync import Client

__all__ = [
    "KEEP",
    "AsyncClient",
    "AsyncMirror",
    "Change",
    "ChangesPage",
    "Client",
    "ClientError",
    "Conflict",
    "Copied",
    "EpochEnded",
    "KeyReused",
    "Listing",
    "Mirror",
    "NoAccess",
    "NotFound",
    "Refused",
    "Reset",
    "RowsRefused",
    "Store",
    "Unavailable",
]

"""How a test looks at a file, as the console does before it imports one."""

import io
from typing import Any

from storekeeper.sheets.look import look_at
from storekeeper.sheets.look_types import Look
from storekeeper.sheets.protocol import AskLook, Layout
from storekeeper.sheets.records import open_sheet


def look(data: bytes, keys: list[str] | None = None, *, is_empty: bool = True, **said: Any) -> Look:
    layout = Layout(**said)
    sheet = open_sheet(io.BytesIO(data), layout)
    return look_at(sheet, AskLook(layout, keys or [], is_empty))

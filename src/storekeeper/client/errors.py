"""What can go wrong when a program calls the service."""

from collections.abc import Mapping, Sequence
from typing import Any


class ClientError(Exception):
    """The base of every error of the client. Its text says what is wrong."""


class Refused(ClientError):
    """The service refused a request, and nothing was changed.

    `status` is that of the response; `keys` names the fields that are wrong, if the service says
    so.
    """

    def __init__(self, message: str, status: int, keys: Sequence[str] = ()) -> None:
        self.status = status
        self.keys = tuple(keys)
        super().__init__(message)


class NoAccess(Refused):
    """The request needs a token, or one that may write (401, 403)."""


class NotFound(Refused):
    """No store has that id (404)."""


class EpochEnded(Refused):
    """A backup was restored: the cursor is of a list that no longer exists (410).

    `cursor` is the current one. Read the list again, and continue from its cursor.
    """

    def __init__(self, message: str, cursor: str) -> None:
        self.cursor = cursor
        super().__init__(message, 410)


class Conflict(Refused):
    """Another client saved first (412). `tag` is what the store, or the list, has now."""

    def __init__(self, message: str, tag: str) -> None:
        self.tag = tag
        super().__init__(message, 412)


class KeyReused(Refused):
    """The key was sent with another request before (422)."""


class RowsRefused(Refused):
    """Rows of an import are invalid or in conflict (422). `report` says which, and why."""

    def __init__(self, message: str, report: Mapping[str, Any]) -> None:
        self.report = report
        super().__init__(message, 422)


class Unavailable(ClientError):
    """The service gave no response that says what happened, for as long as the client's patience.

    A write may have been done. If it had a `key`, send the same again with that key within a day:
    it will not be done twice.
    """

    def __init__(self, message: str, key: str | None = None) -> None:
        self.key = key
        super().__init__(message)

"""Domain: what can go wrong. Any other error than a StorekeeperError is a bug."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import ClassVar

from storekeeper.domain.reasons import Violation

LOCKED = "The database is locked"
DISK_FULL = "The disk is full"
DISK_STALLED = "The disk does not respond"
FAILED = "The database failed"
NO_RESPONSE = "The database does not respond"
NO_STANDBY = "The standby does not respond"
CLOSED = "The service is shutting down"
MOVED = "The list was moved to another database, or upgraded by a later version"
MOVED_PROBLEM = (
    "its list was moved to another database (storekeeper copy --move): name that one, or make this"
    " a list of its own again (storekeeper epoch --new)"
)
MOVED_BEFORE_PROBLEM = (
    "its list was moved to another database (storekeeper copy --move) by an older Storekeeper: name"
    " that one, or make this a list of its own again with that version (storekeeper epoch --new)"
)


class Outcome(StrEnum):
    """Whether a request that got a 503 may have changed something (decision 30)."""

    NONE = "none"
    UNKNOWN = "unknown"


class Code(StrEnum):
    """What happened, for code: each kind of error has its own, and only people read messages."""

    INVALID_INPUT = "invalid_input"
    INVALID_JSON = "invalid_json"
    PRECONDITION_FAILED = "precondition_failed"
    KEY_REUSED = "key_reused"
    EPOCH_ENDED = "epoch_ended"
    UNAVAILABLE = "unavailable"
    READER_ENDED = "reader_ended"
    BAD_FILE = "bad_file"
    BAD_ROWS = "bad_rows"
    NEEDS_MATCH = "needs_match"
    CANNOT_START = "cannot_start"
    CANNOT_START_YET = "cannot_start_yet"
    WRONG_DATABASE = "wrong_database"
    NOT_FOUND = "not_found"
    TAKEN = "taken"
    DAMAGED = "damaged"
    COPY_FAILED = "copy_failed"
    COPY_DIFFERS = "copy_differs"


class StorekeeperError(Exception):
    """The base of every error that is not a bug; its text may be shown to the client.

    `problem` is one sentence; `subject`, if it is given, is what has the problem: a file, a
    database, an option. The text is both. If `may_pass` is set, another attempt may succeed
    without any change.
    """

    code: ClassVar[Code]
    may_pass = False

    def __init__(self, problem: str, *, subject: str = "") -> None:
        self.problem = problem
        super().__init__(f"{subject}: {problem}" if subject else problem)


class InvalidInput(StorekeeperError):
    """The part `source` of a request breaks its rules: each wrong field in the order of decision
    9, or the part as a `whole`."""

    code = Code.INVALID_INPUT

    def __init__(
        self,
        source: str,
        violations: Mapping[str, Violation] | None = None,
        whole: Violation | None = None,
    ) -> None:
        self.source = source
        self.violations = violations or {}
        self.whole = whole
        super().__init__(whole.sentence if whole else self.told(lambda field: f'"{field}"'))

    def told(self, name_of: Callable[[str], str]) -> str:
        """Return all that is wrong with fields, each under the name that `name_of` returns."""
        return ". ".join(
            violation.message(field, name_of) for field, violation in self.violations.items()
        )


class PreconditionFailed(StorekeeperError):
    """If-Match or If-None-Match does not hold; nothing was written. `tag` is the current entity
    tag."""

    code = Code.PRECONDITION_FAILED

    def __init__(self, message: str, tag: str) -> None:
        self.tag = tag
        super().__init__(message)


class KeyReused(StorekeeperError):
    """The Idempotency-Key belongs to another request (decision 36); nothing was written."""

    code = Code.KEY_REUSED


class EpochEnded(StorekeeperError):
    """A cursor or moment is of another history than the current one; `cursor` is the current
    cursor (decision 40)."""

    code = Code.EPOCH_ENDED

    def __init__(self, message: str, cursor: str) -> None:
        self.cursor = cursor
        super().__init__(message)


class Unavailable(StorekeeperError):
    """The database does not respond now; later it may. `outcome` says whether a write may have
    happened."""

    code = Code.UNAVAILABLE

    def __init__(self, problem: str, outcome: Outcome = Outcome.NONE, *, subject: str = "") -> None:
        self.outcome = outcome
        super().__init__(problem, subject=subject)


class CannotStart(StorekeeperError):
    """The operator must change something first; the problem says what is wrong and what to do."""

    code = Code.CANNOT_START


class CannotStartYet(CannotStart):
    """The cause may pass by itself, so another attempt may succeed."""

    code = Code.CANNOT_START_YET
    may_pass = True


class WrongDatabase(CannotStart):
    """The database that was named cannot be used."""

    code = Code.WRONG_DATABASE

    def __init__(self, problem: str) -> None:
        super().__init__(problem, subject="--database")


class Missing(CannotStart):
    """The database that was named is not there, or has no collection yet. None is made unless
    the user asks for it."""

    code = Code.NOT_FOUND

    def __init__(self, name: str, create: str = "storekeeper create") -> None:
        super().__init__(
            "there is no such database: name another one, restore it from a backup (storekeeper"
            f" restore), or begin a new list ({create})",
            subject=name,
        )


class Taken(CannotStart):
    """Something exists already where a database should be made."""

    code = Code.TAKEN


class Damaged(CannotStart):
    """What a database contains cannot be read, or is not whole."""

    code = Code.DAMAGED

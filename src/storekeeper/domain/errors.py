"""Domain: what can go wrong. Any other error than a StorekeeperError is a bug."""

from enum import StrEnum

LOCKED = "The database is locked"
DISK_FULL = "The disk is full"
DISK_STALLED = "The disk does not respond"
FAILED = "The database failed"
NO_RESPONSE = "The database does not respond"
NO_STANDBY = "The standby does not respond"
CLOSED = "The service is shutting down"


class Outcome(StrEnum):
    """Whether a request that got a 503 may have changed something (decision 30)."""

    NONE = "none"
    UNKNOWN = "unknown"


class StorekeeperError(Exception):
    """The base of every error that is not a bug; its text may be shown to the client.

    `problem` is one sentence; `subject`, if it is given, is what has the problem: a file, a
    database, an option. The text is both. `may_pass`: another attempt may succeed, although nobody
    changes anything.
    """

    may_pass = False

    def __init__(self, problem: str, *, subject: str = "") -> None:
        self.problem = problem
        super().__init__(f"{subject}: {problem}" if subject else problem)


class InvalidInput(StorekeeperError):
    """The part `source` of a request breaks its rules. `violations` has the contract's sentence
    for each wrong field.

    The fields are in the order of decision 9. A single text is about the part as a whole.
    """

    def __init__(self, source: str, violations: dict[str, str] | str) -> None:
        self.source = source
        self.violations = {} if isinstance(violations, str) else violations
        super().__init__(
            violations if isinstance(violations, str) else ". ".join(violations.values())
        )


class PreconditionFailed(StorekeeperError):
    """If-Match or If-None-Match does not hold; nothing was written. `tag` is the current entity
    tag."""

    def __init__(self, message: str, tag: str) -> None:
        self.tag = tag
        super().__init__(message)


class KeyReused(StorekeeperError):
    """The Idempotency-Key belongs to another request (decision 36); nothing was written."""


class EpochEnded(StorekeeperError):
    """A cursor or moment is of another history than the present one; `cursor` is the present
    cursor (decision 40)."""

    def __init__(self, message: str, cursor: str) -> None:
        self.cursor = cursor
        super().__init__(message)


class Unavailable(StorekeeperError):
    """The database does not respond now; later it may. `outcome` says whether a write may have
    happened."""

    def __init__(self, problem: str, outcome: Outcome = Outcome.NONE, *, subject: str = "") -> None:
        self.outcome = outcome
        super().__init__(problem, subject=subject)


class CannotStart(StorekeeperError):
    """The operator has to change something first; the problem says what is wrong and what to do."""


class CannotStartYet(CannotStart):
    """The cause may pass by itself, so another attempt may succeed."""

    may_pass = True


class WrongDatabase(CannotStart):
    """The database that was named cannot be used."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem, subject="--database")


class Missing(CannotStart):
    """The database that was named is not there, or has no collection yet. Nothing makes one
    untold."""

    def __init__(self, name: str, create: str = "storekeeper create") -> None:
        super().__init__(
            "there is no such database: name another one, restore it from a backup (storekeeper"
            f" restore), or begin a new list ({create})",
            subject=name,
        )


class Taken(CannotStart):
    """There is something already where a database should be made."""


class Damaged(CannotStart):
    """What a database contains cannot be read, or is not whole."""

"""What commands print with `--json`: one object on one line of standard output.

A field stays what it is; others may be added. `make reference` writes the tables.
"""

from typing import Annotated

import msgspec
import typer
from msgspec import Meta

from storekeeper.cli.terminal import print_now, print_result
from storekeeper.domain.errors import CannotStart

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]

Name = Annotated[str, Meta(description="The database, without its password.")]
Stores = Annotated[int, Meta(description="How many stores it has.")]
Changes = Annotated[int, Meta(description="How many changes it has.")]
Epoch = Annotated[str, Meta(description="The epoch, the second part of every tag and cursor.")]
Moment = Annotated[str | None, Meta(description="A time in UTC; null for never.")]


class Result(msgspec.Struct, rename="camel"):
    """What a command did or found."""


class Created(Result):
    """A new list."""

    database: Name
    stores: Stores


class BackedUp(Result):
    """A backup that was made and verified."""

    database: Name
    file: Annotated[str, Meta(description="The backup.")]
    stores: Stores
    changes: Changes


class Verified(Result):
    """Whether a database or a backup is valid."""

    database: Name
    valid: Annotated[bool, Meta(description="Whether there is no problem: then the status is 0.")]
    problems: Annotated[list[str], Meta(description="What is wrong, for people.")]
    remarks: Annotated[list[str], Meta(description="What is valid, but strange.")]


class LostChanges(Result):
    """What a restore took away."""

    changes: Annotated[int, Meta(description="How many changes the backup does not have.")]
    after: Annotated[int, Meta(description="The number before the first of them.")]
    stores: Annotated[list[int], Meta(description="Their stores, at most 20.")]
    valid_again: Annotated[list[str], Meta(description="Revoked tokens that are valid again.")]
    gone: Annotated[list[str], Meta(description="Tokens that were added after the backup.")]


class Restored(Result):
    """A backup in the place of a database."""

    database: Name
    stores: Stores
    changes: Changes
    epoch: Epoch
    aside: Annotated[str | None, Meta(description="Where the old file is now; null without one.")]
    lost: Annotated[
        LostChanges | None,
        Meta(description="What is lost; null if there was nothing, or if it cannot be read."),
    ]


class Copied(Result):
    """A collection in another database."""

    source: Annotated[str, Meta(description="The database that was read.")]
    target: Annotated[str, Meta(description="The database that was written.")]
    stores: Stores
    changes: Changes
    epoch: Epoch
    moved: Annotated[bool, Meta(description="Whether the source refuses all writes now.")]


class Exported(Result):
    """Stores in a file."""

    database: Name
    file: Annotated[str, Meta(description="The file.")]
    stores: Annotated[int, Meta(description="How many stores it has.")]
    formulas: Annotated[
        int, Meta(description="Cells that a spreadsheet may take for formulas; 0 for XLSX.")
    ]


class EpochIs(Result):
    """The epoch of a database."""

    database: Name
    epoch: Epoch
    renewed: Annotated[bool, Meta(description="Whether the command made it.")]


class TokenAdded(Result):
    """A new token."""

    name: Annotated[str, Meta(description="Its name.")]
    scope: Annotated[str, Meta(description="`read` or `write`.")]
    expires: Moment
    token: Annotated[str, Meta(description="The token itself, which cannot be printed again.")]
    link: Annotated[str | None, Meta(description="The link to the console, with `--link`.")]


class TokenRevoked(Result):
    """A token that is refused from now on."""

    name: Annotated[str, Meta(description="Its name.")]


class ListedToken(Result):
    """A token, without its secret."""

    name: Annotated[str, Meta(description="Its name.")]
    scope: Annotated[str, Meta(description="`read` or `write`.")]
    state: Annotated[str, Meta(description="`active`, `expired` or `revoked`.")]
    added: Moment
    added_by: Annotated[str | None, Meta(description="Who added it; null if that is not known.")]
    expires: Moment
    used: Moment
    revoked: Moment
    revoked_by: Annotated[str | None, Meta(description="Who revoked it.")]


class Tokens(Result):
    """All tokens, the oldest first."""

    tokens: Annotated[list[ListedToken], Meta(description="Each with the fields below.")]


class ListedImport(Result):
    """An import or an undo."""

    first: Annotated[str, Meta(description="The cursor of its first change.")] = msgspec.field(
        name="from"
    )
    last: Annotated[str, Meta(description="The cursor of its last change.")] = msgspec.field(
        name="to"
    )
    at: Annotated[str, Meta(description="When it was done.")]
    undoes: Annotated[
        int | None, Meta(description="The first change of what it undoes; null for an import.")
    ]
    file: Annotated[str | None, Meta(description="The name of the file, if it is known.")]
    by: Annotated[str | None, Meta(description="Who did it, if that is known.")]


class Imports(Result):
    """The latest imports and undos."""

    imports: Annotated[list[ListedImport], Meta(description="Each with the fields below.")]


class Readiness(Result):
    """What a service says about itself."""

    ready: Annotated[bool, Meta(description="Whether it is ready: then the status is 0.")]
    status: Annotated[
        int | None, Meta(description="The status of its response; null if it gave none.")
    ]
    reason: Annotated[
        str | None, Meta(description="Why it is not ready, or refuses writes; null for nothing.")
    ]


RESULTS: dict[str, tuple[type[Result] | str, ...]] = {
    "create": (Created,),
    "token add": (TokenAdded,),
    "token list": (Tokens, ListedToken),
    "token revoke": (TokenRevoked,),
    "import": (
        (
            "The same object as the response to `POST /api/imports`: `Imported` in the OpenAPI"
            " document, with `--look` `Look`."
        ),
    ),
    "undo": (
        (
            "The same object as the response to `POST /api/imports/undo`: `Undone` in the OpenAPI"
            " document. Without FROM and TO:"
        ),
        Imports,
        ListedImport,
    ),
    "export": (Exported,),
    "copy": (Copied,),
    "backup": (BackedUp,),
    "verify": (Verified,),
    "restore": (Restored, LostChanges),
    "epoch": (EpochIs,),
    "ready": (Readiness,),
    "check": (
        (
            "`url`, `conforms`, `mode`, `counts`, `added` (stores), `seconds` and `checks`: a list"
            " of objects with `name`, `sentence`, `scope`, `result`, `note`, `request` and"
            " `response`."
        ),
    ),
}
"""What each command with `--json` prints, for the reference."""


def encoded(result: object) -> str:
    """Return a result as JSON on one line."""
    return msgspec.json.encode(result).decode()


def print_json(result: object) -> None:
    """Print a result. Raises CannotStart if it cannot be printed: its reader is a program, which
    must not take nothing for a result."""
    try:
        print_now(encoded(result))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CannotStart(f"done, but the result cannot be printed: {error.strerror}") from None


def report(result: object, *lines: str, json: bool) -> None:
    """Print a result as JSON, or as lines for people."""
    if json:
        print_json(result)
        return
    for line in lines:
        print_result(line)

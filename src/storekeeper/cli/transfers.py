"""The command that copies a collection. Imports what it needs when it runs."""

from typing import Annotated

import typer

from storekeeper.cli.terminal import counted, ignore_interrupts, print_line, progress, saying_if_interrupted


def copy(
    source: Annotated[str, typer.Argument(help="URL of the database to read, as for --database.")],
    target: Annotated[str, typer.Argument(help="URL of a new file, or of an empty PostgreSQL database.")],
    *,
    move: Annotated[
        bool, typer.Option("--move", help="Keep the epoch. Nobody may write to the source any more.")
    ] = False,
) -> None:
    """Copy a collection to another database.

    This also backs a collection up, restores a backup, and moves a collection. All stores, changes, keys and tokens
    are copied as of one moment, and verified; or nothing is copied. The service of the source may be running. The
    copy gets a new epoch: from now on, both may give one number to different changes, so no ETag of the source
    matches in the copy. With --move, the ETags of clients stay valid.
    """
    from storekeeper import databases

    with saying_if_interrupted("nothing was copied into the target"), progress("Copying", "rows") as show:
        stores, changes, epoch = databases.copy(source, target, show, move=move, committing=ignore_interrupts)
    content = f"{counted(stores, 'store')} and {counted(changes, 'change')}"
    between = f"from {databases.database(source).name} into {databases.database(target).name}"
    kept = f"the copy keeps the epoch {epoch}: write no more to the source" if move else f"its new epoch is {epoch}"
    print_line(f"{content} copied {between}, and verified; {kept}")

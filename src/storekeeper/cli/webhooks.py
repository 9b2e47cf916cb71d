"""The command that posts each change to another service."""

import fcntl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from storekeeper.cli.cursors import cursor_of, read_saved, save
from storekeeper.cli.service_address import SERVICE, client_of
from storekeeper.cli.terminal import print_line
from storekeeper.domain.errors import CannotStart

if TYPE_CHECKING:
    import httpx

    from storekeeper.client import Change, Client, Reset

POST_TIMEOUT = 15.0
"""Seconds for one attempt of a post."""


def webhooks(
    url: Annotated[str, typer.Argument(help="The address to post to.")],
    *,
    secret_file: Annotated[
        Path,
        typer.Option(help="File with the secret, whsec_ and base64: each line signs each post."),
    ],
    service: SERVICE = "http://127.0.0.1:8080",
    token: Annotated[
        Path | None,
        typer.Option(help="A file with the token. Without it, STOREKEEPER_TOKEN is sent."),
    ] = None,
    cursor_file: Annotated[
        Path, typer.Option(help="File that says how far it has got; one process uses it.")
    ] = Path("webhooks.cursor"),
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            help="Where the first start begins: now, 0 for all changes, or a cursor."
            " It counts only until the cursor file exists.",
        ),
    ] = "",
) -> None:
    """Post each change to an address, in order and signed.

    The form is that of Standard Webhooks. A post is repeated until it is accepted with a status
    2xx; no change is left out, whatever is killed. One may be posted twice, with the same
    webhook-id, its cursor. After a restore it posts list.reset.
    """
    from storekeeper.client import ClientError
    from storekeeper.client import webhooks as posts

    try:
        secrets = posts.read_secrets(secret_file.read_text())
    except (OSError, UnicodeError, ClientError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotStart(reason, subject=f"--secret-file {secret_file}") from None
    with client_of(service, token) as client, locked(cursor_file), poster(url, secrets) as post:
        try:
            cursor = begin_at(client, cursor_file, begin)
            for event in client.follow(cursor):
                post(event)
                save(cursor_file, event.cursor)
        except ClientError as error:
            raise CannotStart(str(error), subject=service) from None


def begin_at(client: "Client", cursor_file: Path, begin: str) -> str:
    """Return the cursor to continue from; raise CannotStart if there is none."""
    saved = read_saved(cursor_file)
    if saved is None and not begin:
        raise CannotStart(
            f"there is no {cursor_file} yet: say where to begin, with --from now, --from 0 for all"
            " changes, or --from and a cursor"
        )
    cursor = begin if saved is None else saved
    cursor_of(cursor, "--from" if saved is None else f"--cursor-file {cursor_file}")
    if cursor == "now":
        cursor = client.changes("now").next
        save(cursor_file, cursor)
    return cursor


@contextmanager
def locked(cursor_file: Path) -> Iterator[None]:
    """Keep other processes from using the cursor file: two would post each change twice."""
    lock = cursor_file.with_name(cursor_file.name + ".lock")
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(lock.open("a"))
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = "another process posts from it"
            raise CannotStart(problem, subject=f"--cursor-file {cursor_file}") from None
        except OSError as error:
            raise CannotStart(f"cannot be locked ({error.strerror})", subject=str(lock)) from None
        yield


@contextmanager
def poster(url: str, secrets: tuple[bytes, ...]) -> Iterator[Callable[["Change | Reset"], None]]:
    """Yield what posts an event, and returns once that is accepted."""
    import httpx

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CannotStart("the address to post to is not an http or https URL")
    with httpx.Client(timeout=POST_TIMEOUT) as http:
        yield lambda event: deliver(http, url, event, secrets)


def deliver(
    http: "httpx.Client", url: str, event: "Change | Reset", secrets: tuple[bytes, ...]
) -> None:
    """Post an event until it is accepted; say on stderr why it is not, once for each reason."""
    from storekeeper.client import webhooks as posts

    body, told = posts.body_of(event, time.time()), ""
    for attempt in count():
        problem = _attempt(http, url, body, posts.fields_of(event, body, secrets, time.time()))
        if not problem:
            if told:
                print_line(f"storekeeper: {event.cursor} was accepted")
            return
        if problem != told:
            host = urlsplit(url).hostname  # the rest of the address may be secret
            print_line(
                f"storekeeper: {event.cursor} was not accepted by {host}: {problem};"
                " it is posted again"
            )
        told = problem
        time.sleep(posts.PAUSES[min(attempt, len(posts.PAUSES) - 1)])


def _attempt(http: "httpx.Client", url: str, body: bytes, fields: Mapping[str, str]) -> str:
    """Post once; return why it was not accepted, "" if it was."""
    import httpx

    try:
        # The body of the response, which may be long, is not read.
        with http.stream("POST", url, content=body, headers=dict(fields)) as response:
            return "" if response.is_success else f"status {response.status_code}"
    except httpx.RequestError as error:
        return str(error) or type(error).__name__

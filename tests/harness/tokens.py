"""Tokens of every state, in the database of a test."""

import time
from pathlib import Path

from storekeeper.domain.tokens import Token, generate, hashed
from storekeeper.storage import tokens
from tests.harness.databases import make

STATES = ("no token", "malformed", "unknown", "expired", "revoked", "read", "write", "Basic")


def now() -> int:
    return time.time_ns() // 1_000_000


def add_token(url: str, name: str, scope: str, expires: int | None = None) -> str:
    """Add a token to a database, which is made if it is missing; return its text."""
    text = generate()
    make(url)
    tokens.add_token(url, Token(0, name, scope, hashed(text.encode()), now(), expires))
    return text


def add_tokens(folder: Path) -> dict[str, str | None]:
    """Add tokens to the file in a folder; return the Authorization for each state, None for no
    token."""
    url = f"sqlite:///{folder}/stores.db"
    revoked = add_token(url, "revoked", "write")
    tokens.revoke_token(url, "revoked", now())
    texts = {
        "malformed": "skt_1",
        "unknown": generate(),
        "expired": add_token(url, "expired", "write", now() - 1),
        "revoked": revoked,
        "read": add_token(url, "read", "read", now() + 60_000),
        "write": add_token(url, "write", "write"),
    }
    sent: dict[str, str | None] = {state: f"Bearer {text}" for state, text in texts.items()}
    return {"no token": None, **sent, "Basic": "Basic c3RhZmY6c2VjcmV0"}

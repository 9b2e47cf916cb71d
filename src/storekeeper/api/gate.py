"""The gate decides which requests are admitted, to every route.

Decisions that depend only on the head and the settings are part of the plan, which is remembered
with its head. Decisions that also depend on the time and on the current tokens are made again for
each request, by `RequestPlan.admit`.
"""

from functools import partial
from typing import Literal

from msgspec.structs import replace

from storekeeper.api.origins import WebPages
from storekeeper.api.plan import Claim, RequestPlan
from storekeeper.api.routing import Scope
from storekeeper.api.token_table import TokenTable, challenge
from storekeeper.domain.tokens import hashed, is_well_formed
from storekeeper.http.response import Fields, Response, error_response

Mode = Literal["open", "writes", "all"]
_NEED_TOKENS: dict[Mode, tuple[Scope, ...]] = {
    "open": (),
    "writes": ("write",),
    "all": ("read", "write"),
}
"""Which requests need a token: none, those that write, or all but those of open routes."""


class Gate:
    """Admits requests by the settings. Without `tokens`, no client needs a token."""

    def __init__(
        self, pages: WebPages, mode: Mode = "open", tokens: TokenTable | None = None
    ) -> None:
        self._pages = pages
        self.fields = pages.fields
        self._tokens = tokens
        self._need_tokens = _NEED_TOKENS[mode]

    def guard(self, plan: RequestPlan, method: str, headers: Fields) -> RequestPlan:
        """Return a plan with what the gate decides: a refusal, or a claim that must hold at
        each request."""
        fields = self._pages.fields(headers)
        credentials = (
            [value for name, value in headers if name == b"authorization"] if self._tokens else []
        )
        claim = self._pages.respond(method, headers) or self._claim(plan.scope, credentials)
        if isinstance(refusal := claim, Response):
            return replace(plan, fields=fields, claim=lambda: refusal)
        return replace(
            plan, fields=fields, claim=claim, cacheable=method == "GET" and not credentials
        )

    def why_unavailable(self, scope: Scope) -> str:
        """Return why no request of this scope can be admitted now, "" if some can: the tokens
        are not known."""
        if self._tokens is None or scope not in self._need_tokens:
            return ""
        return self._tokens.why_unavailable()

    def identity(self, token_number: int) -> tuple[str | None, Scope]:
        """Return the name and the scope of a token; without one (0), None and what every client
        may do."""
        if self._tokens and token_number:
            return self._tokens.name(token_number), self._tokens.scope(token_number)
        return None, "read" if "write" in self._need_tokens else "write"

    def _claim(self, scope: Scope | None, credentials: list[bytes]) -> Claim | Response | None:
        """Return the claim of a head that has a Bearer token. Otherwise return None, or the refusal
        if it needs a token."""
        tokens = self._tokens
        if tokens is None or scope is None:
            return None
        if len(credentials) > 1:
            return error_response(400, "The request has more than one Authorization header")
        claimed = _claimed(credentials[0]) if credentials else None
        if claimed is not None:
            return partial(tokens.admit, claimed, scope)
        if scope not in self._need_tokens:
            return None
        if scope == "write":
            return challenge(401, "Writing needs a token")
        return challenge(401, "Reading needs a token")


def _claimed(credentials: bytes) -> str | None:
    """Return the hash of the token that a client sent, "" if it cannot be a token, None if the
    client sent none."""
    scheme, _, text = credentials.partition(b" ")
    if scheme.lower() != b"bearer":
        return None
    token = text.strip(b" ")
    if not is_well_formed(token):
        return ""
    return hashed(token)

"""The gate decides which requests are admitted; both adapters ask it for every route. Imports `http` and the domain.

What the head and the settings alone decide is part of the plan, which is cached with its head. What also depends on
the time and on the present tokens is decided anew for each request, by `Plan.admit`.
"""

from functools import lru_cache, partial
from typing import Literal

from msgspec.structs import replace

from storekeeper.api.origins import WebPages
from storekeeper.api.plan import Claim, Plan, refused
from storekeeper.api.resource import Resource
from storekeeper.api.routes import Scope
from storekeeper.api.token_table import TokenTable, challenge
from storekeeper.http.request import Request
from storekeeper.http.response import Fields, Headers, Response, encode_fields, error_response
from storekeeper.tokens import hashed, is_well_formed

Mode = Literal["open", "writes", "all"]
_NEED_TOKENS: dict[Mode, tuple[Scope, ...]] = {"open": (), "writes": ("write",), "all": ("read", "write")}
"""Which requests need a token: none, those that write, or all but those of routes without a scope."""

MAX_CREDENTIALS_BYTES = 256
"""Bytes of an Authorization field that are looked at: what is longer is no token."""


class Gate:
    """Admits requests by the settings. Without `tokens`, nobody needs a token."""

    def __init__(
        self, resource: Resource, pages: WebPages, mode: Mode = "open", tokens: TokenTable | None = None
    ) -> None:
        self._plan = resource.plan
        self._pages = pages
        self._tokens = tokens
        self._need_tokens = _NEED_TOKENS[mode]

    def plan(self, method: str, target: bytes, headers: Fields) -> Plan | None:
        """Return the plan of a request, which may be a refusal; None if the application has to respond to it."""
        fields = encode_fields(self._pages.fields(headers))
        if response := self._pages.respond(method, headers):
            return refused(response, fields)
        plan = self._plan(method, target, headers)
        claim = self._claim(plan.scope, headers) if plan else None
        if isinstance(claim, Response):
            return refused(claim, fields)
        return replace(plan, fields=fields, claim=claim) if plan and (fields or claim) else plan

    def fields(self, headers: Fields) -> Headers:
        """Return the fields that belong in every response to a request with these headers."""
        return self._pages.fields(headers)

    def unknown(self, scope: Scope) -> str:
        """Return why no request of this scope can be admitted now, "" if some can: the tokens are not known."""
        return self._tokens.unknown if self._tokens and scope in self._need_tokens else ""

    def early_refusal(self, request: Request) -> Response | None:
        """Plan a request whose body is not read yet; return its refusal if the head alone decides, or None."""
        request.plan = plan = self.plan(request.method, request.target, request.headers)
        admitted = plan.admit() if plan else None
        return admitted if isinstance(admitted, Response) else None

    def _claim(self, scope: Scope | None, headers: Fields) -> Claim | Response | None:
        """Return the claim of a head that has a Bearer token; else None, or the refusal if it needs a token."""
        tokens = self._tokens
        if tokens is None or scope is None:
            return None
        credentials = [value for name, value in headers if name == b"authorization"]
        if len(credentials) > 1:
            return error_response(400, "The request has more than one Authorization header")
        claimed = _claimed(credentials[0][: MAX_CREDENTIALS_BYTES + 1]) if credentials else None
        if claimed is not None:
            return partial(tokens.admit, claimed, scope)
        if scope not in self._need_tokens:
            return None
        return challenge(401, "Writing needs a token" if scope == "write" else "Reading needs a token")


@lru_cache(maxsize=1024)
def _claimed(credentials: bytes) -> str | None:
    """Return the hash of the token that a client sent, "" if it has not the form of one, None if it sent none."""
    scheme, _, text = credentials.partition(b" ")
    if scheme.lower() != b"bearer":
        return None
    token = text.strip(b" ")
    return hashed(token) if is_well_formed(token) and len(credentials) <= MAX_CREDENTIALS_BYTES else ""

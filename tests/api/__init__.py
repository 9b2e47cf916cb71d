"""The contract and its decisions, the cache, other ASGI servers, the OpenAPI document and the
page."""

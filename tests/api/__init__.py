"""The contract and its decisions, the cache, both adapters, the OpenAPI document and the page."""

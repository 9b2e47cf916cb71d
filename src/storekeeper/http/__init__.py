"""An HTTP/1.1 server on uvicorn that knows no store. Imports nothing of `api` and nothing of the
domain."""

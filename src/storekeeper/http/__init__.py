"""An HTTP/1.1 server on uvicorn that knows no store."""

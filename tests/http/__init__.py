"""The HTTP/1.1 server: requests, connections, timeouts, limits and budgets."""

"""What tests start, query and break: processes, sockets, databases, proxies, a browser."""

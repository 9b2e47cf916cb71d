"""What tests start, ask and break: processes, sockets, databases, proxies, a browser."""

"""One running service: its start, socket, workers and stop."""

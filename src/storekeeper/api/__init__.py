"""The Store Resource API over HTTP: its routes, and its two adapters."""

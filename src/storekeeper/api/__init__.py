"""The Store Resource API over HTTP: the contract (`resource`) and its two adapters."""

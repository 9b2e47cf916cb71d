"""Compares Storekeeper with other stacks on this machine; `python -m bench.run --help`."""

"""Stores, changes, commands and rules: no SQL, no I/O, no event loop."""

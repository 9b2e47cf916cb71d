"""Stores, commands, and the promises of a collection on every kind of database."""

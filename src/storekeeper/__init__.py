"""Storekeeper: one list of a company's stores, served over the Store Resource API."""

__version__ = "0.1.0"

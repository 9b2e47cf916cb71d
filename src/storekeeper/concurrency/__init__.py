"""Batches, and blocking work on threads. Imports the domain's errors."""

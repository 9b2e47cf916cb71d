"""Batches, and blocking work on threads."""

"""Queue limits, and blocking work on threads. Imports nothing of the project."""

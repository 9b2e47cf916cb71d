"""How many may wait, and work on threads. Imports nothing of the project."""

"""Queue limits, and blocking work on threads. Imports the domain's errors."""

"""How many writes may wait."""

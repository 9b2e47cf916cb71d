"""What shows that the promises hold. The rooms are those of `src/storekeeper`; no test module
imports another."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The repository: where `python -m tests...` is started."""

"""Programs that `make` runs for the repository: locks, bill of materials, audit."""

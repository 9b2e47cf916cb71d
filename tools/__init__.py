"""What `make` runs beside the service: locks, bill of materials, audit."""

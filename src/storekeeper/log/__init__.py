"""What may be logged, and the thread that writes it."""

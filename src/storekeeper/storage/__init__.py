"""What every database must promise, and how both keep it."""

"""What is PostgreSQL's own: sessions, batches, failures and the network."""

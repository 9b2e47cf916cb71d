"""What is SQLite's own: the schema, the file, its disk, locks and errors."""

"""The commands, and the files that they read and write."""

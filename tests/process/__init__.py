"""The process and its workers: start, stop, settings, log."""

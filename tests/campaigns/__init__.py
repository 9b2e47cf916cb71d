"""The long runs: `make soak`, `faults`, `load`, `fuzz-http`, `fuzz-api`. Each is `python -m
tests.campaigns.NAME`."""

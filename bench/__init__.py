"""Benchmarks: `make bench`. Each prints a ratio against a named peer or a limit, measured in the same run."""

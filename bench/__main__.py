"""Run all benchmarks, or those named: python -m bench [NAME ...]."""

import importlib
import sys

ALL = [
    "kernel",
    "heart",
    "end_to_end",
    "people",
    "recovery",
    "service",
    "calls",
    "policies",
    "simulate",
    "forecasts",
    "outlooks",
    "claims",
    "promises",
    "newcomers",
    "scarce",
    "remote",
    "machines",
    "offers",
    "ray_nodes",
]

for name in sys.argv[1:] or ALL:
    importlib.import_module(f"bench.{name}").run()

"""Runs benchmarks: speeds as ratios against a named peer, or a limit of the machine, in the same run."""

import argparse
import importlib

ALL = (
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
    "mixtures",
    "scarce",
    "remote",
    "machines",
    "offers",
    "ray_nodes",
)


def main() -> None:
    """Run the benchmarks that are named, or all."""
    purposes = {name: (importlib.import_module(f"bench.{name}").__doc__ or "").partition("\n")[0] for name in ALL}
    parser = argparse.ArgumentParser(
        "python -m bench",
        description=__doc__,
        epilog="\n".join(f"{name:<11} {purpose}" for name, purpose in purposes.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="one of those below; default: all")
    names = parser.parse_args().names
    for name in names:
        if name not in ALL:
            parser.error(f"no benchmark is called {name}: one of {', '.join(ALL)}")
    for name in names or ALL:
        importlib.import_module(f"bench.{name}").run()


main()

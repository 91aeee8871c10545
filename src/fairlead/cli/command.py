"""Runs the command line. Importing it takes a moment, in which an interrupt ends the program as quietly as later."""

import sys


def main() -> None:
    try:
        from fairlead.cli.main import main
    except KeyboardInterrupt:
        sys.exit(130)
    main()

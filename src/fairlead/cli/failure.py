"""How a command fails: with one line on standard error and exit status 1."""


class Failure(Exception):
    """Ends a command with one line on standard error."""

"""The exception that ends a command."""


class Failure(Exception):
    """Ends a command with one line on standard error and exit status 1."""

"""The exception that a command ends with: one line on standard error and exit status 1."""


class Failure(Exception):
    """What a person can put right; the message names the fault, its place and the remedy."""

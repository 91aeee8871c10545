"""The exception that a command ends with: one line on standard error and exit status 1."""

from collections.abc import Iterator
from contextlib import contextmanager


class Failure(Exception):
    """What a person can put right; the message names the fault, its place and the remedy."""


@contextmanager
def failing(before: str, *kinds: type[Exception], after: str = "") -> Iterator[None]:
    """Raise Failure for exceptions of these kinds: what they say, without an OSError's number and path, and what is around it."""
    try:
        yield
    except kinds as error:
        raise Failure(f"{before}{getattr(error, 'strerror', None) or error}{after}") from None

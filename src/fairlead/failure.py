"""The exceptions that a command ends with: one line on standard error, and exit status 1, or 2 for wrong usage."""

from collections.abc import Iterator
from contextlib import contextmanager


class Failure(Exception):
    """What a person can put right; the message names the fault, its place and the remedy."""

    exit_status = 1


class WrongUsage(Failure):
    """A command line that is malformed or contradicts itself, whatever the scheduler and files say."""

    exit_status = 2


@contextmanager
def failing(before: str, *kinds: type[Exception], after: str = "", to: type[Exception] = Failure) -> Iterator[None]:
    """Turn exceptions of these kinds into another, which says `before`, what they said, and `after`.

    After a text, an OSError's number and path are left out.
    """
    try:
        yield
    except kinds as error:
        raise to(f"{before}{(before and getattr(error, 'strerror', None)) or error}{after}") from None

"""Standard streams that survive a closed descriptor, a full disk and an encoding that lacks characters."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from fairlead.failure import Failure


class OutputLost(Failure):
    """Standard output cannot be written."""


class _Output(io.FileIO):
    """Standard output; after a failed write, later writes are discarded.

    An exception of a signal handler is dropped if the data is already written, or the data would be written twice. The owner of
    the handler raises again: see :class:`fairlead.cli.run.Signals`.
    """

    def write(self, data: Any) -> Any:
        written: list[Any] = []
        try:
            written.extend(map(super().write, (data,)))  # one step: no handler runs between write and append
            return written[0]
        except OSError as error:
            _open_null(1, os.O_WRONLY)
            if isinstance(error, BrokenPipeError):
                raise
            raise OutputLost(f"standard output: cannot be written: {(error.strerror or str(error)).lower()}") from None
        except Exception:
            if not written:
                raise
            return written[0]


class _Errors(io.FileIO):
    """Standard error; failed writes are ignored and do not change the exit status, except if its reader is gone."""

    def write(self, data: Any) -> Any:
        try:
            return super().write(data)
        except BrokenPipeError:
            _open_null(2, os.O_WRONLY)
            raise
        except OSError:
            return len(data)


def _open_null(number: int, flags: int) -> None:
    null = os.open(os.devnull, flags)
    if null != number:
        os.dup2(null, number)
        os.close(null)


@contextlib.contextmanager
def safe_streams() -> Iterator[None]:
    """Replace the standard streams by ones that raise only OutputLost and BrokenPipeError, and flush them at the end.

    A closed stream keeps its descriptor, so that no other file gets it: input is empty, output fails, errors are dropped.
    """
    before = sys.stdin, sys.stdout, sys.stderr
    for number, stream, flags in ((0, sys.stdin, os.O_RDONLY), (1, sys.stdout, os.O_RDONLY), (2, sys.stderr, os.O_RDWR)):
        if stream is None:
            _open_null(number, flags)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    output = sys.stdout = _text(_Output(1, "w", closefd=False), sys.stdout)
    errors = sys.stderr = _text(_Errors(2, "w", closefd=False), sys.stderr)
    try:
        yield
    finally:
        with contextlib.suppress(BrokenPipeError):
            errors.flush()
        try:
            output.flush()
        except OutputLost as lost:
            print(f"fairlead: {lost}", file=errors, flush=True)
            sys.exit(1)
        except BrokenPipeError:
            sys.exit(1)
        finally:
            sys.stdin, sys.stdout, sys.stderr = before


def _text(raw: io.FileIO, before: TextIO | None) -> TextIO:
    """Open a text stream with the encoding of `before`; characters that it lacks become question marks."""
    encoding = "utf-8" if before is None else before.encoding
    errors = "replace" if before is None or before.errors == "strict" else before.errors
    buffered = io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, encoding, errors, line_buffering=raw.fileno() == 2 or raw.isatty())

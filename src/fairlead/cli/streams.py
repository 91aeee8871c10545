"""Standard input, output and error of a command: closed, on a full disk, or of an encoding that lacks characters."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from fairlead.cli.failure import Failure


class OutputLost(Failure):
    """Standard output takes no more."""


class _Output(io.FileIO):
    """Standard output, as it is; once it fails, what is still written goes nowhere.

    What a signal's handler raises when something is written already is not raised here, else that would be written again. Who
    has such a handler raises it again: see :class:`fairlead.cli.run.Signals`.
    """

    def write(self, data: Any) -> Any:
        written: list[Any] = []
        try:
            written.extend(map(super().write, (data,)))  # one step: no handler runs between writing and noting that
            return written[0]
        except OSError as error:
            _to_nothing(1, os.O_WRONLY)
            if isinstance(error, BrokenPipeError):
                raise
            raise OutputLost(f"standard output: cannot be written: {(error.strerror or str(error)).lower()}") from None
        except Exception:
            if not written:
                raise
            return written[0]


class _Errors(io.FileIO):
    """Standard error: that it cannot be written is told nowhere, and changes no exit status, but where its reader has gone."""

    def write(self, data: Any) -> Any:
        try:
            return super().write(data)
        except BrokenPipeError:
            _to_nothing(2, os.O_WRONLY)
            raise
        except OSError:
            return len(data)


def _to_nothing(number: int, how: int) -> None:
    nothing = os.open(os.devnull, how)
    if nothing != number:
        os.dup2(nothing, number)
        os.close(nothing)


@contextlib.contextmanager
def checked_streams() -> Iterator[None]:
    """Have standard streams in here that raise nothing but OutputLost, as a Failure, and BrokenPipeError; flushed at its end.

    One that is closed is no file's that is opened next: of input there is none, output fails, and errors are told nowhere.
    """
    before = sys.stdin, sys.stdout, sys.stderr
    for number, stream, how in ((0, sys.stdin, os.O_RDONLY), (1, sys.stdout, os.O_RDONLY), (2, sys.stderr, os.O_RDWR)):
        if stream is None:
            _to_nothing(number, how)
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
    """A stream of text over a file, as another was; what its encoding does not have is a question mark."""
    encoding = "utf-8" if before is None else before.encoding
    errors = "replace" if before is None or before.errors == "strict" else before.errors
    buffered = io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, encoding, errors, line_buffering=raw.fileno() == 2 or raw.isatty())

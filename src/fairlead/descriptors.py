"""File descriptors that are closed after a block."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def opened(path: Path | str, flags: int, mode: int = 0o777, dir_fd: int | None = None) -> Iterator[int]:
    """Open a file that no program inherits. Raises OSError."""
    fd = os.open(path, flags | os.O_CLOEXEC, mode, dir_fd=dir_fd)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def closing_all(fds: list[int]) -> Iterator[list[int]]:
    """Close descriptors, also those that the block adds to the list, but not those that it takes from it."""
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)

"""What tasks wrote, on the machine where they did: FOLDER/output/JOB/INDEX.out and .err. Only the standard library."""

import os
from pathlib import Path

from fairlead.data_folder import open_plain


def read_piece(output: Path, job: int, index: int, stream: str, offset: int, most: int) -> bytes | None:
    """A piece of what a task wrote; None where there is nothing (yet). Raises NotPlain for what is no plain file."""
    try:
        with open_plain(output / str(job) / f"{index}.{stream}") as file:
            if offset >= os.fstat(file.fileno()).st_size:  # it may be more than a disk can have
                return b""
            file.seek(offset)
            return file.read(most)
    except FileNotFoundError:  # it has not started
        return None

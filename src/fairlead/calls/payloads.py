"""The files of Python calls: pickled by a client, called by a worker process, answered in a result file.

Each client program opens a session, which has a folder:

=================  ====================================================================================
`setup.json`       interpreter, working directory, environment and import path; owned by the scheduler
a payload          the pickled calls of a job, one per task; owned by the person
`results`          folder with the result `JOB.INDEX` of each task; the person's
packed code        the program's code if sent, named by its hash
`code`             folder that workers unpack it into; the person's
=================  ====================================================================================

A payload begins with the number of calls and their offsets, 8 bytes each, so that a worker reads only its own call.
"""

import pickle
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

LARGEST_PAYLOAD = 2**30
"""Bytes of the pickled calls of one job."""
LARGEST_RESULT = 2**30
"""Bytes of one pickled result."""

SETUP = "setup.json"
RESULTS = "results"
CODE = "code"


class ResultTooLarge(ValueError):
    """A function returned more than `LARGEST_RESULT`."""


def pack(calls: Sequence[bytes]) -> bytes:
    """Encode pickled calls as a payload."""
    offsets = [0]
    for call in calls:
        offsets.append(offsets[-1] + len(call))
    return struct.pack(f"<{len(offsets) + 1}Q", len(calls), *offsets) + b"".join(calls)


def count(file: BinaryIO, size: int) -> int:
    """Return the number of calls in a payload of `size` bytes; raises ValueError if it is not a payload."""
    head = file.read(8)
    n = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
    header = 8 * (n + 2)
    if n == 0 or header > size:
        raise ValueError("not a payload: it is too short")
    file.seek(header - 8)
    if file.read(8) != struct.pack("<Q", size - header):
        raise ValueError("not a payload: its offsets do not match its size")
    return int(n)


def place_of_call(file: BinaryIO, index: int) -> tuple[int, int]:
    """Return the offset and size of one call in a payload; raises ValueError if there is no such call."""
    head = file.read(8)
    n = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
    if index >= n:
        raise ValueError(f"not a payload with call {index}")
    file.seek(8 * (index + 1))
    begin, end = struct.unpack("<2Q", file.read(16))
    return 8 * (n + 2) + begin, max(0, end - begin)


def read_call(path: Path, index: int) -> bytes:
    """Read one pickled call."""
    with path.open("rb") as file:
        begin, size = place_of_call(file, index)
        file.seek(begin)
        return file.read(size)


def result_name(job: int, index: int) -> str:
    """Return the name of a result's file."""
    return f"{job}.{index}"


def write_result(path: Path, value: Any = None, error: BaseException | None = None, trace: str = "") -> None:
    """Write what a function returned, or raised with its traceback as text; atomically."""
    import cloudpickle

    if error is None:
        body = b"+" + cloudpickle.dumps(value)
        if len(body) > LARGEST_RESULT:
            raise ResultTooLarge(
                f"a result of {len(body) >> 20} MiB: write it to a file: a result may have at most {LARGEST_RESULT >> 20} MiB"
            )
    else:
        body = b"-" + pickle.dumps((cloudpickle.dumps(error), trace))  # readable even if the error cannot be unpickled
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(body)
    fresh.rename(path)

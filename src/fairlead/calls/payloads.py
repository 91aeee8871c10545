"""How calls of Python functions travel: pickled by the program that asks, called by a worker process, answered in a file.

A session, one a program, has a folder: `setup.json` says with which interpreter, folder, environment and import path to call;
a payload file holds the pickled calls of a job, one a task. The first is the scheduler's; payloads, and what is in `results`, are
the person's whose program it is: `JOB.INDEX` is the result of a task. A payload begins with the number of calls and where each
begins and the last one ends, all as 8 bytes, so that a worker reads its own alone. Where the code of the program goes along, it
is there packed, in a file that is named by what is in it; workers unpack it into the folder `code`, which is the person's, too.
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
    """A function returned more than can be passed on."""


def pack(calls: Sequence[bytes]) -> bytes:
    """Write pickled calls as a payload."""
    offsets = [0]
    for call in calls:
        offsets.append(offsets[-1] + len(call))
    return struct.pack(f"<{len(offsets) + 1}Q", len(calls), *offsets) + b"".join(calls)


def count(file: BinaryIO, size: int) -> int:
    """How many calls a payload of so many bytes holds; raises ValueError where it is not one."""
    head = file.read(8)
    n = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
    header = 8 * (n + 2)
    if n == 0 or header > size:
        raise ValueError("not a payload: it is too short")
    file.seek(header - 8)
    if file.read(8) != struct.pack("<Q", size - header):
        raise ValueError("not a payload: its offsets are not those of its calls")
    return int(n)


def place_of_call(file: BinaryIO, index: int) -> tuple[int, int]:
    """Where one pickled call begins in a payload, and its bytes; raises ValueError where there is no such call."""
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
    """The name of a result's file."""
    return f"{job}.{index}"


def write_result(path: Path, value: Any = None, error: BaseException | None = None, trace: str = "") -> None:
    """Write what a function returned, or raised with its traceback as text; whole or not at all."""
    import cloudpickle

    if error is None:
        body = b"+" + cloudpickle.dumps(value)
        if len(body) > LARGEST_RESULT:
            raise ResultTooLarge(
                f"a result of {len(body) >> 20} MiB: write it to a file, at most {LARGEST_RESULT >> 20} MiB pass"
            )
    else:
        body = b"-" + pickle.dumps((cloudpickle.dumps(error), trace))  # the trace can be read even if the error cannot
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(body)
    fresh.rename(path)

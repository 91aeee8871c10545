"""The folder of a session, and the bounds of Python calls.

Each client program opens a session, which has a folder:

=================  ====================================================================================
`setup.json`       interpreter, working directory, environment and import path; owned by the scheduler
packed code        the program's code if sent, named by its hash; owned by the person
`code`             folder that workers unpack it into; the person's
`results`          folder with what comes back from tasks of jobs with a sent folder; the person's
=================  ====================================================================================
"""

import struct

LARGEST_PAYLOAD = 2**30
"""Bytes of packed code, and twice those of one call."""
LARGEST_RESULT = 2**30
"""Bytes of one pickled result."""
COUNTS = struct.Struct("<qd")
"""How many calls a worker made in a lease, and their seconds: in a file of the supervisor."""

SETUP = "setup.json"
RESULTS = "results"
CODE = "code"


class ResultTooLarge(ValueError):
    """A function returned more than `LARGEST_RESULT`."""


def result_name(job: int, index: int) -> str:
    return f"{job}.{index}"

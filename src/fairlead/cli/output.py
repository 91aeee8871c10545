"""A task's output, copied to this terminal as it comes."""

import sys
import time
from typing import Any

from fairlead.client.connection import Connection

OVER = ("succeeded", "failed", "cancelled")


def stream_task(connection: Connection, job: int, index: int, follow: bool) -> dict[str, Any]:
    """Copy what a task wrote to standard output and standard error; with `follow`, until it is over.

    Returns the task as it is then. Its output is read on by offset, so a scheduler that is restarted meanwhile is no matter.
    """
    offsets = {"out": 0, "err": 0}
    pause = 0.01
    while True:
        # The status first: what a task that is over wrote is there already.
        found = connection.get(f"/v1/jobs/{job}/tasks", first=index, limit=1)["tasks"]
        task: dict[str, Any] = found[0] if found else {"index": index, "status": "none"}
        moved = False
        for stream, target in (("out", sys.stdout.buffer), ("err", sys.stderr.buffer)):
            while True:
                piece = connection.get_bytes(f"/v1/jobs/{job}/tasks/{index}/output/{stream}", offset=offsets[stream])
                if not piece:
                    break
                moved = True
                offsets[stream] += len(piece)
                target.write(piece)
                target.flush()
        if task["status"] in OVER or not follow:
            return task
        pause = 0.01 if moved else min(0.2, pause * 1.5)
        time.sleep(pause)

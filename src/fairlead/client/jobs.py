"""Requests for jobs, and submitted jobs."""

import json
import os
import time
from collections.abc import Sequence
from typing import Any

from fairlead.client.connection import Connection
from fairlead.model.api_types import JobInfo, TaskInfo, WhenInfo, Why

OVER = ("succeeded", "failed", "cancelled")
POLL_SECONDS = 50.0
"""How long the scheduler delays one answer while a job has not ended, at most."""


def job_request(
    *, cpu: float | str, memory: float | str, gpu: float | str, resources: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """Return the part of a request that all kinds of jobs share; `more` has its fields other than the demand."""
    demand = {"cpu": cpu, "memory": memory, "gpu": gpu, **resources}
    return {"demand": {name: quantity for name, quantity in demand.items() if quantity not in (0, "0")}, **more}


def encoded(texts: dict[str, Any]) -> dict[str, Any]:
    """Encode strings of this system for JSON; names of arbitrary bytes are sent as Latin-1, with `encoding`."""
    try:
        json.dumps(texts, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return {**{name: _as_latin(value) for name, value in texts.items()}, "encoding": "latin-1"}
    return texts


def _as_latin(value: Any) -> Any:
    match value:
        case str():
            return os.fsencode(value).decode("latin-1")
        case dict():
            return {_as_latin(key): _as_latin(each) for key, each in value.items()}
        case _:
            return [_as_latin(each) for each in value]


class SubmittedJob:
    """A job of the scheduler, by its number.

    Attributes
    ----------
    id : int
    """

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection = connection
        self.id = number

    def __repr__(self) -> str:
        return f"<fairlead job {self.id}>"

    def info(self) -> JobInfo:
        """Return the job's request and the number of tasks by status."""
        return self._connection.get(f"/v1/jobs/{self.id}")

    def status(self) -> str:
        """Return the status: waiting, held, running, succeeded, failed or cancelled."""
        return self.info()["status"]

    def tasks(self, status: str | None = None, indices: range | None = None) -> list[TaskInfo]:
        """Return tasks by index: all, or those with a status such as "failed", or of ``range(100, 201)``."""
        if indices is not None and not indices:
            return []
        found: list[TaskInfo] = []
        first: int | None = min(indices) if indices else 0
        last = max(indices) if indices else None
        while first is not None and (last is None or first <= last):
            most = 10_000 if last is None else min(10_000, last - first + 1)
            page = self._connection.get(f"/v1/jobs/{self.id}/tasks", first=first, limit=most, status=status)
            found += [task for task in page["tasks"] if indices is None or task["index"] in indices]
            first = page["next"]
        return found

    def wait(self, timeout: float | None = None) -> JobInfo:
        """Wait until the job has ended. Raises TimeoutError after `timeout` seconds."""
        until = time.monotonic() + timeout if timeout is not None else None
        while True:
            left = POLL_SECONDS if until is None else max(0.0, min(POLL_SECONDS, until - time.monotonic()))
            info: JobInfo = self._connection.get(f"/v1/jobs/{self.id}", wait=left)
            if info["status"] in OVER:
                return info
            if left == 0:
                raise TimeoutError(f"job {self.id} is {info['status']} after {timeout:g} seconds")

    def why(self) -> Why:
        """Explain why the job is waiting."""
        return self._connection.get(f"/v1/jobs/{self.id}/why")

    def when(self) -> WhenInfo:
        """Estimate when the job will start."""
        return self._connection.get(f"/v1/jobs/{self.id}/when")

    def cancel(self, indices: Sequence[int] | None = None) -> bool:
        """Cancel the job, or some of its tasks. Return True if there was something to cancel."""
        body = {"indices": list(indices) if indices is not None else None}
        return self._connection.post(f"/v1/jobs/{self.id}/cancel", body)["changed"]

    def hold(self) -> None:
        """Keep waiting tasks from starting."""
        self._connection.post(f"/v1/jobs/{self.id}/hold", {})

    def release(self) -> None:
        """Undo :meth:`hold`."""
        self._connection.post(f"/v1/jobs/{self.id}/release", {})

    def output(self, index: int = 0, stream: str = "out") -> bytes:
        """Return a task's output so far: "out" is its standard output, "err" its standard error."""
        pieces: list[bytes] = []
        path = f"/v1/jobs/{self.id}/tasks/{index}/output/{stream}"
        while piece := self._connection.get_bytes(path, offset=sum(map(len, pieces))):
            pieces.append(piece)
        return b"".join(pieces)

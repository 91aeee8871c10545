"""A session: the scheduler's folder for the calls of one program and their results."""

import base64
import os
import sys
import uuid
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.calls import payloads, worker
from fairlead.client.calls_under_way import TaskId, Waiting
from fairlead.client.connection import Connection
from fairlead.client.jobs import encoded
from fairlead.client.service_error import ServiceError

if TYPE_CHECKING:
    from fairlead.client.code_folder import PackedCode

MOST_BYTES_IN_BODY = 4 * 2**20
"""Bytes of pickled calls sent in their request; larger payloads are uploaded before it."""
POLL_SECONDS = 50.0
"""How long the scheduler delays an answer without events, at most."""


class Session:
    """Opened when the first call is sent; `id` is None until then. `code` is uploaded with it, if given."""

    def __init__(self, connection: Connection, code: "PackedCode | None" = None) -> None:
        self._connection, self._code = connection, code
        self.id: str | None = None
        self._epoch, self._next = "", 0  # the position of the next event

    def open(self) -> None:
        """Open the session."""
        session = self._connection.post("/v1/sessions", _setup(self._code))["id"]
        if self._code is not None:
            self._connection.put(f"/v1/sessions/{session}/payloads/{self._code.name}", self._code.data)
            self._code = None
        self.id = session

    def submit(self, groups: list[list[Waiting]]) -> list[int]:
        """Submit each group as a job, in one request: all or none. Return their numbers."""
        jobs = []
        for group in groups:
            payload, packed = uuid.uuid4().hex, payloads.pack([waiting.call for waiting in group])
            options = group[0].options
            job = {**options.request(), "name": group[0].name, "payload": payload, "strict": not options.wait_for_node}
            if len(packed) <= MOST_BYTES_IN_BODY:
                job["data"] = base64.b64encode(packed).decode()
            else:
                self._connection.put(f"/v1/sessions/{self.id}/payloads/{payload}", packed)
            jobs.append(job)
        answer = self._connection.submit(f"/v1/sessions/{self.id}/calls", {"jobs": jobs})
        for job in answer["jobs"]:
            if job["warning"]:
                warnings.warn(f"fairlead: {job['warning']}", stacklevel=2)
        return [job["id"] for job in answer["jobs"]]

    def next_events(self) -> list[dict[str, Any]]:
        """Wait for events of calls; return none after `POLL_SECONDS`."""
        answer = self._connection.get(f"/v1/sessions/{self.id}/events", epoch=self._epoch, after=self._next, wait=POLL_SECONDS)
        self._epoch, self._next = answer["epoch"], answer["next"]
        return list(answer["events"])

    def result(self, event: dict[str, Any]) -> bytes | None:
        """Return the result that a finished call wrote; None if it wrote none."""
        if event["result"] is not None:
            return base64.b64decode(event["result"])
        if event["size"] is not None:
            return self._connection.get_bytes(f"/v1/sessions/{self.id}/results/{event['job']}/{event['index']}")
        return None

    def cancel(self, task: TaskId, only_waiting: bool = True) -> bool:
        """Cancel a waiting call, or unless `only_waiting` also a running one. Return True if it was cancelled."""
        job, index = task
        body = {"indices": [index], "only_waiting": only_waiting}
        return bool(self._connection.post(f"/v1/jobs/{job}/cancel", body)["changed"])

    def close(self) -> None:
        """Close the session."""
        if self.id is not None:
            with suppress(ServiceError):  # the scheduler closes a silent session anyway
                self._connection.delete(f"/v1/sessions/{self.id}")


def _setup(code: "PackedCode | None") -> dict[str, Any]:
    """Describe this program's worker: its interpreter, environment and import path; paths in `code` are relative to it."""
    here, python = str(Path.cwd()), f"{sys.version_info[0]}.{sys.version_info[1]}"
    argv, path = [sys.executable, "-P", worker.__file__], [str(Path(entry or here).absolute()) for entry in sys.path]
    more: dict[str, str] = {}
    if code is not None:
        more = {"code": code.name, "inside": _within(here, code.root) or ""}
        path, here = [_within(entry, code.root) or entry for entry in path], "/"
    return {**encoded({"argv": argv, "cwd": here, "env": dict(os.environ)}), "path": path, "python": python, **more}


def _within(path: str, root: Path) -> str | None:
    """Return a path relative to a folder; None if it is elsewhere."""
    real = Path(path).resolve()
    return str(real.relative_to(root)) if real.is_relative_to(root) else None

"""A session: the scheduler's folder for the workers of one program."""

import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.calls import worker
from fairlead.client.connection import Connection
from fairlead.client.jobs import encoded
from fairlead.client.lease import Lease
from fairlead.client.options import Options
from fairlead.client.service_error import ServiceError

if TYPE_CHECKING:
    from fairlead.client.code_folder import PackedCode

POLL_SECONDS, BUSY_POLL_SECONDS = 50.0, 5.0
"""How long the scheduler delays an answer without events, at most; the second while there are calls, which it shows."""


class Session:
    """Opened when the first lease is requested; `id` is None until then. `code` is uploaded with it, if given.

    `preload` are modules that its workers import before they take calls.
    """

    def __init__(self, connection: Connection, code: "PackedCode | None" = None, preload: Sequence[str] = ()) -> None:
        self._connection, self._code, self._preload = connection, code, list(preload)
        self.id: str | None = None
        self._epoch, self._next = "", 0  # the position of the next event

    def open(self, address: str, secret: str) -> None:
        """Open the session of a program that listens at an abstract address; its relays know the secret."""
        setup = {**_setup(self._code), "address": address, "secret": secret}
        setup |= {"preload": self._preload} if self._preload else {}  # which an older scheduler refuses
        session = self._connection.post("/v1/sessions", setup)["id"]
        if self._code is not None:
            self._connection.put(f"/v1/sessions/{session}/payloads/{self._code.name}", self._code.data)
            self._code = None
        self.id = session

    def request(self, leases: list[tuple[Lease, Options, str]]) -> list[int]:
        """Submit leases, with their options and names, as a job each, in one request: all or none. Return their numbers."""
        jobs = []
        for lease, options, name in leases:
            asked = replace(options, retries=0, time_limit=None).request()  # those of calls
            jobs.append({**asked, "name": name, "lease": lease.number, "strict": not options.wait_for_node})
        answer = self._connection.submit(f"/v1/sessions/{self.id}/leases", {"jobs": jobs})
        for job in answer["jobs"]:
            if job["warning"]:
                warnings.warn(f"fairlead: {job['warning']}", stacklevel=2)
        return [job["id"] for job in answer["jobs"]]

    def next_events(self, sent: int, waiting: int) -> tuple[list[dict[str, Any]], bool]:
        """Wait for events of leases; return none after a while. Return also whether a relay waits for this program.

        The scheduler shows how many calls workers have, and how many wait.
        """
        path, wait = f"/v1/sessions/{self.id}/events", BUSY_POLL_SECONDS if sent or waiting else POLL_SECONDS
        answer = self._connection.get(path, epoch=self._epoch, after=self._next, wait=wait, sent=sent, waiting=waiting)
        self._epoch, self._next = answer["epoch"], answer["next"]
        return list(answer["events"]), bool(answer["relays"])

    def cancel(self, jobs: list[int], only_waiting: bool) -> bool:
        """Cancel waiting leases, and unless `only_waiting` also running ones. Return True if one was cancelled."""
        return bool(jobs and self._connection.post("/v1/cancel", {"jobs": jobs, "only_waiting": only_waiting})["cancelled"])

    def close(self) -> None:
        if self.id is not None:
            with suppress(ServiceError):  # the scheduler closes a silent session anyway
                self._connection.delete(f"/v1/sessions/{self.id}")


def _setup(code: "PackedCode | None") -> dict[str, Any]:
    """Describe this program's worker: its interpreter, environment and import path; paths in `code` are relative to it."""
    here, python = str(Path.cwd()), f"{sys.version_info[0]}.{sys.version_info[1]}"
    argv, path = [sys.executable, "-P", worker.__file__], [str(Path(entry or here).absolute()) for entry in sys.path]
    more: dict[str, str] = {}
    if code is not None:
        more = {"code": code.name, "inside": code.within(here) or ""}
        path, here = [code.within(entry) or entry for entry in path], "/"
    return {**encoded({"argv": argv, "cwd": here, "env": dict(os.environ)}), "path": path, "python": python, **more}

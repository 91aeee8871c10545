"""Why a job waits, and until when: for people who wait for it."""

import time
from contextlib import suppress
from typing import Any

from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError
from fairlead.plain_text import moment, plain, span


def why_text(found: dict[str, Any]) -> str:
    """Describe why a job waits, and until when if that is a time."""
    begins = f": {moment(found['begins_at'])}, in {span(found['begins_at'] - time.time())}" if "begins_at" in found else ""
    return f"{found['text']}{begins}"


def sentence_of_waiting(connection: Connection, job: int) -> str:
    """Ask the scheduler why a job waits and when it should start; return a line for people."""
    with suppress(ServiceError):  # it may have started just now
        why = connection.get(f"/v1/jobs/{job}/why")
        when = connection.get(f"/v1/jobs/{job}/when")
        expected = "" if when["reason"] in ("over", "running") else f"; expected: {when['text']}"
        before = why.get("ahead_in_queue", [])
        ahead = f" behind job {before[0]}{' and others' * (len(before) > 1)}" if before else ""
        return plain(f"job {job} waits{ahead}{expected}; {why_text(why)}")
    return f"job {job} waits"

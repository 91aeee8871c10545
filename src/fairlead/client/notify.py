"""Notifies somebody that jobs have ended: `python -m fairlead.client.notify TO JOB...`, run as a job after them.

TO is a URL, which gets a POST of JSON; a mail address; or a shell command, which reads the same JSON.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError

DEMAND = {"cpu": "100m", "memory": "256Mi"}
"""Resources of a notification job."""


class NotifyError(RuntimeError):
    """A notification cannot be sent; the message gives the reason."""


def kind_of(to: str) -> str:
    """Return ``url``, ``mail`` or ``command``. Raises NotifyError for an unusable recipient."""
    if not to.strip():
        raise NotifyError(f"{to!r}: is empty: name an https:// or mail address, or a command")
    if "://" in to and " " not in to:
        if urllib.parse.urlsplit(to).scheme not in ("http", "https"):
            raise NotifyError(f"{to}: write an address that begins with https:// or http://")
        return "url"
    if "@" in to and not any(character in to for character in " /;|&"):
        if sendmail() is None:
            raise NotifyError(f"{to}: no sendmail on this machine: name an https:// address, or a command")
        return "mail"
    if re.fullmatch(r"[\w.-]+", to) and shutil.which(to) is None:
        raise NotifyError(f"{to}: neither an address nor a known command: name an https:// or mail address, or a command")
    return "command"


def sendmail() -> str | None:
    """Return the path of sendmail; None if it is not installed."""
    return shutil.which("sendmail", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/lib")


def request(to: str, jobs: list[int]) -> dict[str, Any]:
    """Return the request for a job that notifies somebody when these have ended."""
    kind_of(to)
    named = ("FAIRLEAD_HOME", "PATH")
    env = {name: os.environ[name] for name in named if name in os.environ}
    if os.environ.get("FAIRLEAD_URL", "").startswith("unix:"):
        env["FAIRLEAD_URL"] = os.environ["FAIRLEAD_URL"]
    return {
        "argv": [sys.executable, "-P", "-m", "fairlead.client.notify", to, *map(str, jobs)],
        "demand": DEMAND,
        "cwd": str(Path.cwd()),
        "env": env,
        "name": f"notify {' '.join(map(str, jobs))}"[:256],
        "after": [{"job": job, "how": "end"} for job in jobs],
        "priority": 1_000_000,
        "note": True,
    }


def summary(jobs: list[dict[str, Any]]) -> str:
    """Summarize in a line how jobs have ended."""
    lines = []
    for job in jobs:
        counts = ", ".join(f"{job[what]} {what}" for what in ("succeeded", "failed", "cancelled") if job[what])
        lines.append(f"job {job['id']} {job['name']}".rstrip() + f" has {job['status']}: {counts}")
    return "; ".join(lines)


def notify(to: str, jobs: list[dict[str, Any]]) -> None:
    """Send a notification. Raises NotifyError."""
    text = summary(jobs)
    body = json.dumps({"text": text, "jobs": jobs})
    kind = kind_of(to)
    if kind == "url":
        import urllib3  # slow to import, and `fairlead submit` imports this module

        headers = {"Content-Type": "application/json"}
        try:
            answer = urllib3.PoolManager().request("POST", to, body=body, headers=headers, timeout=30.0, retries=3)
        except urllib3.exceptions.HTTPError as error:
            raise NotifyError(f"{to}: {error}") from None
        if answer.status >= 300:
            raise NotifyError(f"{to}: answers {answer.status}")
        return
    if kind == "mail":
        mail = EmailMessage()
        mail["To"], mail["Subject"] = to, f"fairlead: {text}"[:200]
        mail.set_content(f"{text}\n\n{json.dumps(jobs, indent=2)}\n")
        done = subprocess.run([str(sendmail()), "-t"], input=mail.as_bytes(), check=False)
    else:
        status = next((job["status"] for job in jobs if job["status"] != "succeeded"), "succeeded")
        env = {**os.environ, "FAIRLEAD_TEXT": text, "FAIRLEAD_STATUS": status}
        done = subprocess.run(["/bin/sh", "-c", to], input=body.encode(), env=env, check=False)
    if done.returncode:
        raise NotifyError(f"{to}: exits with {done.returncode}")


def main() -> None:
    to, *numbers = sys.argv[1:]
    try:
        with Connection(retry_seconds=60.0) as connection:
            jobs = [connection.get(f"/v1/jobs/{number}") for number in numbers]
        notify(to, jobs)
    except (NotifyError, ServiceError) as error:
        sys.exit(f"fairlead: {error}")


if __name__ == "__main__":
    main()

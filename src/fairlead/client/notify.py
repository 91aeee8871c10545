"""Tells somebody that jobs have ended: `python -m fairlead.client.notify TO JOB...`, as a job that comes after them does.

TO is an address of the web, which is sent JSON; an address of mail; or a line for the shell, which reads the same JSON.
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

import urllib3

from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError

DEMAND = {"cpu": "100m", "memory": "256Mi"}
"""What telling somebody takes."""


class NotTold(RuntimeError):
    """Somebody could not be told, and why."""


def kind_of(to: str) -> str:
    """``url``, ``mail`` or ``command``. Raises NotTold for what cannot be told here."""
    if not to.strip():
        raise NotTold(f"{to!r}: is empty: name an https:// or mail address, or a command")
    if "://" in to and " " not in to:
        if urllib.parse.urlsplit(to).scheme not in ("http", "https"):
            raise NotTold(f"{to}: write an address that begins with https:// or http://")
        return "url"
    if "@" in to and not any(character in to for character in " /;|&"):
        if sendmail() is None:
            raise NotTold(f"{to}: there is no sendmail here to send mail with: name an https:// address, or a command")
        return "mail"
    if re.fullmatch(r"[\w.-]+", to) and shutil.which(to) is None:
        raise NotTold(
            f"{to}: is no address, and there is no such command: name an https:// or mail address, or a command"
        )
    return "command"


def sendmail() -> str | None:
    """The program that sends mail."""
    return shutil.which("sendmail", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/lib")


def request(to: str, jobs: list[int]) -> dict[str, Any]:
    """A job that tells somebody when these have ended."""
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


def said(jobs: list[dict[str, Any]]) -> str:
    """A line that says how jobs have ended."""
    lines = []
    for job in jobs:
        counts = ", ".join(f"{job[what]} {what}" for what in ("succeeded", "failed", "cancelled") if job[what])
        lines.append(f"job {job['id']} {job['name']}".rstrip() + f" has {job['status']}: {counts}")
    return "; ".join(lines)


def tell(to: str, jobs: list[dict[str, Any]]) -> None:
    """Tell; raises NotTold."""
    text = said(jobs)
    body = json.dumps({"text": text, "jobs": jobs})
    kind = kind_of(to)
    if kind == "url":
        headers = {"Content-Type": "application/json"}
        try:
            answer = urllib3.PoolManager().request("POST", to, body=body, headers=headers, timeout=30.0, retries=3)
        except urllib3.exceptions.HTTPError as error:
            raise NotTold(f"{to}: {error}") from None
        if answer.status >= 300:
            raise NotTold(f"{to}: answers {answer.status}")
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
        raise NotTold(f"{to}: exits with {done.returncode}")


def main() -> None:
    to, *numbers = sys.argv[1:]
    try:
        with Connection(patience=60.0) as connection:
            jobs = [connection.get(f"/v1/jobs/{number}") for number in numbers]
        tell(to, jobs)
    except (NotTold, ServiceError) as error:
        sys.exit(f"fairlead: {error}")


if __name__ == "__main__":
    main()

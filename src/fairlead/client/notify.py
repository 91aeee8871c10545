"""Notifies somebody of jobs: `python -m fairlead.client.notify EVENT JOB...`, run as a job after them, and retried as one.

FAIRLEAD_NOTIFY names the recipient, since a URL may be a secret: a URL, which gets a POST of JSON; a mail address; or a shell
command, which reads the same JSON. FAIRLEAD_SMTP names the server for mail; without it, sendmail sends it.
"""

import contextlib
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
from fairlead.failure import failing
from fairlead.plain_text import plain

DEMAND = {"cpu": "100m", "memory": "256Mi"}
"""Resources of a notification job."""
EVENTS = ("start", "failure", "end")
TRIES, DELAY = 8, 10.0
"""How often a notification is tried again, and the seconds before, which double: 40 minutes in all."""
SECRETS = ("FAIRLEAD_NOTIFY", "FAIRLEAD_SMTP")


class NotifyError(RuntimeError):
    """A notification cannot be sent; the message gives the reason."""


def kind_of(to: str) -> str:
    """Return ``url``, ``mail`` or ``command``. Raises NotifyError for an unusable recipient."""
    if not to.strip():
        raise NotifyError(f"{to!r}: is empty: name an https:// or mail address, or a command")
    if "://" in to and " " not in to:
        with failing(f"{to}: is not an address: ", ValueError, to=NotifyError):
            scheme = urllib.parse.urlsplit(_in_one_line(to)).scheme
        if scheme not in ("http", "https"):
            raise NotifyError(f"{to}: write an address that begins with https:// or http://")
        return "url"
    if "@" in to and not any(character in to for character in " /;|&"):
        _in_one_line(to)
        if "FAIRLEAD_SMTP" in os.environ:
            _smtp_server()
        elif sendmail() is None:
            raise NotifyError(f"{to}: no sendmail on this machine: set FAIRLEAD_SMTP=smtp://HOST, or name an https:// address")
        return "mail"
    if re.fullmatch(r"[\w.-]+", to) and shutil.which(to) is None:
        raise NotifyError(f"{to}: neither an address nor a known command: name an https:// or mail address, or a command")
    return "command"


def _in_one_line(to: str) -> str:
    """Return an address. Raises NotifyError for one with a line break or another control character."""
    if not to.isprintable():
        raise NotifyError(f"{plain(to)}: no address has control characters or several lines")
    return to


def sendmail() -> str | None:
    """Return the path of sendmail; None if it is not installed."""
    return shutil.which("sendmail", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/lib")


def recipient(to: str) -> str:
    """Return a recipient; ``@FILE`` is the first line of the file. Raises NotifyError for an unusable one."""
    if to.startswith("@"):
        try:
            to = Path(to[1:]).read_text("utf-8").strip().partition("\n")[0].rstrip()
        except (OSError, UnicodeDecodeError) as error:
            raise NotifyError(f"{to}: cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None
    kind_of(to)
    return to


def _smtp_server() -> urllib.parse.SplitResult:
    """Return where FAIRLEAD_SMTP says that mail is sent: ``smtp[s]://[USER:PASSWORD@]HOST[:PORT]``. Raises NotifyError."""
    with contextlib.suppress(ValueError):  # its port
        server = urllib.parse.urlsplit(os.environ["FAIRLEAD_SMTP"])
        if server.scheme in ("smtp", "smtps") and server.hostname and server.port != 0:
            return server
    raise NotifyError("FAIRLEAD_SMTP: write smtp://HOST:PORT or smtps://USER:PASSWORD@HOST")


def request(to: str, event: str, jobs: list[int]) -> dict[str, Any]:
    """Return the request for a job that notifies somebody when these have ended, failed or started."""
    named = ("FAIRLEAD_HOME", "PATH")
    env = {name: os.environ[name] for name in named if name in os.environ}
    if os.environ.get("FAIRLEAD_URL", "").startswith("unix:"):
        env["FAIRLEAD_URL"] = os.environ["FAIRLEAD_URL"]
    return {
        "argv": [sys.executable, "-P", "-m", "fairlead.client.notify", event, *map(str, jobs)],
        "demand": DEMAND,
        "cwd": str(Path.cwd()),
        "env": env,
        "exported": {"FAIRLEAD_NOTIFY": to, **{name: os.environ[name] for name in SECRETS[1:] if name in os.environ}},
        "name": f"notify {' '.join(map(str, jobs))}"[:256],
        "after": [{"job": job, "how": "start" if event == "start" else "end"} for job in jobs],
        "priority": 1_000_000,
        "retries": TRIES,
        "retry_delay": DELAY,
        "note": True,
    }


def summary(event: str, jobs: list[dict[str, Any]]) -> str:
    """Say in a line that jobs have started, or how they have ended."""
    lines = []
    for job in jobs:
        counts = ", ".join(f"{job[what]} {what}" for what in ("succeeded", "failed", "cancelled") if job[what])
        ended = f"{'was' if job['status'] == 'cancelled' else 'has'} {job['status']}" + f": {counts}" * (job["tasks"] > 1)
        status = "has started" if event == "start" else ended
        lines.append(f"job {job['id']} {job['name']}".rstrip() + f" {status}")
    return f"{event}: {'; '.join(lines)}"


def notify(to: str, event: str, jobs: list[dict[str, Any]]) -> None:
    text = summary(event, jobs)
    body = json.dumps({"event": event, "text": text, "jobs": jobs})
    kind = kind_of(to)
    if kind == "url":
        import urllib3  # slow to import, and `fairlead submit` imports this module

        headers = {"Content-Type": "application/json"}
        with failing(f"{to}: ", urllib3.exceptions.HTTPError, to=NotifyError):
            answer = urllib3.PoolManager().request("POST", to, body=body, headers=headers, timeout=30.0, retries=3)
        if answer.status >= 300:
            raise NotifyError(f"{to}: answers {answer.status}")
        return
    if kind == "mail":
        mail = EmailMessage()
        mail["To"], mail["Subject"] = to, plain(f"fairlead: {text}")[:200]
        mail.set_content(f"{text}\n\n{json.dumps(jobs, indent=2)}\n")
        if "FAIRLEAD_SMTP" in os.environ:
            _send(mail)
            return
        done = subprocess.run([str(sendmail()), "-t"], input=mail.as_bytes(), check=False)
    else:
        status = next((job["status"] for job in jobs if job["status"] != "succeeded"), "succeeded")
        env = {**os.environ, "FAIRLEAD_TEXT": text, "FAIRLEAD_STATUS": status}
        done = subprocess.run(["/bin/sh", "-c", to], input=body.encode(), env=env, check=False)
    if done.returncode:
        raise NotifyError(f"{to}: exits with {done.returncode}")


def _send(mail: EmailMessage) -> None:
    """Send a mail by FAIRLEAD_SMTP. Raises NotifyError."""
    import smtplib
    import socket
    import ssl

    server = _smtp_server()
    host, secret = str(server.hostname), server.scheme == "smtps"
    user = urllib.parse.unquote(server.username or "")
    mail["From"] = user if "@" in user else f"fairlead@{socket.getfqdn()}"
    try:
        kind: Any = smtplib.SMTP_SSL if secret else smtplib.SMTP
        with kind(host, server.port or (465 if secret else 25), timeout=30.0) as smtp:
            if not secret and smtp.ehlo()[0] == 250 and smtp.has_extn("starttls"):
                smtp.starttls(context=ssl.create_default_context())
            if user:
                smtp.login(user, urllib.parse.unquote(server.password or ""))
            smtp.send_message(mail)
    except (OSError, smtplib.SMTPException) as error:
        raise NotifyError(f"mail by {host}: {error}") from None


def main() -> None:
    event, *numbers = sys.argv[1:]
    to = os.environ["FAIRLEAD_NOTIFY"]
    try:
        with Connection(retry_seconds=60.0) as connection:
            jobs = [connection.get(f"/v1/jobs/{number}") for number in numbers]
        if about := [job for job in jobs if event != "failure" or job["status"] == "failed"]:
            notify(to, event, about)
    except (NotifyError, ServiceError) as error:
        sys.exit(f"fairlead: {error}")


if __name__ == "__main__":
    main()

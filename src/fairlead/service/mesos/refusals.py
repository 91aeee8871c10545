"""Refused requests of Mesos' HTTP APIs. Any other Refused is answered with status 400."""

from collections.abc import Mapping
from http import HTTPStatus

from fairlead.scheduler.admission import Refused


class CallRefused(Refused):
    """A refusal with a status and headers of its own; without a message it names the status."""

    def __init__(self, status: int, message: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message or f"{HTTPStatus(status).phrase}.")
        self.status, self.headers = status, dict(headers or {})


def rate_exceeded(message: str) -> CallRefused:
    return CallRefused(503, message, {"Retry-After": "1"})

"""Answers of the API: JSON, errors, and times of the wall clock."""

from collections.abc import Mapping
from http import HTTPStatus
from math import ceil
from typing import Any

import msgspec
from fastapi import Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from fairlead.service.clock import Clock

MOMENTS = (
    "submitted_at", "started_at", "finished_at", "checkpointed_at", "expected_end", "cautious_end", "earliest", "latest",
    "waits_since", "made", "start", "end", "since", "away_since", "offered_since", "begin", "begins_at",
)  # fmt: skip
"""Keys whose values are seconds of the scheduler's clock."""


class Error(BaseModel):
    """What was wrong and what would be right, and whether the request, once accepted, may still take effect."""

    error: str
    may_happen: bool = False


def errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    schema = {"application/json": {"schema": Error.model_json_schema()}}
    return {code: {"description": HTTPStatus(code).phrase, "content": schema} for code in codes}


class Json(JSONResponse):
    """JSON written by msgspec, ten times faster."""

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


class Bytes(Response):
    media_type = "application/octet-stream"


BYTES_BODY = {"requestBody": {"content": {Bytes.media_type: {"schema": {"type": "string"}}}}}
"""In the API's description: a request whose body is bytes."""


def by_wall_clock(told: Any, clock: Clock) -> Any:
    """Convert the times in a description to wall clock time."""
    moments: dict[str, Any] = {name: clock.wall(told[name]) for name in MOMENTS if told.get(name) is not None}
    if told.get("revoked") is not None:
        moments["revoked"] = {**told["revoked"], "at": clock.wall(told["revoked"]["at"])}
    return {**told, **moments}


def promised(told: Any, known: bool, clock: Clock) -> Any:
    """Like :func:`by_wall_clock`, for a reservation; without its start, end and slips if those are not `known`."""
    unknown = {name: none for name, none in (("start", None), ("end", None), ("slips", 0)) if name in told and not known}
    return by_wall_clock({**told, **unknown}, clock)


def retry_after(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(ceil(seconds))}


def refusal(code: int, message: str, headers: Mapping[str, str] | None = None, **more: object) -> JSONResponse:
    return JSONResponse({"error": message, **more}, code, headers)

"""What a Mesos master says of itself, as its operators' endpoints give it: `/state` and `/roles`, asked for or saved.

Only what an import reads is looked at; masters say much more, and newer ones other things.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit, urlunsplit

import urllib3
from pydantic import AliasChoices, BaseModel, Field, ValidationError, field_validator

from fairlead.model.documents import DocumentError, key_of
from fairlead.model.faults import no_json, parse_json, reason, shortened

LARGEST = 256 * 2**20
"""Bytes of an answer: a master of thousands of agents says tens of MiB."""
WITHIN = 20.0
"""Seconds for an answer to begin."""

Amounts = dict[str, Annotated[float, Field(ge=0, le=1e15)]]


class Quota(BaseModel):
    """What a role is guaranteed, and what it may have at most."""

    guarantee: Amounts = {}
    limit: Amounts = {}

    @field_validator("guarantee", "limit", mode="before")
    @classmethod
    def _scalars(cls, value: Any) -> Any:
        return _scalars(value)


class Role(BaseModel):
    """A role that is known to the master."""

    name: str
    weight: Annotated[float, Field(gt=0, le=1e15)] = 1.0
    quota: Quota = Quota()
    frameworks: list[Any] = []

    @field_validator("quota", mode="before")
    @classmethod
    def _no_quota(cls, value: Any) -> Any:
        return {} if value is None else value


class Agent(BaseModel):
    """A machine, and what of it is reserved for whom."""

    hostname: str = ""
    reserved_resources: dict[str, Amounts] = {}

    @field_validator("reserved_resources", mode="before")
    @classmethod
    def _of_roles(cls, value: Any) -> Any:
        return {role: _scalars(amounts) for role, amounts in value.items()} if isinstance(value, Mapping) else value


class Framework(BaseModel):
    """A program that takes offers, and the roles that it takes them for."""

    name: str = ""
    active: bool = True
    role: str | None = None
    roles: list[str] = []

    def all_roles(self) -> list[str]:
        """Of one that is of several roles as of one that is of one."""
        return self.roles or [self.role or "*"]


class State(BaseModel):
    """All of it."""

    version: str = ""
    flags: dict[str, Any] = {}
    agents: list[Agent] = Field([], validation_alias=AliasChoices("slaves", "agents"))
    frameworks: list[Framework] = []
    roles: list[Role] | None = None


def read_state(place: str, roles: Path | None) -> State:
    """What a master says.

    Parameters
    ----------
    place : str
        The URL of its `/state`, beside which `/roles` is asked for, or a file with what that said.
    roles : Path, optional
        A file with what `/roles` said.

    Raises
    ------
    DocumentError
        It cannot be read, or is none of Mesos'.
    """
    said = _asked(place) if is_url(place) else _read(Path(place))
    shown = without_secrets(place)
    if "slaves" not in said and "frameworks" not in said and "roles" not in said:
        raise DocumentError(f"{shown}: not what Mesos' /state says: it names no slaves and no frameworks")
    more, source = (_read(roles), str(roles)) if roles else ({}, shown)
    if is_url(place) and roles is None:
        source = _beside(shown, "roles")
        more = _asked(_beside(place, "roles"))
    found = _checked(said if isinstance(said.get("roles"), list) else {**said, "roles": None}, shown)
    if more:
        if not isinstance(more.get("roles"), list):
            raise DocumentError(f"{source}: not what Mesos' /roles says: it has no list of roles")
        found.roles = _checked({"roles": more["roles"]}, source).roles
    return found


def is_url(place: str) -> bool:
    """Whether a place is asked, rather than a file."""
    return place.startswith(("http://", "https://"))


def _checked(said: dict[str, Any], place: str) -> State:
    try:
        return State.model_validate(said)
    except ValidationError as error:
        first = error.errors()[0]
        key, why = shortened(key_of(first["loc"])), reason(first["type"], first["msg"])
        got = f", not {shortened(repr(first['input']))}" if first["type"] != "missing" else ""
        raise DocumentError(f"{place}: {key}: {why}{got}") from None


def _beside(url: str, name: str) -> str:
    """Another endpoint of the same master."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/").rpartition("/")[0] + "/" + name, query=""))


def without_secrets(place: str) -> str:
    """A URL without the name and password that may be in it; a file as it is."""
    return _parts(place)[0]


def _parts(place: str) -> tuple[str, str]:
    """A URL without the name and password that may be in it, and these."""
    match = re.fullmatch(r"(https?://)(?:([^/?#]*)@)?(.*)", place, re.DOTALL)
    return (match[1] + match[3], match[2] or "") if match else (place, "")


def _asked(place: str) -> dict[str, Any]:
    url, who = _parts(place)
    headers = urllib3.make_headers(basic_auth=unquote(who)) if who else None
    try:
        answer = urllib3.request(
            "GET", url, headers=headers, timeout=WITHIN, retries=urllib3.Retry(2, redirect=5), preload_content=False
        )
        body = answer.read(LARGEST + 1)
        answer.release_conn()
    except urllib3.exceptions.HTTPError as error:
        why = getattr(error, "reason", None) or error
        raise DocumentError(f"{url}: nobody answers: {why}") from None
    if answer.status != 200:
        raise DocumentError(
            f"{url}: answers {answer.status} {answer.reason or ''}: save it, and name the file".rstrip()
        )
    return _decoded(body, url)


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return _decoded(file.read(LARGEST + 1), str(path))
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read: {error.strerror}") from None


def _decoded(body: bytes, place: str) -> dict[str, Any]:
    if len(body) > LARGEST:
        raise DocumentError(f"{place}: larger than {LARGEST >> 20} MiB: not what a master says")
    try:
        said = parse_json(body)
    except json.JSONDecodeError as error:
        raise DocumentError(f"{place}:{error.lineno}: {no_json(error)}") from None
    except RecursionError:
        raise DocumentError(f"{place}: nested too deeply") from None
    except UnicodeDecodeError as error:
        raise DocumentError(f"{place}: not UTF-8 text (byte {error.start})") from None
    except ValueError as error:  # a key twice, a number too long
        raise DocumentError(f"{place}: {shortened(str(error))}") from None
    if not isinstance(said, dict):
        raise DocumentError(f"{place}: not what a master says: no JSON object")
    return said


def _scalars(value: Any) -> Any:
    """Resources that are numbers; ranges and sets, such as ports, are for none to have more of than another."""
    if isinstance(value, Mapping):
        return {name: amount for name, amount in value.items() if not isinstance(amount, str | list | Mapping)}
    return {} if value is None else value

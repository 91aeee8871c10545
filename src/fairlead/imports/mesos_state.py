"""A Mesos master's state from its operator endpoints `/state` and `/roles`, fetched or saved.

Only the fields that an import needs are read; masters report many more, depending on their version.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit, urlunsplit

import urllib3
from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, ValidationError

from fairlead.failure import failing
from fairlead.model.documents import DocumentError, key_of
from fairlead.model.faults import no_json, parse_json, reason, shortened

LARGEST = 256 * 2**20
"""Largest answer, in bytes. A master of thousands of agents answers with tens of MiB."""
TIMEOUT = 20.0
"""Timeout of a connection and of a read, in seconds."""


def _scalars(value: Any) -> Any:
    """Keep the scalar resources; ranges and sets, such as ports, are not shared by quota."""
    if isinstance(value, Mapping):
        return {name: amount for name, amount in value.items() if not isinstance(amount, str | list | Mapping)}
    return {} if value is None else value


Amounts = Annotated[dict[str, Annotated[float, Field(ge=0, le=1e15)]], BeforeValidator(_scalars)]


class Quota(BaseModel):
    """A role's guarantee and limit."""

    guarantee: Amounts = {}
    limit: Amounts = {}


class Role(BaseModel):
    """A role known to the master."""

    name: str
    weight: Annotated[float, Field(gt=0, le=1e15)] = 1.0
    quota: Annotated[Quota, BeforeValidator(lambda value: {} if value is None else value)] = Quota()
    frameworks: list[Any] = []


class Agent(BaseModel):
    """A machine: its reservations by role."""

    reserved_resources: dict[str, Amounts] = {}


class Framework(BaseModel):
    """A program that takes offers, and its roles."""

    role: str | None = None
    roles: list[str] = []

    def all_roles(self) -> list[str]:
        """Return its roles, whether it declares one or several."""
        return self.roles or [self.role or "*"]


class State(BaseModel):
    """The state of a master."""

    version: str = ""
    flags: dict[str, Any] = {}
    agents: list[Agent] = Field([], validation_alias=AliasChoices("slaves", "agents"))
    frameworks: list[Framework] = []
    roles: list[Role] | None = None


def read_state(place: str, roles: Path | None) -> State:
    """Read a master's state. Raises DocumentError if it cannot be read, or is not Mesos'.

    place : the URL of its `/state` (`/roles` is fetched as well), or a file with a saved `/state`
    roles : a file with a saved `/roles`
    """
    state = _fetch(place) if is_url(place) else _read(Path(place))
    shown = without_secrets(place)
    if "slaves" not in state and "frameworks" not in state and "roles" not in state:
        raise DocumentError(f"{shown}: not Mesos' /state: it has no slaves and no frameworks")
    more, source = (_read(roles), str(roles)) if roles else ({}, shown)
    if is_url(place) and roles is None:
        source = _beside(shown, "roles")
        more = _fetch(_beside(place, "roles"))
    found = _checked(state if isinstance(state.get("roles"), list) else {**state, "roles": None}, shown)
    if more:
        if not isinstance(more.get("roles"), list):
            raise DocumentError(f"{source}: not Mesos' /roles: it has no list of roles")
        found.roles = _checked({"roles": more["roles"]}, source).roles
    return found


def is_url(place: str) -> bool:
    """Return True for a URL, False for a file."""
    return place.startswith(("http://", "https://"))


def _checked(raw: dict[str, Any], place: str) -> State:
    try:
        return State.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        key, why = shortened(key_of(first["loc"])), reason(first["type"], first["msg"])
        got = f", not {shortened(repr(first['input']))}" if first["type"] != "missing" else ""
        raise DocumentError(f"{place}: {key}: {why}{got}") from None


def _beside(url: str, name: str) -> str:
    """Return the URL of another endpoint of the same master."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/").rpartition("/")[0] + "/" + name, query=""))


def without_secrets(place: str) -> str:
    """Return a URL without its name and password; a file unchanged."""
    return _parts(place)[0]


def _parts(place: str) -> tuple[str, str]:
    """Split a URL into the URL without name and password, and these."""
    match = re.fullmatch(r"(https?://)(?:([^/?#]*)@)?(.*)", place, re.DOTALL)
    return (match[1] + match[3], match[2] or "") if match else (place, "")


def _fetch(place: str) -> dict[str, Any]:
    url, who = _parts(place)
    headers = urllib3.make_headers(basic_auth=unquote(who)) if who else None
    try:
        retries = urllib3.Retry(2, redirect=5)
        answer = urllib3.request("GET", url, headers=headers, timeout=TIMEOUT, retries=retries, preload_content=False)
        body = answer.read(LARGEST + 1)
        answer.release_conn()
    except urllib3.exceptions.HTTPError as error:
        why = getattr(error, "reason", None) or error
        raise DocumentError(f"{url}: no answer: {why}") from None
    if answer.status != 200:
        raise DocumentError(f"{url}: answers {answer.status} {answer.reason or ''}: save the answer, and name the file".rstrip())
    return _decoded(body, url)


def _read(path: Path) -> dict[str, Any]:
    with failing(f"{path}: cannot be read: ", OSError, to=DocumentError), path.open("rb") as file:
        return _decoded(file.read(LARGEST + 1), str(path))


def _decoded(body: bytes, place: str) -> dict[str, Any]:
    if len(body) > LARGEST:
        raise DocumentError(f"{place}: larger than {LARGEST >> 20} MiB: not a master's state")
    try:
        value = parse_json(body)
    except json.JSONDecodeError as error:
        raise DocumentError(f"{place}:{error.lineno}: {no_json(error)}") from None
    except RecursionError:
        raise DocumentError(f"{place}: nested too deeply") from None
    except UnicodeDecodeError as error:
        raise DocumentError(f"{place}: not UTF-8 text (byte {error.start})") from None
    except ValueError as error:  # a repeated key, or a number that is too long
        raise DocumentError(f"{place}: {shortened(str(error))}") from None
    if not isinstance(value, dict):
        raise DocumentError(f"{place}: not a master's state: no JSON object")
    return value

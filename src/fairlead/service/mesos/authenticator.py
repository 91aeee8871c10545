"""Authentication of Mesos callers, and refused calls.

A framework or an operator is known by principal and secret, or without principals by the process of this machine that calls.
Either way the caller is an account: its frameworks are offered what it may submit to, and its tasks run as it.

An executor is known by its secret, sent with a call or found in the calling process's environment: not every client library sends
it. The kernel identifies the process at the other end of a connection, and only its account and root could have started it with
that environment.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from fairlead.model.documents import DocumentError
from fairlead.people.authenticator import Authenticator, Peer, Stranger
from fairlead.people.bounds import Rates, default_bounds
from fairlead.people.principals import Principal, Principals
from fairlead.people.rules import Caller
from fairlead.scheduler.admission import Refused
from fairlead.service.api.answers import retry_after
from fairlead.service.connections.acceptor import uid_of_client
from fairlead.service.connections.slots import network_of
from fairlead.service.mesos.tasks import TOKEN
from fairlead.sockets import inode_of_caller, uid_of_caller

log = logging.getLogger("fairlead")
REALM = "mesos-master-scheduler"
WRONG_PER_SECOND = 5.0
"""Wrong secrets that one network may try."""
PROC = Path("/proc")
_BEARER = "bearer "


class CallRefused(Refused):
    """A refusal with a status and headers of its own; without a message it names the status."""

    def __init__(self, status: int, message: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message or f"{HTTPStatus(status).phrase}.")
        self.status, self.headers = status, dict(headers or {})


class FrameworkCaller(NamedTuple):
    """A caller: its account, and its principal, if any."""

    caller: Caller
    principal: Principal | None = None

    @property
    def name(self) -> str:
        """The principal's name, or an empty string."""
        return self.principal.name if self.principal else ""

    @property
    def by(self) -> str:
        """Who acts, for the audit log: the principal, or else the account."""
        return self.name or self.caller.person.name

    @property
    def identity(self) -> tuple[str, int]:
        """What identifies the caller: the principal's name and the account's uid."""
        return self.name, self.caller.person.uid


class FrameworkAuthenticator:
    """Authenticates callers by a request's connection and its ``Authorization`` header.

    authenticator : for accounts and rules
    principals : without them only processes of this machine are accepted
    """

    def __init__(self, authenticator: Authenticator, principals: Principals | None) -> None:
        self._authenticator, self._principals = authenticator, principals
        self._tries, self._calls = Rates(), Rates()

    async def authenticate(self, scope: Mapping[str, Any], authorization: str) -> FrameworkCaller:
        """Authenticate the caller of a request. Raises CallRefused."""
        if self._principals is None:
            return FrameworkCaller(await self._local(scope))
        try:
            principal = self._principals.find(authorization)
        except (Refused, DocumentError) as error:  # not for strangers
            log.error("--mesos-principals: %s", error)
            raise CallRefused(503, "the file of principals cannot be used: see the scheduler's log") from None
        if principal is None:
            network = network_of(scope["client"][0])
            if authorization and (wait := self._tries.wait(network, WRONG_PER_SECOND)):
                why = f"too many wrong secrets come from {network}: try again in {wait:.0f} s"
                raise CallRefused(503, why, retry_after(1.0))
            raise _not_authenticated("a principal and its secret are needed: send 'Authorization: Basic ...'")
        account = principal.account or self._authenticator.owner.name
        person = await self._authenticator.person(account)
        if person is None:
            raise _not_authenticated(f"principal {principal.name!r}: no account {account!r} to run its tasks")
        queues = None if principal.roles is None else tuple(principal.roles)
        return FrameworkCaller(Caller(person, queues), principal)

    async def _local(self, scope: Mapping[str, Any]) -> Caller:
        uid = await uid_of_client(scope)
        if uid is None:
            raise _not_authenticated("the owner of the calling process is unknown: start the scheduler with --mesos-principals")
        try:
            return await self._authenticator.caller(Peer(uid, ""), "")
        except Stranger as stranger:
            raise _not_authenticated(str(stranger)) from None

    def wait(self, who: FrameworkCaller, framework: str) -> float:
        """Count a call of a framework; return 0 if it is allowed now, otherwise the seconds to wait."""
        a_second = who.principal.requests if who.principal else None
        if a_second is None:
            a_second = default_bounds(self._authenticator.rules, who.caller).requests
        return self._calls.wait((who.name, framework), a_second)


def _not_authenticated(message: str) -> CallRefused:
    return CallRefused(401, message, {"WWW-Authenticate": f'Basic realm="{REALM}"'})


async def executor_token(scope: Mapping[str, Any], authorization: str) -> str:
    """Return the secret of an executor that calls: from its ``Authorization`` header, or its environment; empty if unknown."""
    if authorization[: len(_BEARER)].lower() == _BEARER and (token := authorization[len(_BEARER) :].strip()):
        return token
    noted = scope["noted"]
    if "token" not in noted:  # constant for a connection
        noted["token"] = await asyncio.to_thread(_token_of_peer, scope)
    return noted["token"]


def _token_of_peer(scope: Mapping[str, Any]) -> str:
    """Return the secret in the environment of the calling process, one of this machine; empty if it cannot be read."""
    here, there = scope["server"], scope["client"]
    uid, inode = uid_of_caller(here, there), inode_of_caller(here, there)
    if uid is None or inode is None:
        return ""
    return next((token for process in _having(f"socket:[{inode}]", uid) if (token := _token_in(process))), "")


def _having(name: str, uid: int) -> Iterator[Path]:
    """Yield the readable processes of an account that have a file open."""
    for process in PROC.iterdir():
        with suppress(OSError):  # it has ended, or is not readable
            if process.name.isdigit() and process.stat().st_uid == uid:
                folder = process / "fd"
                if any(_is(each, name) for each in folder.iterdir()):
                    yield process


def _is(link: Path, name: str) -> bool:
    try:
        return str(link.readlink()) == name
    except OSError:  # it was closed meanwhile
        return False


def _token_in(process: Path) -> str:
    mark = f"{TOKEN}=".encode()
    try:
        variables = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((each[len(mark) :].decode("latin-1") for each in variables if each.startswith(mark)), "")

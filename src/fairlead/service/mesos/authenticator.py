"""Authentication of Mesos callers: by principal and secret, or without principals by the process of this machine that calls.

Either way the caller is an account: its frameworks are offered what it may submit to, and its tasks run as it.
"""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from fairlead.model.documents import DocumentError
from fairlead.people.authenticator import Authenticator, Peer, Stranger
from fairlead.people.bounds import default_bounds
from fairlead.people.principals import Principal, Principals
from fairlead.people.rates import Rates
from fairlead.people.rules import Caller
from fairlead.scheduler.admission import Refused
from fairlead.service.connections.acceptor import uid_of_client
from fairlead.service.connections.slots import network_of
from fairlead.service.mesos.refusals import CallRefused, rate_exceeded

log = logging.getLogger("fairlead")
REALM = "mesos-master-scheduler"
WRONG_PER_SECOND = 5.0
"""Wrong secrets that one network may try."""


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
                raise rate_exceeded(f"too many wrong secrets come from {network}: try again in {wait:.0f} s")
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
        return self._calls.wait((who.name, framework), a_second) if a_second is not None else 0.0


def _not_authenticated(message: str) -> CallRefused:
    return CallRefused(401, message, {"WWW-Authenticate": f'Basic realm="{REALM}"'})

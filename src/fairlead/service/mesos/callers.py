"""Who calls over Mesos' wire: a principal with its secret, or, where there are none, whose process of this machine it is.

Either way it is an account, and its rules hold: what it may submit to it may be offered, and its tasks run as it.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from fairlead.people.accounts import Person
from fairlead.people.bounds import default_bounds
from fairlead.people.door import Door
from fairlead.people.principals import Principal, Principals
from fairlead.people.rates import Rates
from fairlead.people.rules import Caller
from fairlead.service.places import network_of
from fairlead.sockets import uid_of_caller

REALM = "mesos-master-scheduler"
WRONG = 5.0
"""Secrets a second that may be tried from one network."""


class NotKnown(Exception):
    """Somebody who is not let in; the message says what would be right."""


class TooMany(Exception):
    """Somebody asks for more than they may in a second."""


class Framed(NamedTuple):
    """Who calls: as whom, and as which principal, if it is one."""

    caller: Caller
    principal: Principal | None = None

    @property
    def name(self) -> str:
        """The principal's name, or none."""
        return self.principal.name if self.principal else ""

    @property
    def identity(self) -> tuple[str, int]:
        """Who they are, for who asks whether somebody is the same: the principal's name and the account's uid."""
        return self.name, self.caller.person.uid


class Callers:
    """Tells who calls, by a request's connection and its ``Authorization`` header.

    Parameters
    ----------
    door : Door
        Knows the accounts, and the rules.
    principals : Principals, optional
        Without them, only processes of this machine are let in.
    """

    def __init__(self, door: Door, principals: Principals | None) -> None:
        self._door, self._principals = door, principals
        self._tries, self._calls = Rates(), Rates()

    async def who(self, scope: Mapping[str, Any], authorization: str) -> Framed:
        """Who makes a request. Raises NotKnown, TooMany."""
        if self._principals is None:
            return Framed(Caller(await self._local(scope)))
        principal = self._principals.find(authorization)
        if principal is None:
            network = network_of(scope["client"][0])
            if authorization and (wait := self._tries.wait(network, WRONG)):
                raise TooMany(f"too many wrong secrets come from {network}: try again in {wait:.0f} s")
            raise NotKnown("a principal and its secret are needed: send 'Authorization: Basic ...'")
        account = principal.account or self._door.owner.name
        person = await self._door.person(account)
        if person is None:
            raise NotKnown(f"principal {principal.name!r}: there is no account {account!r} that tasks could run as")
        return Framed(Caller(person, principal.roles), principal)

    async def _local(self, scope: Mapping[str, Any]) -> Person:
        noted, door = scope["noted"], self._door
        if "uid" not in noted:  # it stays the same for as long as the connection lasts
            noted["uid"] = await asyncio.to_thread(uid_of_caller, scope["server"], scope["client"])
        uid: int | None = noted["uid"]
        if uid is None:
            raise NotKnown(
                "whose process this is cannot be seen from here: start the scheduler with --mesos-principals"
            )
        if door.personal:
            if uid in (0, door.owner.uid):
                return door.owner
            raise NotKnown(f"this scheduler is {door.owner.name}'s alone, and you are uid {uid}")
        person = door.accounts.remembered(uid) or await asyncio.to_thread(door.accounts.by_uid, uid)
        if person is None:
            raise NotKnown(f"uid {uid} has no account here: ask for one")
        return person

    def wait(self, who: Framed, framework: str) -> float:
        """Seconds after which a call of a framework may be answered; 0 where that is now, and it is taken note of."""
        a_second = who.principal.requests if who.principal else None
        if a_second is None:
            bounds = default_bounds(self._door.rules, who.caller)
            a_second = bounds.requests
        return self._calls.wait((who.name, framework), a_second) if a_second is not None else 0.0

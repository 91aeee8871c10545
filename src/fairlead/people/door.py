"""Who is let in: by the kernel's word on a Unix socket, by a token from elsewhere.

A scheduler that is one person's lets nobody else in but root, who could be that person anyway. Whoever is let in is known by
an account of this machine, so nobody can be anybody else, whatever a request says.
"""

import asyncio
import os
from typing import NamedTuple

from fairlead.people.accounts import Accounts, Person, myself
from fairlead.people.rules import Caller, Rules
from fairlead.people.tokens import Token, Tokens

MOST_LOOKED_UP = 4
"""Uids of connections that are looked up at once."""


class Stranger(Exception):
    """Somebody who is not let in; the message says what would be right.

    Attributes
    ----------
    by : str
        What is known of them.
    known : bool
        Whether it is known who they are; if not, they may say so by a token.
    """

    def __init__(self, message: str, by: str, known: bool) -> None:
        super().__init__(message)
        self.by, self.known = by, known


class Peer(NamedTuple):
    """Who is at the other end of a connection: the uid of the process on a Unix socket, or the address of a machine."""

    uid: int | None
    address: str


class Door:
    """Tells who a caller is, and keeps the rules that are in force.

    Parameters
    ----------
    tokens : Tokens
    personal : bool
        Whether it is one person's: whose process this is.

    Attributes
    ----------
    rules : Rules
        Replaced whole whenever a configuration comes into force.
    """

    def __init__(self, tokens: Tokens, personal: bool) -> None:
        self.accounts, self.tokens = Accounts(), tokens
        self.owner = myself()
        self.personal = personal
        self.rules = Rules({}, personal=personal)
        self._looking_up: set[int] = set()

    def knows(self, uid: int) -> bool:
        """Whether a uid is known to be somebody's; where it is not, that is found out beside."""
        if uid == 0 or self.personal or self.accounts.has_seen(uid):
            return True
        if len(self._looking_up) < MOST_LOOKED_UP and uid not in self._looking_up:
            self._looking_up.add(uid)
            found = asyncio.get_running_loop().run_in_executor(None, self.accounts.by_uid, uid)
            found.add_done_callback(lambda _: self._looking_up.discard(uid))
        return False

    async def caller(self, peer: Peer, authorization: str) -> Caller:
        """Who makes a request, by its connection and its ``Authorization`` header. Raises Stranger."""
        if peer.uid is not None:
            return Caller(await self._by_uid(peer.uid))
        scheme, _, given = authorization.partition(" ")
        token = self.tokens.find(given.strip()) if scheme.lower() == "bearer" else None
        if token is None:
            raise Stranger(
                "a token is needed, one that was not revoked and has not expired: "
                "send 'Authorization: Bearer TOKEN' with one that `fairlead token new` made",
                peer.address,
                known=False,
            )
        queues = tuple(token.queues) if token.queues is not None else None
        return Caller(await self._by_token(token), queues, token.read_only, token.id)

    async def again(self, caller: Caller) -> Caller | None:
        """Somebody who was let in, as they are now; None where they would not be any more: their token, if it was one, is revoked
        or has expired, or their account is gone.
        """
        if caller.token is not None and not self.tokens.is_good(caller.token):
            return None
        if self.personal:
            return caller
        uid = caller.person.uid
        person = self.accounts.remembered(uid) or await asyncio.to_thread(self.accounts.by_uid, uid)
        if person is None or person.name != caller.person.name:
            return None
        return caller._replace(person=person)

    async def person(self, name: str) -> Person | None:
        """Somebody by their name, if they could be a caller."""
        if self.personal:
            return self.owner if name == self.owner.name else None
        return await asyncio.to_thread(self.accounts.by_name, name)

    async def _by_uid(self, uid: int) -> Person:
        if self.personal:
            if uid in (0, self.owner.uid):
                return self.owner
            raise Stranger(
                f"this scheduler is {self.owner.name}'s alone, and you are uid {uid}", f"uid {uid}", known=True
            )
        person = self.accounts.remembered(uid) or await asyncio.to_thread(self.accounts.by_uid, uid)
        if person is None:
            raise Stranger(f"uid {uid} has no account on {os.uname().nodename}: ask for one", f"uid {uid}", known=True)
        return person

    async def _by_token(self, token: Token) -> Person:
        """The person of a token, who must still have the account that it was made for."""
        person = await self.person(token.user)
        if person is None or person.uid != token.uid:
            raise Stranger(
                f"the token is for {token.user!r}, an account that there is no more: ask for another",
                f"token {token.id}",
                known=True,
            )
        return person

"""Authentication of callers: by the kernel's peer credentials on a Unix socket, by token on TCP.

A personal scheduler accepts only its owner, and root, who could act as the owner anyway. Every accepted caller is an account of
this machine, so nobody can act as somebody else, whatever a request claims.
"""

import asyncio
import os
from typing import NamedTuple

from fairlead.people.accounts import Accounts, Person, myself
from fairlead.people.rules import Caller, Rules
from fairlead.people.tokens import Tokens

MOST_LOOKUPS = 4
"""Uids looked up at the same time."""


class Stranger(Exception):
    """A caller that is not accepted; the message states what is needed.

    by : what is known of the caller
    known : True if their identity is certain; otherwise they may send a token
    """

    def __init__(self, message: str, by: str, known: bool) -> None:
        super().__init__(message)
        self.by, self.known = by, known


class Peer(NamedTuple):
    """The other end of a connection: a process's uid on a Unix socket, a machine's address on TCP.

    `account` is the uid of a process of this machine on TCP, if the kernel reports it. Its load counts as that account's; it
    authenticates nobody.
    """

    uid: int | None
    address: str
    account: int | None = None


class Authenticator:
    """Authenticates callers, and holds the rules in force.

    personal : True if the scheduler belongs to one person, the owner of this process

    rules : replaced as a whole when a configuration is applied
    """

    def __init__(self, tokens: Tokens, personal: bool) -> None:
        self.accounts, self.tokens = Accounts(), tokens
        self.owner = myself()
        self.personal = personal
        self.rules = Rules({}, personal=personal)
        self._looking_up: set[int] = set()

    def knows(self, uid: int) -> bool:
        """True if a uid is known to have an account; if unknown, start a look-up in the background."""
        if uid == 0 or self.personal or self.accounts.has_seen(uid):
            return True
        if len(self._looking_up) < MOST_LOOKUPS and uid not in self._looking_up:
            self._looking_up.add(uid)
            found = asyncio.get_running_loop().run_in_executor(None, self.accounts.by_uid, uid)
            found.add_done_callback(lambda _: self._looking_up.discard(uid))
        return False

    async def caller(self, peer: Peer, authorization: str) -> Caller:
        """Authenticate a request by its connection and its ``Authorization`` header. Raises Stranger."""
        if peer.uid is not None:
            return Caller(await self._by_uid(peer.uid))
        scheme, _, given = authorization.partition(" ")
        return await self.by_token(given.strip() if scheme.lower() == "bearer" else "", peer.address)

    async def by_token(self, written: str, address: str) -> Caller:
        """Authenticate a caller at an address by their token. Raises Stranger."""
        token = self.tokens.find(written)
        if token is None:
            raise Stranger(
                "a valid token is needed: send 'Authorization: Bearer TOKEN' with one that `fairlead token new` made "
                "and that is neither revoked nor expired",
                address,
                known=False,
            )
        person = await self.person(token.user)
        if person is None or person.uid != token.uid:  # the account that it was made for
            why = f"the token is for account {token.user!r}, which no longer exists: ask for another"
            raise Stranger(why, f"token {token.id}", known=True)
        queues = tuple(token.queues) if token.queues is not None else None
        return Caller(person, queues, token.read_only, token.id)

    async def reauthenticate(self, caller: Caller) -> Caller | None:
        """Authenticate an accepted caller again; None if their token is revoked or expired, or their account is gone."""
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
        """Return the person of this name, if they could be a caller."""
        if self.personal:
            return self.owner if name == self.owner.name else None
        return await asyncio.to_thread(self.accounts.by_name, name)

    async def _by_uid(self, uid: int) -> Person:
        if self.personal:
            if uid in (0, self.owner.uid):
                return self.owner
            raise Stranger(f"this scheduler belongs to {self.owner.name} alone, and you are uid {uid}", f"uid {uid}", known=True)
        person = self.accounts.remembered(uid) or await asyncio.to_thread(self.accounts.by_uid, uid)
        if person is None:
            raise Stranger(f"uid {uid} has no account on {os.uname().nodename}: ask for one", f"uid {uid}", known=True)
        return person

"""Who may ask for something now: places of connections, and room for requests of each kind.

Nobody's load is another's wait: requests that look, that change something and that wait for something to happen have room of
their own, of which one person of several has half at most, and those for health are always answered. A connection that is one
too many has no place: it may still send a request, and takes the place of one that has been silent for long, of the same party
or, where all places are taken, of whoever has most; where none is silent it is told when to come back. So nobody can keep others
out by saying nothing.

A party is what cannot be multiplied at will: a person with an account on this machine; all uids without one, of which anybody may
have thousands, together; an address elsewhere, of which a network of IPv6 and all that this machine has count as one. Some places
are for people with an account alone.

All of it is used in the event loop.
"""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Protocol

from fairlead.people.door import Peer

MOST_CONNECTIONS = 4000
"""Connections that have a place, where there are descriptors enough."""
MOST_OF_ONE = 500
"""Of those, of one party."""
FOR_PEOPLE = 4
"""One in so many places is for people with an account on this machine alone."""
SILENT = 1.0
"""Seconds after which one that says nothing may lose its place."""
MOST_UNREAD = 64 * 2**20
"""Bytes of answers that one person may leave unread."""
A_SECOND = 500
"""Requests that are told to come back within one second; if there are more, within more seconds."""


class Kind(Enum):
    """What a request is for."""

    HEALTH = "health"
    LOOK = "look"
    CHANGE = "change something"
    WAIT = "wait for something to happen"


ROOM = {Kind.LOOK: 100, Kind.CHANGE: 250, Kind.WAIT: 2000}
"""Requests of a kind at once: as many as are answered in a moment. More would only wait longer, and everybody else with them."""


def kind_of(method: bytes, url: bytes) -> Kind:
    """The kind of a request, by its first line alone."""
    path, _, query = url.partition(b"?")
    if path in (b"/healthz", b"/readyz"):
        return Kind.HEALTH
    if path == b"/v1/facts" or b"wait=" in query:
        return Kind.WAIT
    return Kind.LOOK if method in (b"GET", b"HEAD") else Kind.CHANGE


Party = int | str
"""Whose places are counted together: a uid, or the name of a network; of uids without an account, `UNKNOWN`."""
UNKNOWN = "unknown uids"


@lru_cache(maxsize=10_000)
def network_of(address: str) -> str:
    """The addresses that are counted as one with an address: of IPv6, the network of 64 bits; of this machine, all."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:  # not of the internet
        return address
    found = (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found
    if found.is_loopback:
        return "this machine"
    return found.exploded[:19] if isinstance(found, IPv6Address) else str(found)


class Seat(Protocol):
    """A connection."""

    peer: Peer

    def unread(self) -> int:
        """Bytes of answers that are not taken yet."""

    def hang_up(self) -> None:
        """End it."""


class Places:
    """All connections to a scheduler.

    Parameters
    ----------
    most : int
        So many have a place.
    personal : bool
        Whether all are one person's, who may have all of the room then.
    knows : callable
        Whether a uid is known to be that of an account.
    room : mapping, optional
        For requests of each kind at once, where that is not `ROOM`.
    most_of_one : int, optional
        Connections of one party, where that is not `MOST_OF_ONE`.
    full : int
        The status of who is told to come back.
    patience : float, optional
        Seconds that a connection may wait to be let in, where that is another time than is usual.
    """

    def __init__(
        self,
        most: int = MOST_CONNECTIONS,
        personal: bool = False,
        knows: Callable[[int], bool] = lambda uid: True,
        room: Mapping[Kind, int] | None = None,
        most_of_one: int | None = None,
        full: int = 429,
        patience: float | None = None,
    ) -> None:
        self.full, self.patience = full, patience
        self._most, self.personal, self._knows = most, personal, knows
        self._room, self._most_of_one = room or ROOM, most_of_one
        self._party: dict[Seat, Party] = {}  # of those that have a place
        self._seated: defaultdict[Party, set[Seat]] = defaultdict(set)
        self._silent: defaultdict[Party, dict[Seat, float]] = defaultdict(dict)  # since when, the longest first
        self._slow: defaultdict[Peer, set[Seat]] = defaultdict(set)
        self._asking: dict[Kind, Counter[Peer]] = {kind: Counter() for kind in ROOM}
        self._others = 0  # places that others than people with an account have
        self._refused, self._refused_since = 0, 0.0

    def come(self, seat: Seat) -> bool:
        """A connection is there, and says nothing yet; whether it has a place."""
        party = self.party_of(seat.peer)
        if self._is_full(party) or self._has_most(party):
            return False
        self._party[seat] = party
        self._seated[party].add(seat)
        self._others += not isinstance(party, int)
        self.is_silent(seat)
        return True

    def go(self, seat: Seat) -> None:
        """A connection is gone."""
        self._slow[seat.peer].discard(seat)
        if not self._slow[seat.peer]:
            del self._slow[seat.peer]
        party = self._party.pop(seat, None)
        if party is None:
            return
        self._others -= not isinstance(party, int)
        self._seated[party].discard(seat)
        self._silent[party].pop(seat, None)
        if not self._seated[party]:
            del self._seated[party]
            self._silent.pop(party, None)

    def has_place(self, seat: Seat) -> bool:
        """Whether a connection may stay."""
        return seat in self._party

    def is_silent(self, seat: Seat) -> None:
        """A connection has its answer, and asks for nothing more yet."""
        if self.has_place(seat):
            self._silent[self._party[seat]][seat] = time.monotonic()

    def does_not_read(self, seat: Seat) -> None:
        """Answers wait for a connection."""
        self._slow[seat.peer].add(seat)

    def reads(self, seat: Seat) -> None:
        """None does any more."""
        self._slow[seat.peer].discard(seat)

    def ask(self, seat: Seat, kind: Kind) -> str:
        """A connection asks for something; why it cannot have it now, or nothing where it can: `answered` is to be told then."""
        if kind is Kind.HEALTH:
            return ""
        peer, asking = seat.peer, self._asking[kind]
        if sum(slow.unread() for slow in self._slow[peer]) > MOST_UNREAD:
            return f"{MOST_UNREAD >> 20} MiB of answers wait to be read by you: read them"
        if asking.total() >= self._room[kind] or (asking[peer] >= self._room[kind] // 2 and not self.personal):
            return f"too many requests to {kind.value} wait for an answer"
        if not self._stays(seat):
            return "too many connections are open"
        self._silent[self._party[seat]].pop(seat, None)
        asking[peer] += 1
        return ""

    def answered(self, peer: Peer, kind: Kind) -> None:
        """A request is done with."""
        if kind is not Kind.HEALTH:
            asking = self._asking[kind]
            asking[peer] -= 1
            if not asking[peer]:
                del asking[peer]

    def come_back(self) -> int:
        """Seconds after which one that was refused should ask again; the more there are, the further apart."""
        now = time.monotonic()
        if now - self._refused_since > 1.0:
            self._refused, self._refused_since = 0, now
        self._refused += 1
        return random.randint(1, 1 + self._refused // A_SECOND)  # noqa: S311 so that not all come back at once

    def _stays(self, seat: Seat) -> bool:
        """Whether a connection has a place, if need be that of another; who is found to have an account has it as such."""
        party = self.party_of(seat.peer)
        if self._party.get(seat, party) != party:
            self.go(seat)
        return self.has_place(seat) or (self._make_place(party) and self.come(seat))

    def party_of(self, peer: Peer) -> Party:
        """Whose places those of a peer are counted with."""
        if peer.uid is None:
            return network_of(peer.address)
        return peer.uid if self._knows(peer.uid) else UNKNOWN

    def _make_place(self, party: Party) -> bool:
        """Have a connection that is silent for long lose its place; whether there is one now."""
        if self._has_most(party):
            return self._turn_out(party)
        if not self._is_full(party):
            return True
        among = [each for each in self._seated if not self._is_barred(party) or not isinstance(each, int)]
        return self._turn_out(max(among, key=lambda each: len(self._seated[each])))

    def _is_full(self, party: Party) -> bool:
        """Whether no place is left for one of a party."""
        return len(self._party) >= self._most or self._is_barred(party)

    def _is_barred(self, party: Party) -> bool:
        """Whether what is left is for people with an account, and a party is no such."""
        left = self._most - self._most // FOR_PEOPLE
        return not isinstance(party, int) and self._others >= left and not self.personal

    def _has_most(self, party: Party) -> bool:
        most = self._most_of_one or MOST_OF_ONE
        return len(self._seated.get(party, ())) >= most and not self.personal

    def _turn_out(self, party: Party) -> bool:
        longest, since = next(iter(self._silent[party].items()), (None, 0.0))
        if longest is None or time.monotonic() - since < SILENT:
            return False
        self.go(longest)
        longest.hang_up()
        return True

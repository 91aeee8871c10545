"""Admission control: slots for connections, and limits on concurrent requests by kind.

Nobody's load is another's wait. Requests that read, that change something, and that wait for an event have separate limits, of
which one of several people may use half. Health checks are always answered. A connection beyond the limit has no slot. It may
still send a request, and takes the slot of a connection that has been silent, of the same party, or of the largest party if all
slots are taken. If none is silent, it is asked to come back. So nobody can keep others out by staying silent.

A party is something that cannot be multiplied at will: a person with an account on this machine, on TCP too; all uids without
one together, since anybody may have thousands; a remote address, where an IPv6 network counts as one, as do all addresses of this
machine where the kernel does not say whose a connection is.
Some slots are reserved for people with an account.

For the event loop only.
"""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Protocol

from fairlead.people.authenticator import Peer

MOST_CONNECTIONS = 4000
"""Connections with a slot, if there are enough file descriptors."""
MOST_OF_ONE = 500
"""Slots of one party."""
PEOPLE_SLOTS = 4
"""One in this many slots is reserved for people with an account on this machine."""
SILENT_SECONDS = 1.0
"""After which a silent connection may lose its slot."""
MOST_UNREAD = 64 * 2**20
"""Bytes of answers that one person may leave unread."""
RETRIES_PER_SECOND = 500
"""Refused requests are spread over enough seconds to return at about this rate."""


class Kind(Enum):
    """What a request does."""

    HEALTH = "health"
    READ = "read"
    CHANGE = "change something"
    WAIT = "wait for something to happen"


ROOM = {Kind.READ: 100, Kind.CHANGE: 250, Kind.WAIT: 2000}
"""Concurrent requests by kind: as many as are answered in a moment. More would only delay everybody."""


def kind_of(method: bytes, url: bytes) -> Kind:
    path, _, query = url.partition(b"?")
    if path in (b"/healthz", b"/readyz"):
        return Kind.HEALTH
    if path in (b"/v1/facts", b"/page/events") or b"wait=" in query:
        return Kind.WAIT
    return Kind.READ if method in (b"GET", b"HEAD") else Kind.CHANGE


Party = int | str
"""Whose slots are counted together: a uid, a network's name, or `UNKNOWN` for all uids without an account."""
UNKNOWN = "unknown uids"


@lru_cache(maxsize=10_000)
def network_of(address: str) -> str:
    """Return what an address is counted as: its /64 network for IPv6, one name for all loopback addresses."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:  # not an IP address
        return address
    found = (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found
    if found.is_loopback:
        return "this machine"
    return found.exploded[:19] if isinstance(found, IPv6Address) else str(found)


class SlotHolder(Protocol):
    """A connection, as far as slots are concerned."""

    peer: Peer

    def unread(self) -> int:
        """Bytes of answers that the client has not read."""

    def hang_up(self) -> None:
        """Close it."""


class ConnectionSlots:
    """All connections to a scheduler.

    most : the number of slots
    personal : True if all belong to one person, who may then use all of the limits
    knows : True if a uid is known to have an account
    room : concurrent requests by kind, instead of `ROOM`
    most_of_one : slots of one party, instead of `MOST_OF_ONE`
    full : the status of refusals with Retry-After
    max_wait : seconds that a connection may wait to be admitted, instead of the default
    """

    def __init__(
        self,
        most: int = MOST_CONNECTIONS,
        personal: bool = False,
        knows: Callable[[int], bool] = lambda uid: True,
        room: Mapping[Kind, int] | None = None,
        most_of_one: int | None = None,
        full: int = 429,
        max_wait: float | None = None,
    ) -> None:
        self.full, self.max_wait = full, max_wait
        self._most, self.personal, self._knows = most, personal, knows
        self._room, self._most_of_one = room or ROOM, most_of_one
        self._party: dict[SlotHolder, Party] = {}  # of connections with a slot
        self._holders: defaultdict[Party, set[SlotHolder]] = defaultdict(set)
        self._silent: defaultdict[Party, dict[SlotHolder, float]] = defaultdict(dict)  # since when, longest first
        self._slow: defaultdict[Peer, set[SlotHolder]] = defaultdict(set)
        self._asking: dict[Kind, Counter[Peer]] = {kind: Counter() for kind in ROOM}
        self._others = 0  # slots of parties other than people with an account
        self._refused, self._refused_since = 0, 0.0

    def connected(self, holder: SlotHolder) -> bool:
        """Add a new, silent connection; return True if it has a slot."""
        party = self.party_of(holder.peer)
        if self._is_full(party) or self._has_most(party):
            return False
        self._party[holder] = party
        self._holders[party].add(holder)
        self._others += not isinstance(party, int)
        self.is_silent(holder)
        return True

    def disconnected(self, holder: SlotHolder) -> None:
        self.reads(holder)
        party = self._party.pop(holder, None)
        if party is None:
            return
        self._others -= not isinstance(party, int)
        self._holders[party].discard(holder)
        self._silent[party].pop(holder, None)
        if not self._holders[party]:
            del self._holders[party]
            self._silent.pop(party, None)

    def has_slot(self, holder: SlotHolder) -> bool:
        return holder in self._party

    def is_silent(self, holder: SlotHolder) -> None:
        """A connection has its answer, and has not asked for more."""
        if self.has_slot(holder):
            self._silent[self._party[holder]][holder] = time.monotonic()

    def does_not_read(self, holder: SlotHolder) -> None:
        """A connection has unread answers."""
        self._slow[holder.peer].add(holder)

    def reads(self, holder: SlotHolder) -> None:
        """It has none any more."""
        self._slow[holder.peer].discard(holder)
        if not self._slow[holder.peer]:
            del self._slow[holder.peer]

    def ask(self, holder: SlotHolder, kind: Kind) -> str:
        """Start a request; return why it is refused, or an empty string. If accepted, call `answered` at its end."""
        if kind is Kind.HEALTH:
            return ""
        peer, asking = holder.peer, self._asking[kind]
        if sum(slow.unread() for slow in self._slow[peer]) > MOST_UNREAD:
            return f"{MOST_UNREAD >> 20} MiB of answers to you are unread: read them"
        if asking.total() >= self._room[kind] or (asking[peer] >= self._room[kind] // 2 and not self.personal):
            return f"too many requests to {kind.value} are in progress"
        if not self._keep_slot(holder):
            return "too many connections are open"
        self._silent[self._party[holder]].pop(holder, None)
        asking[peer] += 1
        return ""

    def answered(self, peer: Peer, kind: Kind) -> None:
        if kind is not Kind.HEALTH:
            asking = self._asking[kind]
            asking[peer] -= 1
            if not asking[peer]:
                del asking[peer]

    def come_back(self) -> int:
        """Return the seconds for Retry-After; more refusals are spread further."""
        now = time.monotonic()
        if now - self._refused_since > 1.0:
            self._refused, self._refused_since = 0, now
        self._refused += 1
        return random.randint(1, 1 + self._refused // RETRIES_PER_SECOND)  # noqa: S311 so that not all come back at once

    def _keep_slot(self, holder: SlotHolder) -> bool:
        """Give a connection a slot, another's if necessary; update its party if an account was found meanwhile."""
        party = self.party_of(holder.peer)
        if self._party.get(holder, party) != party:
            self.disconnected(holder)
        return self.has_slot(holder) or (self._free_slot(party) and self.connected(holder))

    def party_of(self, peer: Peer) -> Party:
        uid = peer.account if peer.uid is None else peer.uid
        if uid is None:
            return network_of(peer.address)
        return uid if self._knows(uid) else UNKNOWN

    def _free_slot(self, party: Party) -> bool:
        if self._has_most(party):
            return self._evict(party)
        if not self._is_full(party):
            return True
        among = [each for each in self._holders if not self._is_barred(party) or not isinstance(each, int)]
        return self._evict(max(among, key=lambda each: len(self._holders[each])))

    def _is_full(self, party: Party) -> bool:
        return len(self._party) >= self._most or self._is_barred(party)

    def _is_barred(self, party: Party) -> bool:
        """True if the remaining slots are reserved for people with an account, and a party is not one."""
        left = self._most - self._most // PEOPLE_SLOTS
        return not isinstance(party, int) and self._others >= left and not self.personal

    def _has_most(self, party: Party) -> bool:
        most = self._most_of_one or MOST_OF_ONE
        return len(self._holders.get(party, ())) >= most and not self.personal

    def _evict(self, party: Party) -> bool:
        longest, since = next(iter(self._silent[party].items()), (None, 0.0))
        if longest is None or time.monotonic() - since < SILENT_SECONDS:
            return False
        self.disconnected(longest)
        longest.hang_up()
        return True

"""When a machine may be taken for lost: as soon as nothing can run there any more, and no sooner.

Its supervisor runs tasks as long as it has a lease (:mod:`fairlead.engines.local.lease`), which lasts `lost_after` seconds from a
moment before its last number was heard, and then gives them a grace. Where somebody vouches for machines, such as Ray, a lease
lasts from the last moment at which that one held the machine for alive, too: then silence alone proves nothing.
"""

import enum
from typing import NamedTuple

from fairlead.engines.contract import NodeDown, NodeDraining, NodeUp
from fairlead.model.specs import Node


class LeasePolicy(NamedTuple):
    """How long leases last, and how long tasks have to end when one is over, in seconds; whether somebody vouches."""

    lost_after: float
    grace: float
    vouched: bool

    def over_within(self, longer: float = 0.0) -> float:
        """Seconds after which nothing runs that was not renewed: with a part for clocks that do not go alike, and for ending.

        `longer` is what the lease lasts, where that may be longer.
        """
        return 1.02 * max(self.lost_after, longer) + self.grace + 1.0


class MemberState(enum.Enum):
    """What is known of a machine."""

    UNHEARD = "unheard"  # its supervisor has not told what it knows of, since it was connected to
    UP = "up"
    LOST = "lost"  # and that was told


class Member:
    """A machine.

    Attributes
    ----------
    node : Node or None
        As it is seen; None for one that is only expected to be there.
    renewed_at : float
        When its lease may have been renewed last, in seconds of the monotonic clock.
    heard_at : float
        When it was heard, or was tried to be reached anew, last.
    number : int
        The number that its supervisor said last.
    promised : float
        How long its lease may last by what a scheduler before this one promised; 0 once it was told otherwise.
    believed : bool
        The journal may believe that something runs there.
    gone_at : float or None
        Since when it is known that it is gone or is to go; None while it is not.
    draining : bool
        It is to go, and takes no more.
    fenced : bool
        Its supervisor has confirmed that nothing runs there.
    """

    def __init__(self, name: str, node: Node | None, now: float, promised: float = 0.0) -> None:
        self.name, self.node, self.promised = name, node, promised
        self.standing = MemberState.UNHEARD
        self.renewed_at = self.heard_at = now
        self.gone_at: float | None = None
        self.fenced = self.believed = False
        self.number = 0
        self.limits: dict[str, bool] = {}
        self.paused = 0
        self.draining = False

    def seen(self) -> list[NodeUp | NodeDown | NodeDraining]:
        """What a machine that is there is told to be."""
        assert self.node is not None, "it has told what it knows of, so it was admitted"
        return [NodeUp(self.node), *([NodeDraining(self.name)] if self.draining else [])]

    def is_lost(self, promise: LeasePolicy, now: float) -> bool:
        """Whether nothing can run there now."""
        if self.standing is MemberState.LOST:
            return True
        if not self.believed:
            return self.gone_at is not None
        if self.gone_at is not None:
            return self.fenced or now > max(self.gone_at, self.renewed_at) + promise.over_within(self.promised)
        return not promise.vouched and now > self.renewed_at + promise.over_within(self.promised)

"""When a node counts as lost: as soon as nothing can run there any more, and no sooner.

Its supervisor runs tasks while it has a lease (:mod:`fairlead.engines.local.lease`), for `lost_after` seconds from before its
last heartbeat was received; then tasks get a grace.
"""

import enum
from collections.abc import Mapping
from typing import NamedTuple

from fairlead.engines.contract import CardUse, NodeDraining, NodeEvent, NodeUp
from fairlead.engines.local.instructions import gpu_indices
from fairlead.model.specs import Node
from fairlead.scheduler.cluster import ACCOUNT, OLDER


class LeasePolicy(NamedTuple):
    """Duration of leases and grace of tasks at expiry, in seconds."""

    lost_after: float
    grace: float

    def over_within(self, longer: float = 0.0) -> float:
        """Return the seconds after which nothing runs without a renewal, with margins for clock drift and for ending.

        `longer` is the duration of the lease if it may be longer.
        """
        return 1.02 * max(self.lost_after, longer) + self.grace + 1.0


class MemberState(enum.Enum):
    """What is known of a node."""

    UNHEARD = "unheard"  # no inventory since the connection
    UP = "up"
    LOST = "lost"  # and reported as lost


class Member:
    """A node.

    node : its resources and labels; None for one that is only expected
    renewed_at : when its lease was last renewed; seconds of the monotonic clock
    heard_at : when its last message came, or its connection was last renewed
    number : the number of its last heartbeat
    promised : duration of a lease that an earlier scheduler may have granted; 0 once it has the new terms
    believed, expected_at : True if the journal may have tasks there, and since when the scheduler waits to hear of them
    gone_at : when it was removed; None if it was not
    draining : True if it takes no more tasks
    closed_to : users who have no account there, and why
    version, clock_ahead : the version of fairlead there, and the seconds that its clock is ahead of ours
    here : True if it is the scheduler's own machine: a connection within a machine needs no lease
    unfit, older : why the scheduler cannot talk to its supervisor; what it is, if it speaks only an older protocol; else empty
    outdated : True if its supervisor is older than one that would take its place
    place : where its supervisor is, as of :class:`fairlead.engines.local.reports.About`
    moved : True if it connects from another place while tasks may run at the last one
    rejoined : True if it joined by a token since it was heard last
    leaving : "drain" if it leaves when none of its tasks is left, "now" if it ends them, or empty
    card_use : how busy its cards were when it last said
    fenced : True if nothing runs there: its supervisor confirmed that, or the journal has no tasks there
    """

    def __init__(self, name: str, node: Node | None, now: float) -> None:
        self.name, self.node, self.promised = name, node, 0.0
        self.standing = MemberState.UNHEARD
        self.renewed_at = self.heard_at = self.expected_at = now
        self.gone_at: float | None = None
        self.fenced = self.believed = False
        self.number = 0
        self.limits: dict[str, bool] = {}
        self.closed_to: Mapping[str, str] = {}
        self.paused = 0
        self.card_use: Mapping[int, CardUse] = {}
        self.draining = self.here = False
        self.version, self.clock_ahead, self.leaving, self.unfit = "", 0.0, "", ""
        self.older, self.outdated = "", False
        self.place: tuple[str, int] | None = None
        self.moved = self.rejoined = False

    def seen(self) -> list[NodeEvent]:
        """Return the events that describe a node that is up."""
        shown = self.shown()
        up = NodeUp(shown, gpu_indices([shown])[self.name])
        return [up, NodeDraining(self.name)] if self.draining else [up]

    def shown(self) -> Node:
        """Return the node, with those who have no account there, and whether it is older, as labels."""
        assert self.node is not None, "it sent its inventory, so it was admitted"
        closed = {f"{ACCOUNT}{user}": why for user, why in self.closed_to.items()} | ({OLDER: self.older} if self.older else {})
        return Node(self.name, self.node.capacity, {**self.node.labels, **closed})

    def is_lost(self, policy: LeasePolicy, now: float) -> bool:
        """Return True if nothing can run there now."""
        if self.standing is MemberState.LOST:
            return True
        if not self.believed:
            return self.gone_at is not None
        if self.gone_at is not None:
            return self.fenced or now > max(self.gone_at, self.renewed_at) + policy.over_within(self.promised)
        return not self.here and now > self.renewed_at + policy.over_within(self.promised)

"""When a node counts as lost: as soon as nothing can run there any more, and no sooner.

Its supervisor runs tasks while it has a lease (:mod:`fairlead.engines.local.lease`), for `lost_after` seconds from before its
last heartbeat was received; then tasks get a grace. If a third party such as Ray vouches for nodes, a lease also lasts from its
last successful health check: then silence alone proves nothing.
"""

import enum
from collections.abc import Mapping
from typing import NamedTuple

from fairlead.engines.contract import CardUse, NodeDown, NodeDraining, NodeUp
from fairlead.engines.local.instructions import gpu_indices
from fairlead.model.specs import Node
from fairlead.scheduler.cluster import ACCOUNT


class LeasePolicy(NamedTuple):
    """Duration of leases and grace of tasks at expiry, in seconds; `vouched` if a third party vouches for nodes."""

    lost_after: float
    grace: float
    vouched: bool

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

    Attributes
    ----------
    node : Node or None
        Its resources and labels; None for one that is only expected.
    renewed_at : float
        When its lease was last renewed; seconds of the monotonic clock.
    heard_at : float
        When its last message came, or its connection was last renewed.
    number : int
        The number of its last heartbeat.
    promised : float
        Duration of a lease that an earlier scheduler may have granted; 0 once it has the new terms.
    believed : bool
        True if the journal may have tasks there.
    gone_at : float or None
        When it was removed; None if it was not.
    draining : bool
        True if it takes no more tasks.
    closed_to : dict
        Users who have no account there, and why.
    version, clock_ahead : str, float
        The version of fairlead there, and the seconds that its clock is ahead of ours.
    here : bool
        True if it is the scheduler's own machine: a connection within a machine needs no lease.
    unfit : str
        Why the scheduler cannot talk to its supervisor; empty if it can.
    leaving : str
        "drain" if it leaves when none of its tasks is left, "now" if it ends them, or empty.
    card_use : mapping of int to CardUse
        How busy its cards were when it last said.
    fenced : bool
        True if nothing runs there: its supervisor confirmed that, or the journal has no tasks there.
    """

    def __init__(self, name: str, node: Node | None, now: float, promised: float = 0.0) -> None:
        self.name, self.node, self.promised = name, node, promised
        self.standing = MemberState.UNHEARD
        self.renewed_at = self.heard_at = now
        self.gone_at: float | None = None
        self.fenced = self.believed = False
        self.number = 0
        self.limits: dict[str, bool] = {}
        self.closed_to: Mapping[str, str] = {}
        self.paused = 0
        self.card_use: Mapping[int, CardUse] = {}
        self.draining = self.here = False
        self.version, self.clock_ahead, self.leaving, self.unfit = "", 0.0, "", ""

    def seen(self) -> list[NodeUp | NodeDown | NodeDraining]:
        """Return the events that describe a node that is up."""
        return [
            NodeUp(self.shown(), gpu_indices([self.shown()])[self.name]),
            *([NodeDraining(self.name)] if self.draining else []),
        ]

    def shown(self) -> Node:
        """Return the node, with those who have no account there as labels."""
        assert self.node is not None, "it sent its inventory, so it was admitted"
        closed = {f"{ACCOUNT}{user}": why for user, why in self.closed_to.items()}
        return Node(self.name, self.node.capacity, {**self.node.labels, **closed})

    def is_lost(self, policy: LeasePolicy, now: float) -> bool:
        """Return True if nothing can run there now."""
        if self.standing is MemberState.LOST:
            return True
        if not self.believed:
            return self.gone_at is not None
        if self.gone_at is not None:
            return self.fenced or now > max(self.gone_at, self.renewed_at) + policy.over_within(self.promised)
        return not policy.vouched and not self.here and now > self.renewed_at + policy.over_within(self.promised)

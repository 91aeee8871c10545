"""The lifecycles of tasks, jobs, offers, reservations and claims: their statuses, and what each event makes of them.

What is not listed cannot happen. Requests and facts about jobs and offers are refused by these tables. Those of reservations and
claims say what the kernel does. The docs show all of them, and tests compare them with what a state does. A task's lifecycle
comes first, as numbers, because kernels compile it in.
"""

from typing import Final, NamedTuple

from fairlead.model.specs import JobStatus

# From PLACED to REVOKING a task holds resources; from SUCCEEDED on it is over.
WAITING, PLACED, RUNNING, STOPPING, EXPIRING, REVOKING, SUCCEEDED, FAILED, CANCELLED = range(9)
OVER: Final = (SUCCEEDED, FAILED, CANCELLED)
STATUS_NAMES: Final = ("waiting", "starting", "running", "stopping", "expiring", "revoking", "succeeded", "failed", "cancelled")

# What can happen. An end is one of the last six: the engine tells how the attempt ended, the state whether it may start again.
PLACE, START, CANCEL, EXPIRE, REVOKE, DONE, YIELDED, FAIL, RETRY, LOSE, GIVE_UP, NOT_BEGUN = range(12)
EVENT_NAMES: Final = (
    "placed",
    "started",
    "cancelled",
    "out of time",
    "revoked",
    "exits 0 by itself",
    "exits 0 after its signal",
    "fails",
    "fails, with retries left",
    "is lost",
    "is lost once too often",
    "cannot be started",
)

IMPOSSIBLE: Final = -1
_X: Final = IMPOSSIBLE

TRANSITIONS: Final = (
    # placed, started, cancelled, out of time, revoked, done, yielded, fails, retry, lost, too often, not begun
    (PLACED, _X, CANCELLED, _X, _X, _X, _X, _X, _X, _X, _X, _X),  # waiting
    (_X, RUNNING, STOPPING, _X, REVOKING, SUCCEEDED, WAITING, FAILED, WAITING, WAITING, FAILED, FAILED),  # starting
    (_X, RUNNING, STOPPING, EXPIRING, REVOKING, SUCCEEDED, WAITING, FAILED, WAITING, WAITING, FAILED, FAILED),  # running
    (_X, STOPPING, STOPPING, _X, _X, SUCCEEDED, CANCELLED, CANCELLED, CANCELLED, CANCELLED, CANCELLED, CANCELLED),  # stopping
    (_X, EXPIRING, STOPPING, _X, _X, SUCCEEDED, FAILED, FAILED, FAILED, FAILED, FAILED, FAILED),  # expiring
    (_X, REVOKING, STOPPING, _X, _X, SUCCEEDED, WAITING, WAITING, WAITING, WAITING, FAILED, WAITING),  # revoking
    (_X,) * 12,  # succeeded
    (_X,) * 12,  # failed
    (_X,) * 12,  # cancelled
)
"""TRANSITIONS[status][event] is the status after it; IMPOSSIBLE means that it cannot happen then.

If the job says that a task which exits 0 after its signal is done (``exit_done``), YIELDED is taken for DONE, unless the task was
cancelled or out of time. The signal need not be the scheduler's: a node that shuts down stops its tasks. That counts as a loss.
"""


class Lifecycle(NamedTuple):
    """The statuses of a thing, and of each event the statuses that can follow, by the status before it."""

    statuses: tuple[str, ...]
    events: dict[str, dict[str, tuple[str, ...]]]

    def allows(self, event: str, status: str, after: str | None = None) -> bool:
        """Return True if an event can happen in a status; if `after` is given, only if that can follow."""
        possible = self.events[event].get(status, ())
        return after in possible if after is not None else bool(possible)


JOB_STATUSES: Final[tuple[JobStatus, ...]] = ("waiting", "held", "running", "succeeded", "failed", "cancelled")
UNFINISHED: Final = JOB_STATUSES[:3]
ENDED: Final = JOB_STATUSES[3:]

JOB: Final = Lifecycle(
    (*JOB_STATUSES, "forgotten"),
    {
        "placed": {"waiting": ("running",), "held": ("running",), "running": ("running",)},
        "held": {"waiting": ("held",), "held": ("held",), "running": ("running",)},
        "released": {"held": ("waiting",), "running": ("running",), **{status: (status,) for status in ENDED}},
        "edited": {status: (status,) for status in UNFINISHED},
        "cancelled": {
            "waiting": ("waiting", *ENDED),
            "held": ("held", *ENDED),
            "running": ("running",),
            **{status: (status,) for status in ENDED},
        },
        "a task ends": {"running": ("running", "waiting", "held", *ENDED)},
        "forgotten": dict.fromkeys(ENDED, ("forgotten",)),
    },
)
"""A job runs while a task of it holds resources, also if it is held or cancelled meanwhile."""

OFFER: Final = Lifecycle(
    ("open", "void", "over"),
    {
        "accepted": {"open": ("over",)},
        "declined": {"open": ("over",)},
        "its node is lost or changes": {"open": ("void",)},
        "rescinded": {"open": ("over",), "void": ("over",)},
    },
)
"""An offer is void while its framework does not know yet that the node is lost."""

RESERVATION: Final = Lifecycle(
    ("planned", "over"),
    {
        "planned again": {"planned": ("planned", "over")},
        "a task takes its place": {"planned": ("planned", "over")},
        "dropped": {"planned": ("over",)},
        "a node of it is lost or drained": {"planned": ("planned", "over")},
        "its job cannot wait any more": {"planned": ("planned", "over")},
    },
)
"""A reservation is of a group: another job of that may have it later."""

CLAIM: Final = Lifecycle(
    ("due", "kept", "deferred", "over"),
    {
        "tasks are preempted": {"due": ("kept",)},
        "others are stopping": {"due": ("kept",), "deferred": ("kept",)},
        "no victims found": {"due": ("deferred",)},
        "its time comes": {"deferred": ("due",)},
        "placed": {"due": ("over",), "kept": ("kept", "over"), "deferred": ("over",)},
        "withdrawn": {"kept": ("due", "over")},
    },
)
"""A claim is a pending task, or gang, that others are preempted for. Room that comes back for it is kept for it."""

LIFECYCLES: Final = {"job": JOB, "offer": OFFER, "reservation": RESERVATION, "claim": CLAIM}

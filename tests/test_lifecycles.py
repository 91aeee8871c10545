"""The lifecycles of jobs, offers, reservations and claims, compared with what random histories do."""

from unittest import mock

import pytest

from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import (
    Fact,
    FrameworkGone,
    JobCancelled,
    JobEdited,
    JobHeld,
    JobReleased,
    JobsForgotten,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodesReserved,
    OffersAccepted,
    OffersDeclined,
    OffersRescinded,
    ReservationDropped,
    TasksFinished,
    TasksPlaced,
    decode,
)
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import JOB_STATUSES, LIFECYCLES
from fairlead.scheduler.tables import NONE, RESERVATION
from fairlead.simulate.run import simulate
from test_claims import crowd
from test_crash import histories, run

EVENTS: dict[type[Fact], str] = {
    TasksPlaced: "placed",
    JobHeld: "held",
    JobReleased: "released",
    JobEdited: "edited",
    JobCancelled: "cancelled",
    TasksFinished: "a task ends",
    NodeLost: "a task ends",
    JobsForgotten: "forgotten",
}
"""What a fact is to the lifecycle of a job. A fact that is not here changes no job's status."""


class LifecycleCheck:
    """Checks that each fact changes statuses only as the lifecycles say. For tests and the debug switch."""

    def __init__(self, state: State) -> None:
        self._before, self.seen = _statuses(state), set()

    def after(self, state: State, fact: Fact) -> None:
        """Check what a fact has changed. Raises AssertionError: it names the job or offer, and its statuses."""
        now = _statuses(state)
        for (kind, number), before in self._before.items():
            after = now.get((kind, number), LIFECYCLES[kind].statuses[-1])
            if after != before:
                event = EVENTS.get(type(fact)) if kind == "job" else _event(kind, fact)
                self.seen.add((kind, event, before, after))
                known = event is not None and LIFECYCLES[kind].allows(event, before, after)
                assert known, f"{kind} {number} was {before} and is {after} after {type(fact).__name__}"
        self._before = now


def _statuses(state: State) -> dict[tuple[str, int], str]:
    """The statuses of jobs, open offers, and jobs' reservations and claims, by kind and number."""
    jobs, holds, n = state.jobs, state.holds, state.jobs.n
    found: dict[tuple[str, int], str] = {}
    for number, status in zip(jobs.id[:n].tolist(), jobs.statuses(slice(n)).tolist(), strict=True):
        if number != NONE:
            found["job", number] = JOB_STATUSES[status]
    found |= {("offer", offer): "open" for offer in state.offers.id[: state.offers.n].tolist()}
    found |= {("offer", offer): "void" for offer in state.frameworks.void}
    for number, kind in zip(holds.job[: holds.n].tolist(), holds.kind[: holds.n].tolist(), strict=True):
        if kind == RESERVATION:
            found["reservation", number] = "planned"
        else:
            found["claim", number] = "kept"
    return found


def _event(kind: str, fact: Fact) -> str | None:
    """What a fact is to an offer, a reservation or a claim, if it can change one."""
    match kind, fact:
        case "offer", OffersAccepted():
            return "accepted"
        case "offer", OffersDeclined():
            return "declined"
        case "offer", NodeLost() | NodeJoined():
            return "its node is lost or changes"
        case "offer", OffersRescinded() | FrameworkGone():
            return "rescinded"
        case "reservation", NodesReserved():
            return "planned again"
        case "reservation", NodeLost() | NodeDrained():
            return "a node of it is lost or drained"
        case "reservation", TasksPlaced():
            return "a task takes its place"
        case "claim", TasksPlaced():
            return "placed"
        case _, ReservationDropped():
            return "dropped" if kind == "reservation" else "withdrawn"
    return "its job cannot wait any more" if kind == "reservation" else "withdrawn" if kind == "claim" else None


def test_histories_go_by_the_lifecycles():
    seen = set()
    for history in histories(0)[:15]:
        journal, state = run(history).scheduler.journal, new_state()
        check = LifecycleCheck(state)
        for _, body in journal.look(0, 10**6):
            fact = decode(body)
            apply(state, fact)
            check.after(state, fact)
        seen |= check.seen
    assert {"job", "offer"} <= {kind for kind, *_ in seen}


@pytest.mark.parametrize("seed", range(3))
def test_preemption_and_backfilling_go_by_the_lifecycles(seed):
    """Gangs wait in reservations, and for queues below their guarantee tasks are preempted."""
    checks = {}

    def checked(state, fact, learned=None):
        check = checks.setdefault(id(state), LifecycleCheck(state))
        apply(state, fact, learned)
        check.after(state, fact)

    with mock.patch("fairlead.engines.step.apply", checked):
        simulate(crowd(seed), compiled=False)
    (check,) = checks.values()
    assert {"job", "reservation", "claim"} <= {kind for kind, *_ in check.seen}


def test_each_status_can_be_left_but_the_last():
    for name, lifecycle in LIFECYCLES.items():
        left = {status for event in lifecycle.events.values() for status, after in event.items() if {*after} - {status}}
        assert left == {*lifecycle.statuses[:-1]}, name
        reached = {status for event in lifecycle.events.values() for after in event.values() for status in after}
        assert reached <= {*lifecycle.statuses}, name

"""When running tasks are expected to end, and durations drawn for simulated runs; docs/forecasts.md says what it means.

From the state alone, which this never changes. :mod:`~fairlead.scheduler.kernel` keeps how long tasks lasted,
:mod:`~fairlead.scheduler.kernel` says what follows from it.
"""

from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np

from fairlead.scheduler.kernel import constants, scheduling
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED, REVOKING, RUNNING
from fairlead.scheduler.tables import F64, I64

EXPECTED, CAUTIOUS = 0.5, 0.9
"""Chances that a task has ended by then: even odds, and nine in ten."""


def family_of(queue: str, name: str, shape: Any) -> int:
    """The number of a family of jobs: those with the same leaf queue, name and shape. Not 0."""
    digest = blake2b(msgspec.msgpack.encode((queue, name, shape)), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True) or 1


def durations(state: State, jobs: I64, ages: F64, chance: float = EXPECTED) -> F64:
    """How long tasks last that have run so long, in all.

    Parameters
    ----------
    state : State
    jobs : int64, shape (n,)
        The rows of their jobs, those of the same job together.
    ages : float64, shape (n,)
        Seconds, 0 for one that does not run yet.
    chance : float
        That it takes no longer, between 0 and 1.

    Returns
    -------
    float64, shape (n,)
        Seconds, no fewer than `ages`, no more than their time limits. Infinite where nothing is known.
    """
    return scheduling.durations(state.view(), jobs, ages, np.full(len(jobs), 1 - chance), constants.MAX_EXTRAPOLATION)


def ends(state: State, tasks: I64, now: float, chance: float = EXPECTED) -> F64:
    """When tasks will have ended.

    Parameters
    ----------
    state : State
    tasks : int64, shape (n,)
        Rows of tasks, in the order of the table: `state.held_rows()`, or some of them.
    now : float
        Seconds, as in the facts.
    chance : float
        That it is no later, between 0 and 1.

    Returns
    -------
    float64, shape (n,)
        Seconds, as in the facts, never before now. One that is about to start is taken to start now, and one that was told to
        stop to end now. Infinite where nothing is known, NaN for a task that holds nothing.
    """
    status, started_at = state.tasks.status[tasks], state.tasks.started_at[tasks]
    runs = (status == PLACED) | (status == RUNNING)
    found = np.where((status > RUNNING) & (status <= REVOKING), now, np.nan)
    ages = np.fmax(0.0, now - started_at[runs])  # NaN where it is about to start
    left = durations(state, state.job_rows_of(tasks[runs]), ages, chance) - ages
    found[runs] = now + left
    return found


def draw(state: State, jobs: I64, ages: F64, rng: np.random.Generator) -> F64:
    """Draw how long tasks last that have run so long, in all, each by itself; see `durations`.

    Where nothing is known the rule that they last as long again is drawn from: never infinite, but it may be any length, and 0
    for what has not begun.
    """
    parts = 1 - rng.random(len(jobs))
    return scheduling.durations(state.view(), jobs, ages, parts, np.inf)

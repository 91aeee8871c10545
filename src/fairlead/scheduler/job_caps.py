"""How many jobs of one person count at once, where that is capped: only these wait in groups, or run.

A job is admitted until it has ended, or is held with nothing of it running. Other jobs of its person wait meanwhile, in whatever
queue, and are admitted by number. Who is admitted follows from the tables: who waits in a group, or runs. Frameworks' tasks do
not count.
"""

import numpy as np

from fairlead.model.specs import USERS, Job, Settings
from fairlead.scheduler.dependencies import JobCaps
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import NONE


def cap_of(settings: Settings, job: Job) -> int | None:
    """How many jobs the person of one may have inside; None for any number."""
    return None if job.framework else settings.max_jobs_of.get(job.user, settings.max_jobs_of.get(USERS))


def admit(state: State, row: int) -> bool:
    """Let a job in that could start, if its person has fewer inside than they may; else it waits for that."""
    number = int(state.jobs.id[row])
    job = state.index.specs[number]
    most = cap_of(state.settings, job)
    if most is None:
        return True
    state.jobs.plain[row] = False  # its end lets in another
    inside, waits = state.job_caps.inside.setdefault(job.user, set()), state.job_caps.waits.setdefault(job.user, set())
    if number not in inside and len(inside) >= most:
        waits.add(number)
        return False
    inside.add(number)
    waits.discard(number)
    return True


def leave(state: State, row: int) -> list[int]:
    """A job has ended, or is held: the numbers of those that may be let in now, in order."""
    number = int(state.jobs.id[row])
    job = state.index.specs[number]
    most = cap_of(state.settings, job)
    if most is None or job.user not in state.job_caps.inside:
        return []
    inside, waits = state.job_caps.inside[job.user], state.job_caps.waits[job.user]
    inside.discard(number)
    waits.discard(number)
    return sorted(waits)[: max(0, most - len(inside))]


def waits_for_cap(state: State, number: int) -> bool:
    """Whether a job waits for another one of its person to end."""
    return number in state.job_caps.waits.get(state.index.specs[number].user, ())


def count_admitted(state: State) -> list[int]:
    """Work out from the tables who is inside; returns the numbers of all others that wait for something, in order."""
    state.job_caps, jobs = JobCaps(), state.jobs
    outside = []
    for number, job in sorted(state.index.specs.items()) if state.settings.max_jobs_of else []:
        row = state.index.find(number)
        if row == NONE or not np.isnan(jobs.finished_at[row]):
            continue
        if jobs.group[row] == NONE and jobs.holding[row] == 0 and number not in state.broken_gangs:
            outside.append(number)
        elif cap_of(state.settings, job) is not None:
            jobs.plain[row] = False
            state.job_caps.inside.setdefault(job.user, set()).add(number)
            state.job_caps.waits.setdefault(job.user, set())
    return outside

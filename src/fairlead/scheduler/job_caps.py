"""Caps on users' jobs: how many jobs of a user may wait in groups or run at once.

A job is admitted until it has ended, or is held with nothing running. Other jobs of the user wait meanwhile, in any queue, and
are admitted by number. The tables determine who is admitted: jobs that wait in a group, or run. Tasks of frameworks do not
count.
"""

import numpy as np

from fairlead.model.specs import USERS, Job, Settings
from fairlead.scheduler.dependencies import JobCaps
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import NONE


def cap_of(settings: Settings, job: Job) -> int | None:
    return None if job.framework else settings.max_jobs_of.get(job.user, settings.max_jobs_of.get(USERS))


def admit(state: State, row: int) -> bool:
    """Admit a job that could start if its user is below the cap; else it waits for admission."""
    number = int(state.jobs.id[row])
    job = state.index.specs[number]
    most = cap_of(state.settings, job)
    if most is None:
        return True
    state.jobs.plain[row] = False  # its end admits another
    inside, waits = state.job_caps.inside.setdefault(job.user, set()), state.job_caps.waits.setdefault(job.user, set())
    if number not in inside and len(inside) >= most:
        waits.add(number)
        return False
    inside.add(number)
    waits.discard(number)
    return True


def leave(state: State, row: int) -> list[int]:
    """Release the slot of a job that has ended or is held; returns the jobs that may be admitted now, in order."""
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
    """True if a job waits for another one of its user to end."""
    return number in state.job_caps.waits.get(state.index.specs[number].user, ())


def count_admitted(state: State) -> list[int]:
    """Recompute from the tables which jobs are admitted; returns the other unfinished jobs, in order."""
    state.job_caps, jobs = JobCaps(), state.jobs
    outside = []
    for number, job in sorted(state.index.specs.items()) if state.settings.max_jobs_of else []:
        row = state.index.find(number)
        if row == NONE or not np.isnan(jobs.finished_at[row]):
            continue
        if jobs.group[row] == NONE and jobs.holding[row] == 0:
            outside.append(number)
        elif cap_of(state.settings, job) is not None:
            jobs.plain[row] = False
            state.job_caps.inside.setdefault(job.user, set()).add(number)
            state.job_caps.waits.setdefault(job.user, set())
    return outside

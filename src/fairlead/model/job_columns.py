"""What follows from submitted jobs alone, in columns: computed in any thread, before the scheduler's needs it."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fairlead.model.specs import Job, Work, as_constraints, holds_jobs_of

I64 = NDArray[np.int64]
LARGE_JOB_BYTES = 16 * 2**10
"""Bytes; a job counts as one, plus one for each such piece of its text, towards the jobs remembered."""
_NO_WORK = Work()


class JobColumns(NamedTuple):
    """Columns of jobs that are submitted together.

    jobs : all of them
    kinds : by what :func:`kind_of` returns: one job of each kind
    which : int64, shape (jobs,): index of each job's kind
    families : int64, shape (jobs,): from :func:`family_of`
    noted : places of the jobs of which the index notes more than their rows
    tasks, least : tasks of all jobs, and of the smallest
    special : True if one is of a framework, or may not start at once
    """

    jobs: Sequence[Job]
    kinds: dict[bytes, Job]
    which: I64
    families: I64
    noted: list[int]
    tasks: int
    least: int
    special: bool


def columns_of(jobs: Sequence[Job], known: Sequence[bytes] = ()) -> JobColumns:
    """Compute the columns of jobs; `known` has what :func:`kind_of` returns of each, if that is known."""
    kinds, places, names = dict[bytes, Job](), dict[bytes, int](), dict[tuple[int, str], int]()
    which, families = [], []
    for job, kind in zip(jobs, known or map(kind_of, jobs), strict=True):
        place = places.get(kind)
        if place is None:
            place, kinds[kind] = places.setdefault(kind, len(places)), job
        family = names.get((place, job.name))
        if family is None:
            family = names[place, job.name] = family_of(job)
        which.append(place)
        families.append(family)
    sizes = [job.tasks for job in jobs]
    return JobColumns(
        jobs, kinds, np.array(which, np.int64), np.array(families, np.int64),
        noted=[
            place for place, job in enumerate(jobs)
            if job.key or job.retry_delay or job.is_led or job.runs_in_executor or job.size >= LARGE_JOB_BYTES
        ],
        tasks=sum(sizes), least=min(sizes),
        special=any(job.after or job.singleton or job.held or job.framework or job.begin is not None for job in jobs),
    )  # fmt: skip


def kind_of(job: Job) -> bytes:
    """Return what is the same for jobs that differ in their work, names, keys and dependencies only."""
    return msgspec.msgpack.encode(replace(job, work=_NO_WORK, name="", group="", key="", digest="", after=[]))


def family_of(job: Job) -> int:
    """Return the number of a job's family: jobs with the same leaf queue, name, demand and labels. Never 0."""
    taken: list[Any] = sorted([amount for amount in job.taken.items() if amount[1]])
    family = (holds_jobs_of(job.queue), job.name, (taken, as_constraints(job.on)))
    digest = blake2b(msgspec.msgpack.encode(family), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True) or 1

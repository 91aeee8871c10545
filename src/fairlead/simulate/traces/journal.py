"""The journal of a live scheduler as a workload."""

from contextlib import closing
from pathlib import Path

import numpy as np

from fairlead.model.specs import Node, Queue
from fairlead.scheduler.facts import Configured, JobSubmitted, NodeJoined, TasksFinished, TasksPlaced
from fairlead.scheduler.framework_index import holds_jobs_of
from fairlead.simulate.workload import Jobs, TraceError, Workload


def read_journal(path: Path, skip_bad: bool = False) -> Workload:
    """Read the journal of a live scheduler: machines, queue tree, and jobs with the real durations of their tasks.

    A duration is from placement to end, the time that the task held resources; the last placement counts. Tasks that have not
    ended get the job's median; jobs without an ended task are left out, with a note. Facts folded into snapshots are gone.
    """
    from fairlead.journal import JournalError, read_history
    from fairlead.journal.sql import SqlStore

    nodes: dict[str, Node] = {}
    queues: list[Queue] = []
    specs: dict[int, JobSubmitted] = {}
    placed: dict[tuple[int, int], float] = {}
    took: dict[int, dict[int, float]] = {}
    try:
        with closing(SqlStore(path, to_read=True)) as store:
            known, _, facts = read_history(store)
            if known is not None:
                nodes, queues = {node.name: node for node in known.cluster.specs}, list(known.tree.declared.values())
            for fact in facts:
                if isinstance(fact, NodeJoined):
                    nodes[fact.node.name] = fact.node
                elif isinstance(fact, Configured):
                    queues = fact.queues
                elif isinstance(fact, JobSubmitted):
                    specs[fact.id] = fact
                elif isinstance(fact, TasksPlaced):
                    placed |= dict.fromkeys(zip(fact.job.tolist(), fact.index.tolist(), strict=True), fact.at)
                elif isinstance(fact, TasksFinished):
                    for job, index in zip(fact.job.tolist(), fact.index.tolist(), strict=True):
                        if (job, index) in placed:
                            took.setdefault(job, {})[index] = fact.at - placed[job, index]
    except JournalError as error:
        raise TraceError(str(error)) from None
    jobs, left_out = Jobs(), 0
    first = min((fact.at for fact in specs.values()), default=0.0)
    for number, fact in specs.items():
        ran, job = took.get(number, {}), fact.job
        if not ran:
            left_out += 1
            continue
        usual = float(np.median(list(ran.values())))
        durations = [ran.get(index, usual) for index in range(job.tasks)]
        each = durations if job.tasks > 1 else durations[0]
        jobs.add(fact.at - first, holds_jobs_of(job.queue), job.demand, each, job.tasks, job.on, job.gang, job.priority)
    if not len(jobs):
        raise TraceError(f"{path}: no job has an ended task")
    which = f"{left_out:,} job{'s' * (left_out > 1)} without an ended task {'are' if left_out > 1 else 'is'} left out"
    return jobs.workload(path.stem, list(nodes.values()), queues, notes=[f"{path}: {which}"] if left_out else None)

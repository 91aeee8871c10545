"""What people ask for, checked against the state and turned into facts, or refused with the reason and the remedy."""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from fairlead.model.quantity import LARGEST, format_quantities, format_quantity
from fairlead.model.specs import (
    ROOT,
    USERS,
    Job,
    Queue,
    Settings,
    ancestors,
    inner_names,
    path_to_root,
    settings_for,
)
from fairlead.scheduler.cluster import meets, tasks_that_fit
from fairlead.scheduler.facts import (
    FIXED_WHILE_RUNNING,
    Configured,
    JobCancelled,
    JobEdited,
    JobHeld,
    JobReleased,
    JobSubmitted,
    NodeDrained,
    NodeForgotten,
    NodeResumed,
)
from fairlead.scheduler.feasibility import bound_over, over_bound, stopped_for_ever
from fairlead.scheduler.framework_index import JOBS, own_queue
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import FAILED, JOB, PLACED, RUNNING, WAITING
from fairlead.scheduler.tables import NONE

MOST_TASKS = 1_000_000
"""Tasks of one job, at most."""
MOST_WAITING = 10_000_000
"""Tasks known to the scheduler, at most."""
MOST_LEAVES = 10_000
"""Leaf queues made for users, at most."""
USUAL = {"cpu": 1000, "memory": 2**30}
"""What a task asks for of what it does not name, where no task may take what it did not ask for."""


LEAST_MEMORY = 2**20
"""Bytes: whoever asks for fewer has most likely left out a unit."""


class Refused(ValueError):
    """A request that cannot be granted: what is wrong, and what would be right."""


class Unknown(Refused):
    """A request about a job, a queue or a node that there is not."""


class Conflict(Refused):
    """A request that contradicts an earlier one."""


def leaf_for(state: State, queue: str | None, user: str) -> str:
    """Find the leaf queue that a job goes to.

    Parameters
    ----------
    queue : str or None
        As asked for. An inner queue with a ``*`` below it means the user's own leaf there; None means the only leaf
        that is declared, or else the user's own, where there is one place for those.
    user : str
        Who asks.
    """
    declared = state.tree.declared
    name = (queue or "").strip("/")
    if f"{name}/{USERS}".lstrip("/") in declared:
        name = f"{name}/{user or 'nobody'}".lstrip("/")
    if name == ROOT:
        leaves = declared_leaves(state)
        own = [leaf for leaf in leaves if leaf.endswith(USERS)]
        if queue is None and (len(leaves) == 1 or len(own) == 1):
            return leaf_for(state, (leaves if len(leaves) == 1 else own)[0].replace(USERS, user or "nobody"), user)
        if queue is not None:
            raise Refused(f"{queue!r} is the root of all queues, not a leaf queue: choose one of {some(leaves)}")
        raise Refused(f"no queue was named, and there is none for everybody: choose one of {some(leaves)}")
    if USERS in name.split("/") or settings_for(name, declared) is None:
        raise Refused(f"there is no queue {name!r}: choose one of {some(declared_leaves(state))}")
    name = leaf_beside_frameworks(state, name)
    if name in state.tree.inner:
        below = ", ".join(sorted(n for n in declared if ancestors(n)[0] == name))
        raise Refused(f"{name!r} is not a leaf queue: choose one below it: {below}")
    if name not in state.tree.rows and len(state.tree.names) >= MOST_LEAVES + len(declared):
        raise Refused(f"there are {MOST_LEAVES} queues made for users already: no more can be added")
    return name


def leaf_beside_frameworks(state: State, name: str) -> str:
    """A leaf queue, or the one that it has for its jobs where frameworks are in it as well."""
    is_role = name not in state.tree.inner and state.tree.rows.get(name) in state.tree.inner_rows
    return f"{own_queue(name)}/{JOBS}" if is_role else name


def declared_leaves(state: State) -> list[str]:
    """The leaf queues that are declared, with a ``*`` for those of users."""
    return sorted(name for name in state.tree.declared if name not in state.tree.inner)


def some(names: list[str]) -> str:
    """Names of queues for a sentence, the first few of many."""
    return ", ".join(name.replace(USERS, "<any name>") for name in names[:10]) + ", ..." * (len(names) > 10)


def submit(state: State, jobs: Sequence[Job], now: float) -> list[JobSubmitted]:
    """Accept jobs into the leaf queues that they name (see :func:`leaf_for`): all, or none and say which is wrong.

    A leaf that became a role of frameworks meanwhile has one for its jobs.
    """
    facts = []
    for number, job in enumerate(jobs):
        moved = replace(job, queue=leaf_beside_frameworks(state, job.queue))
        try:
            if moved.queue in state.tree.inner:
                raise Refused(f"{job.queue!r} is not a leaf queue any more: ask again")
            check_job(state, moved)
        except Refused as refused:
            raise type(refused)(f"jobs.{number}: {refused}") if len(jobs) > 1 else refused from None
        facts.append(JobSubmitted(at=now, id=state.index.last + 1 + number, job=moved))
    if state.tasks.n + sum(job.tasks for job in jobs) > MOST_WAITING:
        raise Refused(
            f"{state.tasks.n:,} tasks are known already, {MOST_WAITING:,} at most: wait until some have ended"
        )
    return facts


def repeated(state: State, key: str, digest: str) -> int | None:
    """Find the first job that was submitted under a key before; None if there is none."""
    first = state.index.keys.get(key) if key else None
    if first is not None and state.index.specs[first].digest != digest:
        raise Conflict(f"this key was used for another submission, job {first}: use a new one for a new job")
    return first


def check_job(state: State, job: Job, limits: bool = True) -> None:
    """Refuse a job that cannot be one; with `limits`, also where those of its queues could never let it start.

    A refusal begins with the key of the request that it is about, for which commands say the option.
    """
    if not 1 <= job.tasks <= MOST_TASKS:
        raise Refused(f"tasks: {job.tasks}: use a number from 1 to {MOST_TASKS:,}")
    if not any(job.demand.values()):
        raise Refused("demand: is empty: ask for something of some resource, such as cpu")
    unknown = sorted(set(job.demand) - set(state.resources))
    if unknown:
        raise Refused(
            f"demand: {unknown[0]}: no node has any: there is {', '.join(sorted(state.resources)) or 'nothing yet'}"
        )
    if job.gang and any(amount * job.tasks >= LARGEST for amount in job.demand.values()):
        raise Refused(f"tasks: a gang of {job.tasks} such tasks asks for more than can be counted: use fewer")
    if not -1_000_000 <= job.priority <= 1_000_000:
        raise Refused(f"priority: {job.priority}: use a number from -1000000 to 1000000")
    if not 0 <= job.retries <= 100:
        raise Refused(f"retries: {job.retries}: use a number from 0 to 100")
    if job.at_most is not None and not 1 <= job.at_most <= MOST_TASKS:
        raise Refused(f"at_most: {job.at_most}: use a number from 1 to {MOST_TASKS:,}")
    if job.at_most is not None and job.gang:
        raise Refused("at_most: a gang starts all its tasks at once: leave out how many may run at most")
    if job.time_limit is not None and not 0 < job.time_limit <= 10**9:
        raise Refused(f"time_limit: {job.time_limit:g} seconds: use more than 0, and at most {10**9}")
    for after in job.after:
        try:
            job_row(state, after.job)
        except Unknown as error:
            raise Unknown(f"after: {error}") from None
    _check_size(state, job)
    for name in path_to_root(job.queue):
        if state.spec_of(name).draining:
            raise Refused(f"queue {state.called(name)!r} is draining: it takes no more jobs")
        limit = state.spec_of(name).limit
        times = job.tasks if job.gang else 1
        if not limits or (job.revocable and state.settings.revoke):
            continue  # it may go above limits
        for resource, most in limit.items():
            if job.demand.get(resource, 0) * times > most:
                asked = format_quantity(resource, job.demand[resource] * times)
                raise Refused(
                    f"demand: {resource}: {asked}{' at once' if times > 1 else ''} is over the limit of "
                    f"{format_quantity(resource, most)} of queue {state.called(name)!r}: it could never start"
                )


def _check_size(state: State, job: Job) -> None:
    """Refuse a task that is larger than the nearest of its queue and those above it lets one be."""
    said = ((name, state.spec_of(name).largest_task) for name in path_to_root(job.queue))
    name, most = next(((name, most) for name, most in said if most is not None), ("", {}))
    for resource, amount in job.demand.items():
        if amount > most.get(resource, amount):
            asked, largest = format_quantity(resource, amount), format_quantity(resource, most[resource])
            raise Refused(
                f"demand: {resource}: {asked} for a task, and the largest in queue {state.called(name)!r} may have {largest}: "
                "ask for less, with more tasks"
            )


def with_usual(state: State, job: Job) -> Job:
    """A job that asks for some of each of `USUAL` that a node has: what is not asked for would be neither limited nor counted."""
    n = state.nodes.n
    there = {name for name, column in zip(state.resources, state.nodes.capacity[:n].T, strict=False) if column.any()}
    more = {name: amount for name, amount in USUAL.items() if name in there and not job.demand.get(name)}
    return replace(job, demand={**job.demand, **more})


def too_large(state: State, job: Job) -> str | None:
    """Say why no node that is up could hold a task of the job, or all together its gang, even empty; None where they could."""
    n = state.nodes.n
    demand = np.array([job.demand.get(name, 0) for name in state.resources], np.int64)
    if not demand.any():  # what asks for nothing is refused for that
        return None
    wanted = tuple((label, tuple(values)) for label, values in job.on.items())
    will_do = np.array([meets(node.labels, wanted) for node in state.cluster.specs], np.bool_)
    capacity = state.nodes.capacity[:n][state.nodes.up[:n] & will_do]
    if job.on and not len(capacity):
        labels = " ".join(f"{label}={'|'.join(values)}" for label, values in wanted)
        return f"no node has {labels}: the job waits for one to join"
    such = " with its labels" if job.on else ""
    room = tasks_that_fit(capacity, demand)
    if room >= (job.tasks if job.gang else 1):
        return None
    if room:
        return (
            f"all nodes{such} together could hold {room} tasks of {format_quantities(job.demand)} at once, not the {job.tasks} "
            "of this gang: the job waits for more to join"
        )
    return f"no node{such} is large enough for {format_quantities(job.demand)}: the job waits for one to join"


def doubt(state: State, job: Job) -> str | None:
    """What whoever submits a job should know; None where there is nothing.

    It can never start as things are, or goes after one in a strict leaf that cannot; or asks for bytes where more was meant.
    """
    found = [doubt_about_memory(job), never_starts(state, job) or _behind_one_that_never_starts(state, job)]
    return "; ".join(filter(None, found)) or None


def never_starts(state: State, job: Job) -> str | None:
    """Say why a job could never start, as things are, and what it waits for; None where it could."""
    demand = np.array([job.demand.get(name, 0) for name in state.resources], np.int64)
    bound = bound_over(state, job.queue, demand, job.tasks if job.gang else 1, job.revocable)
    return too_large(state, job) or (bound and f"{bound.text}: the job waits until it may have more")


def _behind_one_that_never_starts(state: State, job: Job) -> str | None:
    """Say that a job waits behind one that can never start, where nobody passes the first; None where it does not."""
    leaf = state.tree.rows.get(job.queue, NONE)
    first = stopped_for_ever(state, leaf, job.priority, state.index.last + 1) if leaf != NONE else NONE
    if first == NONE:
        return None
    number, name, bound = int(state.jobs.id[first]), state.called(job.queue), over_bound(state, first)
    before = f"queue {name} is strict, and job {number}, which goes first there,"
    if bound is not None:
        return f"{before} can never start ({bound.text}): the job waits until that one is cancelled, or may have more"
    return (
        f"{before} is too large for all nodes that take tasks: the job waits until that one is cancelled, or more join"
    )


def doubt_about_memory(job: Job) -> str | None:
    """Say that a job asks for bytes, where more was meant most likely; None where it does not."""
    memory = job.demand.get("memory", 0)
    if 0 < memory < LEAST_MEMORY:
        return f"memory: {memory} is {memory} bytes for each task: was {memory}Mi or {memory}Gi meant?"
    return None


def cancel(
    state: State, job: int, indices: Sequence[int] | None, now: float, only_waiting: bool = False
) -> JobCancelled | None:
    """Cancel a job, or some of its tasks; None where nothing is left to cancel.

    With `only_waiting`, tasks that were placed already go on.
    """
    row = job_row(state, job)
    count = int(state.jobs.tasks[row])
    wrong = [i for i in indices or () if not 0 <= i < count]
    if wrong:
        raise Refused(f"job {job} has no task {wrong[0]}: its tasks are 0 to {count - 1}")
    first = state.jobs.first[row]
    chosen = first + (np.arange(count) if indices is None else np.asarray(indices, np.int64))
    status = state.tasks.status[chosen]
    cancellable = np.isin(status, (WAITING,) if only_waiting else (WAITING, PLACED, RUNNING))
    if not cancellable.any():
        return None
    if indices is None and not only_waiting:
        return JobCancelled(at=now, id=job)
    return JobCancelled(at=now, id=job, indices=np.unique(chosen[cancellable] - first).tolist())


def unfinished(state: State, queue: str, user: str | None) -> list[int]:
    """The jobs that have not ended, of a queue and those below it; of one user, if named. None that tells how others end."""
    live = np.isnan(state.jobs.finished_at[: state.jobs.n]) & (state.jobs.id[: state.jobs.n] != NONE)
    live &= np.isin(state.jobs.queue[: state.jobs.n], rows_below(state, queue))
    found = state.jobs.id[: state.jobs.n][live].tolist()
    specs = state.index.specs
    return [job for job in found if not specs[job].note and (user is None or specs[job].user == user)]


def rows_below(state: State, queue: str) -> list[int]:
    """The rows of a queue and of those below it; refuses one that there is not."""
    name = queue.strip("/")
    if name not in state.tree.rows and settings_for(name, state.tree.declared) is None:
        raise Unknown(f"there is no queue {queue!r}: choose one of {some(sorted(declared_leaves(state)))}")
    return [row for path, row in state.tree.rows.items() if name in path_to_root(path)]


def hold(state: State, job: int, now: float) -> JobHeld | None:
    """Keep the tasks of a job that wait from starting; None where it is held already."""
    row = job_row(state, job)
    if not JOB.allows("held", state.job_status(row)) or state.jobs.waiting[row] == 0:
        raise Refused(f"job {job} has no task that waits: there is nothing to hold")
    return None if state.jobs.held[row] else JobHeld(at=now, id=job)


def release(state: State, job: int, now: float) -> JobReleased | None:
    """Undo :func:`hold`; None where it is not held."""
    return JobReleased(at=now, id=job) if state.jobs.held[job_row(state, job)] else None


def edit(state: State, job: int, said: JobEdited) -> JobEdited | None:
    """Have a job ask for something else; None where it asks for that already. What `said` names a queue must be a leaf."""
    row, spec = job_row(state, job), state.index.specs[job]
    edited = said.edited(spec)
    if edited == spec:
        return None
    if not JOB.allows("edited", state.job_status(row)):
        raise Refused(f"job {job} has ended: `fairlead rerun {job}` runs it again")
    changed = [name for name in FIXED_WHILE_RUNNING if getattr(edited, name) != getattr(spec, name)]
    if changed and state.jobs.holding[row]:
        names = {"on": "constraint", "time_limit": "time limit"}
        what = " and ".join(names.get(name, name) for name in changed)
        raise Refused(f"job {job} runs: its {what} can be changed while all of it waits; others can at any time")
    check_job(state, replace(edited, after=[]))  # what it came after may be forgotten since
    return said


def again(state: State, number: int, failed: bool) -> Job:
    """What a job was, to be submitted once more: all of it, or the tasks that failed, which keep the indices that they had.

    What it came after is over, or not waited for again.
    """
    row, job = job_row(state, number), state.index.specs[number]
    if job.framework:
        raise Refused(f"job {number} is a task of framework {job.framework}: only that can launch it again")
    if job.work.call is not None:
        raise Refused(f"job {number} is calls of a Python program: only that can make them again")
    if job.work.export:
        raise Refused(
            f"job {number} had more of the environment, which was kept until it ended only: submit it anew from where that is"
        )
    tasks, work = job.tasks, replace(job.work, input="")
    if failed:
        first = int(state.jobs.first[row])
        chosen = np.flatnonzero(state.tasks.status[first : first + tasks] == FAILED).tolist()
        if not chosen:
            raise Refused(f"no task of job {number} has failed: leave --failed away to run all of it again")
        tasks, work = len(chosen), replace(work, indices=[work.indices[k] if work.indices else k for k in chosen])
    return replace(job, tasks=tasks, work=work, after=[], key="", digest="", held=False, note=False)


def job_row(state: State, job: int) -> int:
    """The row of a job; refuses one that is not known (any more)."""
    rows = state.job_rows(np.array([job], np.int64))
    if rows[0] == NONE:
        forgotten = "; finished jobs are forgotten after a while" if 0 < job <= state.index.last else ""
        raise Unknown(f"there is no job {job}{forgotten}")
    return int(rows[0])


def configure(state: State, queues: Sequence[Queue], settings: Settings, now: float) -> Configured:
    """Accept a new queue tree, or refuse one that would leave jobs without a leaf of theirs."""
    inner = inner_names(queue.name for queue in queues)
    live = state.jobs.queue[: state.jobs.n][np.isnan(state.jobs.finished_at[: state.jobs.n])]
    for row in np.unique(live):
        name = state.tree.names[row]
        if name in inner:
            raise Refused(
                f"queue {name!r} has jobs and cannot get queues below it: wait until they end, or cancel them"
            )
    return Configured(at=now, queues=list(queues), settings=settings)


def drain(state: State, node: str, now: float) -> NodeDrained:
    """Let a node finish what it has and take no more."""
    _known_node(state, node)
    return NodeDrained(at=now, node=node)


def resume(state: State, node: str, now: float) -> NodeResumed:
    """Undo :func:`drain`."""
    _known_node(state, node)
    return NodeResumed(at=now, node=node)


def forget(state: State, node: str, now: float) -> NodeForgotten:
    """Tell no more of a node that is lost."""
    _known_node(state, node)
    if state.nodes.up[state.cluster.rows[node]]:
        raise Refused(
            f"node {node!r} is there: it can be forgotten when it is lost; `fairlead drain {node}` empties it"
        )
    return NodeForgotten(at=now, node=node)


def _known_node(state: State, node: str) -> None:
    there = [name for name, row in state.cluster.rows.items() if not state.nodes.forgotten[row]]
    if node not in there:
        raise Unknown(f"there is no node {node!r}: there is {', '.join(there[:10])}")

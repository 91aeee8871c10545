"""Requests of people, checked against the state and turned into facts, or refused with reason and remedy."""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from fairlead.model.cards import named
from fairlead.model.quantity import LARGEST, LEAST_MEMORY, format_quantities, format_quantity
from fairlead.model.specs import ROOT, USERS, Job, Node, Queue, Settings, ancestors, inner_names, path_to_root, settings_for
from fairlead.scheduler.cluster import meets, tasks_that_fit, why_closed
from fairlead.scheduler.facts import (
    FIXED_WHILE_RUNNING,
    Configured,
    Fact,
    JobCancelled,
    JobEdited,
    JobHeld,
    JobReleased,
    JobSubmitted,
    NodeDrained,
    NodeForgotten,
    NodeJoined,
    NodeResumed,
)
from fairlead.scheduler.feasibility import blocked_forever_by, bound_over, over_bound
from fairlead.scheduler.framework_index import JOBS, own_queue
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import FAILED, JOB, PLACED, RUNNING, WAITING
from fairlead.scheduler.tables import NONE

MOST_TASKS = 1_000_000
"""Maximum tasks per job."""
MOST_WAITING = 10_000_000
"""Maximum tasks known to the scheduler."""
MOST_LEAVES = 10_000
"""Maximum leaf queues created for users."""
DEFAULT_DEMAND = {"cpu": 1000, "memory": 2**30}
"""Default demand of a task, in base units, if tasks may only use what they asked for."""


class Refused(ValueError):
    """A request that cannot be granted; the message gives reason and remedy."""


class Unknown(Refused):
    """A request about an unknown job, queue or node."""


class Conflict(Refused):
    """A request that contradicts an earlier one."""


def leaf_for(state: State, queue: str | None, user: str) -> str:
    """Find the leaf queue of a job.

    Parameters
    ----------
    queue : str or None
        As requested. For an inner queue with a ``*`` below it, the user's own leaf there. None: the only declared leaf, or else
        the user's own if there is one place for those.
    user : str
        Who submits.
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
    """Return a leaf queue; for one that is also a role of frameworks, its leaf for jobs."""
    is_role = name not in state.tree.inner and state.tree.rows.get(name) in state.tree.children
    return f"{own_queue(name)}/{JOBS}" if is_role else name


def declared_leaves(state: State) -> list[str]:
    """Return the declared leaf queues, with ``*`` for those of users."""
    return sorted(name for name in state.tree.declared if name not in state.tree.inner)


def some(names: list[str]) -> str:
    """Return queue names for a message: at most ten."""
    return ", ".join(name.replace(USERS, "<any name>") for name in names[:10]) + ", ..." * (len(names) > 10)


def submit(state: State, jobs: Sequence[Job], now: float) -> list[JobSubmitted]:
    """Accept jobs into the leaf queues that they name (see :func:`leaf_for`): all, or none.

    If a leaf became a role of frameworks meanwhile, its leaf for jobs is used.
    """
    facts = []
    for number, job in enumerate(jobs):
        moved = replace(job, queue=leaf_beside_frameworks(state, job.queue))
        try:
            if moved.queue in state.tree.inner:
                raise Refused(f"{job.queue!r} is no longer a leaf queue: submit again")
            check_job(state, moved)
        except Refused as refused:
            raise type(refused)(f"jobs.{number}: {refused}") if len(jobs) > 1 else refused from None
        facts.append(JobSubmitted(at=now, id=state.index.last + 1 + number, job=moved))
    if state.tasks.n + sum(job.tasks for job in jobs) > MOST_WAITING:
        raise Refused(f"{state.tasks.n:,} tasks are known already, {MOST_WAITING:,} at most: wait until some have ended")
    return facts


def repeated(state: State, key: str, digest: str) -> int | None:
    """Return the first job submitted under an idempotency key, if any."""
    first = state.index.keys.get(key) if key else None
    if first is not None and state.index.specs[first].digest != digest:
        raise Conflict(f"this key was used for another submission, job {first}: use a new one for a new job")
    return first


def check_job(state: State, job: Job, limits: bool = True) -> None:
    """Refuse an invalid job; with `limits`, also one that its queues' limits could never let start.

    The message begins with the request's key, which commands replace by the option.
    """
    if not 1 <= job.tasks <= MOST_TASKS:
        raise Refused(f"tasks: {job.tasks}: use a number from 1 to {MOST_TASKS:,}")
    if not any(job.demand.values()):
        raise Refused("demand: is empty: ask for something of some resource, such as cpu")
    unknown = sorted(set(job.demand) - set(state.resources))
    if unknown:
        raise Refused(f"demand: {unknown[0]}: no node has any: there is {', '.join(sorted(state.resources)) or 'nothing yet'}")
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
    check_queues(state, job)
    for name in path_to_root(job.queue):
        limit = state.spec_of(name).limit
        times = job.tasks if job.gang else 1
        if not limits or (job.revocable and state.settings.revoke):
            continue  # it may exceed limits
        for resource, most in limit.items():
            if job.demand.get(resource, 0) * times > most:
                asked = format_quantity(resource, job.demand[resource] * times)
                raise Refused(
                    f"demand: {resource}: {asked}{' at once' if times > 1 else ''} is over the limit of "
                    f"{format_quantity(resource, most)} of queue {state.display_name(name)!r}: it could never start"
                )


def check_queues(state: State, job: Job) -> None:
    """Refuse a job of a draining queue, and a task larger than `largest_task` of its queue or the nearest above with one."""
    for name in path_to_root(job.queue):
        if state.spec_of(name).draining:
            raise Refused(f"queue {state.display_name(name)!r} is draining: it takes no more jobs")
    declared = ((name, state.spec_of(name).largest_task) for name in path_to_root(job.queue))
    name, most = next(((name, most) for name, most in declared if most is not None), ("", {}))
    for resource, amount in job.demand.items():
        if amount > most.get(resource, amount):
            asked, largest = format_quantity(resource, amount), format_quantity(resource, most[resource])
            raise Refused(
                f"demand: {resource}: {asked} for a task, and queue {state.display_name(name)!r} allows {largest} at most: "
                "ask for less, with more tasks"
            )


def with_default_demand(state: State, job: Job) -> Job:
    """Add each missing resource of DEFAULT_DEMAND that a node has; else it would be neither limited nor counted."""
    n = state.nodes.n
    there = {name for name, column in zip(state.resources, state.nodes.capacity[:n].T, strict=False) if column.any()}
    more = {name: amount for name, amount in DEFAULT_DEMAND.items() if name in there and not job.demand.get(name)}
    return replace(job, demand={**job.demand, **more})


def too_large(state: State, job: Job) -> str | None:
    """Return why no node that is up could hold a task, or all nodes the gang, even empty; else None."""
    n = state.nodes.n
    demand = np.array([job.demand.get(name, 0) for name in state.resources], np.int64)
    if not demand.any():  # refused elsewhere
        return None
    wanted = state.cluster.constraints_of(job)
    will_do = np.array([meets(node.labels, wanted) for node in state.cluster.specs], np.bool_)
    capacity = state.nodes.capacity[:n][state.nodes.up[:n] & will_do]
    if wanted and not len(capacity):
        return f"{no_such_node(state, job)}: the job waits for one to join"
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


def no_such_node(state: State, job: Job) -> str:
    """Say why no node meets the constraints of a job."""
    labels = " and ".join(f"{label}={'|'.join(values)}" for label, values in job.on.items())
    return "; ".join(closed_nodes(state, job)) or f"no node has {labels}"


def closed_nodes(state: State, job: Job) -> list[str]:
    """Say which nodes with the labels of a job are closed to its user, and why: the first few."""
    if not (job.user in state.cluster.closed_to or state.cluster.only_to):
        return []
    wanted = tuple((label, tuple(values)) for label, values in job.on.items())
    nodes = zip(state.cluster.specs, state.nodes.up, strict=False)
    there = [(spec.name, why_closed(spec.labels, job.user)) for spec, up in nodes if up and meets(spec.labels, wanted)]
    found = [f"node {name} {why}" for name, why in there if why]
    return found[:3] + [f"{len(found) - 3} other nodes are closed to {job.user}, too"] * (len(found) > 3)


def doubt(state: State, job: Job) -> str | None:
    """Return what the submitter of a job should know, if anything.

    It can never start as configured, waits behind such a job in a strict leaf, or probably lacks a unit of memory.
    """
    found = [doubt_about_memory(job), never_starts(state, job) or _blocked_note(state, job)]
    return "; ".join(filter(None, found)) or None


def never_starts(state: State, job: Job) -> str | None:
    """Return why a job can never start as configured and what it waits for, if so."""
    demand = np.array([job.demand.get(name, 0) for name in state.resources], np.int64)
    bound = bound_over(state, job.queue, demand, job.tasks if job.gang else 1, job.revocable)
    return too_large(state, job) or (bound and f"{bound.text}: the job waits until the bound is raised")


def _blocked_note(state: State, job: Job) -> str | None:
    """Return a note if a job waits behind a never-starting job of a strict leaf."""
    leaf = state.tree.rows.get(job.queue, NONE)
    first = blocked_forever_by(state, leaf, job.priority, state.index.last + 1) if leaf != NONE else NONE
    if first == NONE:
        return None
    number, name, bound = int(state.jobs.id[first]), state.display_name(job.queue), over_bound(state, first)
    before = f"queue {name} is strict, and job {number}, which goes first there,"
    if bound is not None:
        return f"{before} can never start ({bound.text}): the job waits until that job is cancelled or its limit is raised"
    return f"{before} is too large for all nodes that take tasks: the job waits until that job is cancelled or more nodes join"


def doubt_about_memory(job: Job) -> str | None:
    """Return a note if a job's memory probably lacks a unit."""
    memory = job.demand.get("memory", 0)
    if 0 < memory < LEAST_MEMORY:
        return f"memory: {memory} is {memory} bytes for each task: was {memory}Mi or {memory}Gi meant?"
    return None


def cancel(state: State, job: int, indices: Sequence[int] | None, now: float, only_waiting: bool = False) -> JobCancelled | None:
    """Cancel a job, or some of its tasks; None if nothing is left to cancel.

    With `only_waiting`, placed tasks continue.
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


def rows_below(state: State, queue: str) -> list[int]:
    """Return the rows of a queue and those below it; raises Unknown."""
    name = queue.strip("/")
    if name not in state.tree.rows and settings_for(name, state.tree.declared) is None:
        raise Unknown(f"there is no queue {queue!r}: choose one of {some(sorted(declared_leaves(state)))}")
    return [row for path, row in state.tree.rows.items() if name in path_to_root(path)]


def hold(state: State, job: int, now: float) -> JobHeld | None:
    """Keep the waiting tasks of a job from starting; None if it is held already."""
    row = job_row(state, job)
    if not JOB.allows("held", state.job_status(row)) or state.jobs.waiting[row] == 0:
        raise Refused(f"job {job} has no task that waits: there is nothing to hold")
    return None if state.jobs.held[row] else JobHeld(at=now, id=job)


def release(state: State, job: int, now: float) -> JobReleased | None:
    """Undo :func:`hold`; None if it is not held."""
    return JobReleased(at=now, id=job) if state.jobs.held[job_row(state, job)] else None


def edit(state: State, job: int, changes: JobEdited) -> JobEdited | None:
    """Change what a job asks for; None if nothing changes. A queue in `changes` must be a leaf."""
    row, spec = job_row(state, job), state.index.specs[job]
    edited = changes.edited(spec)
    if edited == spec:
        return None
    if not JOB.allows("edited", state.job_status(row)):
        raise Refused(f"job {job} has ended: `fairlead rerun {job}` runs it again")
    differ = [name for name in FIXED_WHILE_RUNNING if getattr(edited, name) != getattr(spec, name)]
    if differ and state.jobs.holding[row]:
        names = {"on": "constraint", "time_limit": "time limit"}
        what = " and ".join(names.get(name, name) for name in differ)
        raise Refused(f"job {job} runs: its {what} can be changed while all of it waits; others can at any time")
    check_job(state, replace(edited, after=[]))  # its dependencies may be forgotten
    return changes


def again(state: State, number: int, failed: bool) -> Job:
    """Return a job to submit again: all of it, or only the failed tasks, which keep their indices.

    Its dependencies are dropped.
    """
    row, job = job_row(state, number), state.index.specs[number]
    if job.framework:
        raise Refused(f"job {number} is a task of framework {job.framework}: only it can launch the task again")
    if job.work.call is not None:
        raise Refused(f"job {number} is calls of a Python program: only that program can make them again")
    if job.work.export:
        raise Refused(
            f"job {number} used an environment kept only until it ended: submit it again from a shell with that environment"
        )
    tasks, work = job.tasks, replace(job.work, input="")
    if failed:
        first = int(state.jobs.first[row])
        chosen = np.flatnonzero(state.tasks.status[first : first + tasks] == FAILED).tolist()
        if not chosen:
            raise Refused(f"no task of job {number} has failed: leave --failed away to run all of it again")
        tasks, work = len(chosen), work.with_indices([work.known_as(k) for k in chosen])
    return replace(job, tasks=tasks, work=work, after=[], key="", digest="", held=False, note=False)


def job_row(state: State, job: int) -> int:
    """Return the row of a job; raises Unknown."""
    rows = state.job_rows(np.array([job], np.int64))
    if rows[0] == NONE:
        forgotten = "; finished jobs are forgotten after a while" if 0 < job <= state.index.last else ""
        raise Unknown(f"there is no job {job}{forgotten}")
    return int(rows[0])


def configure(state: State, queues: Sequence[Queue], settings: Settings, now: float) -> Configured:
    """Accept a new queue tree, unless a queue with jobs would no longer be a leaf."""
    inner = inner_names(queue.name for queue in queues)
    live = state.jobs.queue[: state.jobs.n][np.isnan(state.jobs.finished_at[: state.jobs.n])]
    for row in np.unique(live):
        name = state.tree.names[row]
        if name in inner:
            raise Refused(f"queue {name!r} has jobs, so it must stay a leaf: wait until they end, or cancel them")
    return Configured(at=now, queues=list(queues), settings=settings)


def change_nodes(state: State, nodes: Sequence[Node], now: float) -> list[Fact]:
    """Accept other specs of nodes that are up. One that drains keeps draining."""
    facts: list[Fact] = []
    total = dict(zip(state.resources, state.cluster.total.tolist(), strict=True))
    for node in nodes:
        _known_node(state, node.name)
        row = state.cluster.rows[node.name]
        for name in {*node.capacity, *state.cluster.specs[row].capacity}:
            more = node.capacity.get(name, 0) - state.cluster.specs[row].capacity.get(name, 0)
            total[name] = total.get(name, 0) + more
            if total[name] >= LARGEST:
                raise Refused(f"node {node.name!r}: with it there is more {name} than can be counted: write less")
        facts.append(NodeJoined(at=now, node=node))
        if state.nodes.draining[row]:
            facts.append(NodeDrained(at=now, node=node.name))
    return facts


def drain(state: State, node: str, now: float, cards: Sequence[int] = (), there: Sequence[int] = ()) -> NodeDrained:
    """Drain a node, or some of the cards `there`: it finishes what it has and takes no more."""
    _known_node(state, node)
    return NodeDrained(at=now, node=node, cards=_known_cards(node, cards, there))


def resume(state: State, node: str, now: float, cards: Sequence[int] = (), there: Sequence[int] = ()) -> NodeResumed:
    """Undo :func:`drain`."""
    _known_node(state, node)
    return NodeResumed(at=now, node=node, cards=_known_cards(node, cards, there))


def forget_cards(state: State, node: str, there: Sequence[int] | None, now: float) -> list[Fact]:
    """Undo the draining of cards that a node has no more; `there` are those it has, None if unknown.

    Comes before the fact that the node joined with fewer, as each drained card takes a GPU from its capacity.
    """
    row = state.cluster.rows.get(node)
    if row is None or there is None:
        return []
    gone = sorted({*state.drained_cards(row)} - {*there})
    return [NodeResumed(at=now, node=node, cards=gone)] if gone else []


def _known_cards(node: str, cards: Sequence[int], there: Sequence[int]) -> list[int]:
    unknown = sorted({*cards} - {*there})
    if unknown:
        has = ", ".join(map(str, there)) or "none"
        raise Unknown(f"node {node!r} has no {named(unknown)}: it has {has}")
    return sorted({*cards})


def forget(state: State, node: str, now: float) -> NodeForgotten:
    """Forget a lost node."""
    _known_node(state, node)
    if state.nodes.up[state.cluster.rows[node]]:
        raise Refused(f"node {node!r} is up: it can be forgotten when it is lost; `fairlead drain {node}` empties it")
    return NodeForgotten(at=now, node=node)


def _known_node(state: State, node: str) -> None:
    there = [name for name, row in state.cluster.rows.items() if not state.nodes.forgotten[row]]
    if node not in there:
        raise Unknown(f"there is no node {node!r}: there is {', '.join(there[:10])}")

"""Requests of people, checked against the state and turned into facts, or refused with reason and remedy."""

from collections.abc import Mapping, Sequence, Set
from math import isnan
from typing import Literal

import numpy as np
from msgspec.structs import replace

from fairlead.failure import Failure, failing
from fairlead.model import specs
from fairlead.model.cards import named
from fairlead.model.quantity import LARGEST, LEAST_MEMORY, format_quantities, format_quantity
from fairlead.model.specs import JOBS, ROOT, USERS, Job, Node, Queue, Settings, inner_names, parent_of, path_to_root, settings_for
from fairlead.scheduler import facts
from fairlead.scheduler.cluster import meets, needs_newest, tasks_that_fit, why_closed
from fairlead.scheduler.feasibility import blocked_forever_by, bound_over, over_bound
from fairlead.scheduler.framework_index import own_queue
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import FAILED, JOB, RUNNING, WAITING
from fairlead.scheduler.tables import NONE

MOST_TASKS = 1_000_000
"""Maximum tasks per job."""
MOST_WAITING = 10_000_000
"""Maximum tasks known to the scheduler."""
MOST_LEAVES = 10_000
"""Maximum leaf queues created for users."""
MOST_BEFORE = 10_000
"""Maximum jobs that one job comes after."""
MOST_AFTER = 100_000
"""Maximum dependencies of jobs that are submitted together."""
MOST_PAIRED = 100_000
"""Maximum tasks of a job that each wait for the task of the same index of another."""
MOST_MEMBERS = 10_000
"""Maximum machines that may connect as nodes."""
MOST_NODE_TOKENS = 1000
"""Maximum unused tokens for nodes."""
DEFAULT_DEMAND = {"cpu": 1000, "memory": 2**30}
"""Default demand of a task, in base units, if tasks may only use what they asked for."""


Dependency = Sequence[tuple[int | str, Literal["success", "failure", "end", "start", "index"]]]
"""What a job comes after: jobs by number or name, and how."""


class Refused(Failure, ValueError):
    """A request that cannot be granted; the message gives reason and remedy."""


class Unknown(Refused):
    """A request about an unknown job, queue or node."""


class Invalid(Refused):
    """A request that no state of the cluster makes right."""


class Conflict(Refused):
    """A request that contradicts an earlier one."""


def leaf_for(state: State, queue: str | None, user: str) -> str:
    """Find the leaf queue of a job.

    queue : as requested. For an inner queue with a ``*`` below it, the user's own leaf there. None: the only declared leaf, or
        else the user's own if there is one place for those.
    user : who submits
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
        below = ", ".join(sorted(n for n in declared if parent_of(n) == name))
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


def submit(state: State, jobs: Sequence[Job], now: float, after: Sequence[Dependency] = ()) -> list[facts.JobSubmitted]:
    """Accept jobs into the leaf queues that they name (see :func:`leaf_for`): all, or none. For `after` see :func:`take`."""
    return [take(state, [accept(state, job) for job in jobs], now, after)]


def accept(state: State, job: Job) -> Job:
    """Check a job. If its leaf became a role of frameworks meanwhile, return it with that role's leaf for jobs."""
    moved = replace(job, queue=leaf_beside_frameworks(state, job.queue))
    if moved.queue in state.tree.inner:
        raise Refused(f"{job.queue!r} is no longer a leaf queue: submit the job again")
    if moved.retry_delay and not moved.retries:
        raise Invalid("retry_delay: has no effect without retries: give their number")
    check_job(state, moved)
    return moved


def take(state: State, jobs: Sequence[Job], now: float, after: Sequence[Dependency] = ()) -> facts.JobSubmitted:
    """Return the fact of jobs that were accepted since the last configuration; see :func:`with_dependencies`."""
    first, *rest = with_dependencies(state, jobs, after)
    check_room(state, sum(job.tasks for job in jobs))
    return facts.JobSubmitted(at=now, id=state.index.last + 1, job=first, more=rest)


def check_room(state: State, tasks: int) -> None:
    """Refuse more tasks than can be known."""
    if state.tasks.n + tasks > MOST_WAITING:
        raise Refused(f"{state.tasks.n:,} tasks are known already, {MOST_WAITING:,} at most: wait until some have ended")


def with_dependencies(state: State, jobs: Sequence[Job], after: Sequence[Dependency] = ()) -> list[Job]:
    """Return jobs that are submitted together with what they come after, which may be gone since they were accepted.

    `after` has what each job comes after, by number or name; by default, that is in the jobs.
    """
    by_name = {other for each in after for other, _ in each if isinstance(other, str)}
    named, new, count = _Named(state, by_name | {job.name for job in jobs if job.singleton}), dict[int, Job](), 0
    for place, job in enumerate(jobs):
        number, moved = state.index.last + 1 + place, job
        if job.after or job.singleton or job.retry_delay or (after and after[place]):
            try:
                moved = _with_dependencies(job, after[place], named) if after else job
                if moved.singleton:
                    before = named.unfinished.get(job.line, [])
                    moved = replace(moved, after=[*moved.after, *(specs.After(other, "end") for other in before)])
                count += len(moved.after)
                if count > MOST_AFTER:
                    raise Refused(f"after: more than {MOST_AFTER:,} for the jobs of a request: split it, or use fewer")
                _check_waits(state, moved, new)
            except Refused as refused:
                raise type(refused)(f"jobs.{place}: {refused}") if len(jobs) > 1 else refused from None
        new[number] = moved
        named.add(number, moved)
    return [*new.values()]


class _Named:
    """Jobs by what others come after, as far as it is among `names`.

    unfinished : by user and name, or group; and by the line of singletons, those that are none
    newest : the last one by user and name, or group, whether it has ended or not
    """

    def __init__(self, state: State, names: Set[str]) -> None:
        self._names = names - {""}
        self.unfinished: dict[tuple[str, str] | str, list[int]] = {}
        self.newest: dict[tuple[str, str], int] = {}
        for number, job in state.index.specs.named(self._names) if self._names else ():
            self.add(number, job)
        for key, numbers in self.unfinished.items():
            rows = state.job_rows(np.array(numbers, np.int64))
            self.unfinished[key] = [numbers[k] for k in np.flatnonzero(np.isnan(state.jobs.finished_at[rows])).tolist()]

    def add(self, number: int, job: Job) -> None:
        """Add a job that comes after those that are there."""
        if job.name not in self._names and job.group not in self._names:
            return
        for name in {job.name, job.group} & self._names:
            self.unfinished.setdefault((job.user, name), []).append(number)
            self.newest[job.user, name] = number
        if not job.singleton:
            self.unfinished.setdefault(job.line, []).append(number)


def repeated(state: State, key: str, digest: str) -> int | None:
    """Return the first job submitted under an idempotency key, if any."""
    first = state.index.keys.get(key) if key else None
    if first is not None and state.index.specs[first].digest != digest:
        raise Conflict(f"this key was used for another submission, job {first}: use a new one for a new job")
    return first


def _with_dependencies(job: Job, after: Dependency, named: _Named) -> Job:
    """Return a job that comes after others, by number, or by name or group: its user's unfinished ones, or the newest."""
    found = []
    for other, how in after:
        if isinstance(other, int):
            found.append(specs.After(other, how))
            continue
        newest = named.newest.get((job.user, other))
        if newest is None:
            raise Unknown(f"after: you have no job of the name or group {other!r}: `fairlead jobs` lists them")
        found += [specs.After(number, how) for number in named.unfinished[job.user, other] or [newest]]
    return replace(job, after=found)


def _check_waits(state: State, job: Job, new: Mapping[int, Job]) -> None:
    """Refuse a job that waits for what cannot happen; `new` jobs are submitted together with it, before."""
    if not 0 <= job.retry_delay <= 86400:
        raise Invalid(f"retry_delay: {job.retry_delay:g} seconds: use at most a day")
    if job.singleton and not job.name:
        raise Invalid("singleton: needs a name: it waits for the earlier jobs of that name")
    if len(job.after) > MOST_BEFORE:
        raise Refused(f"after: {len(job.after):,} jobs: at most {MOST_BEFORE:,}")
    for after in job.after:
        if after.job not in new:
            with failing("after: ", Unknown, to=Unknown):
                job_row(state, after.job)
    paired = {after.job for after in job.after if after.how == "index"}
    if not paired:
        return
    if len(paired) > 1 or job.gang or job.tasks > MOST_PAIRED:
        raise Refused(f"after: index: for one other job, no gang, and at most {MOST_PAIRED:,} tasks")
    (number,) = paired
    other = new.get(number) or state.index.specs[number]
    places = other.work.places_of([job.work.known_as(place) for place in range(job.tasks)], other.tasks)
    if -1 in places:
        message = f"after: job {number} has no task {job.work.known_as(places.index(-1))}: index needs the same indices in both"
        raise Refused(message)


def check_job(state: State, job: Job, limits: bool = True, had: Set[str] = frozenset()) -> None:
    """Refuse an invalid job; with `limits`, also one that its queues' limits could never let start.

    A resource that it `had` before may be gone. The message begins with the request's key, which commands replace by the option.
    """
    if not 1 <= job.tasks <= MOST_TASKS:
        raise Invalid(f"tasks: {job.tasks}: use a number from 1 to {MOST_TASKS:,}")
    if not any(job.demand.values()):
        raise Invalid("demand: is empty: ask for something of some resource, such as cpu")
    there = named_resources(state)
    if unknown := sorted(job.demand.keys() - there - had):
        raise Refused(f"demand: {unknown[0]}: no node has any: there is {', '.join(sorted(there)) or 'nothing yet'}")
    if job.gang and any(amount * job.tasks >= LARGEST for amount in job.demand.values()):
        raise Invalid(f"tasks: a gang of {job.tasks} such tasks is too large to count: use fewer tasks")
    if not -1_000_000 <= job.priority <= 1_000_000:
        raise Invalid(f"priority: {job.priority}: use a number from -1000000 to 1000000")
    if not 0 <= job.retries <= 100:
        raise Invalid(f"retries: {job.retries}: use a number from 0 to 100")
    if job.at_most is not None and not 1 <= job.at_most <= MOST_TASKS:
        raise Invalid(f"at_most: {job.at_most}: use a number from 1 to {MOST_TASKS:,}")
    if job.at_most is not None and job.gang:
        raise Invalid("at_most: a gang starts all its tasks at once: omit it")
    if (job.fit == "apart" or job.led) and not job.gang:
        raise Invalid(f"{'led' if job.led else 'fit'}: only for a gang: give its number of nodes, or gang and tasks")
    if job.time_limit is not None and not 0 < job.time_limit <= 10**9:
        raise Invalid(f"time_limit: {job.time_limit:g} seconds: use more than 0, and at most {10**9}")
    check_queues(state, job)
    for name in path_to_root(job.queue):
        limit = state.tree.spec_of(name).limit
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


def named_resources(state: State) -> frozenset[str]:
    """Return the resources of a state that a node, if only a lost one, or a declared queue names; others are of earlier ones."""
    if state.named is None:
        nodes = zip(state.cluster.specs, state.nodes.forgotten, strict=False)
        of_nodes = (spec.capacity for spec, forgotten in nodes if not forgotten)
        of_queues = map(state.tree.needed_resources, state.tree.declared)
        state.named = frozenset(state.resources).intersection({name for each in (*of_nodes, *of_queues) for name in each})
    return state.named


def check_queues(state: State, job: Job) -> None:
    """Refuse a job of a draining queue, and a task larger than `largest_task` of its queue or the nearest above with one."""
    for name in path_to_root(job.queue):
        if state.tree.spec_of(name).draining:
            raise Refused(f"queue {state.display_name(name)!r} is draining: it takes no more jobs")
    declared = ((name, state.tree.spec_of(name).largest_task) for name in path_to_root(job.queue))
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
    apart = job.fit == "apart"
    room = tasks_that_fit(capacity, demand, apart)
    if room >= (job.tasks if job.gang else 1):
        return None
    if room and apart:
        each = format_quantities(job.demand)
        some = "1 node" if room == 1 else f"{room} nodes"
        return f"{some}{such} could hold a task of {each}, not {job.tasks}: the job waits for more to join"
    if room:
        return (
            f"all nodes{such} together could hold {room} tasks of {format_quantities(job.demand)} at once, not the {job.tasks} "
            "of this gang: the job waits for more to join"
        )
    return f"no node{such} is large enough for {format_quantities(job.demand)}: the job waits for one to join"


def no_such_node(state: State, job: Job) -> str:
    """Say why no node meets the constraints of a job."""
    labels = " and ".join(f"{label}={'|'.join(values)}" for label, values in job.on.items())
    return "; ".join(closed_nodes(state, job)) or (f"no node has {labels}" if labels else "no node is up")


def closed_nodes(state: State, job: Job) -> list[str]:
    """Say which nodes with the labels of a job are closed to its user, and why: the first few."""
    newest = needs_newest(job)
    if not (job.user in state.cluster.closed_to or state.cluster.only_to or newest):
        return []
    wanted = tuple((label, tuple(values)) for label, values in job.on.items())
    nodes = zip(state.cluster.specs, state.nodes.up, strict=False)
    there = [(spec.name, why_closed(spec.labels, job.user, newest)) for spec, up in nodes if up and meets(spec.labels, wanted)]
    found = [f"node {name} {why}" for name, why in there if why]
    return found[:3] + [f"{len(found) - 3} other nodes are closed to it, too"] * (len(found) > 3)


def doubt(state: State, job: Job, never: str | None = "") -> str | None:
    """Return what the submitter of a job should know, if anything; `never` is from :func:`never_starts`, empty if unknown.

    It can never start as configured, waits behind such a job in a strict leaf, prefers what no node has, or probably lacks a unit
    of memory.
    """
    never = never_starts(state, job) if never == "" else never
    found = [doubt_about_memory(job), never or _blocked_note(state, job), _preference_note(state, job)]
    return "; ".join(filter(None, found)) or None


def _preference_note(state: State, job: Job) -> str | None:
    """Return a note if no node has a label that a job prefers."""
    there = [node for node, gone in zip(state.cluster.specs, state.nodes.forgotten, strict=False) if not gone]
    none = [
        f"{label}={'|'.join(values)}"
        for label, values in job.prefer.items()
        if not any(node.labels.get(label) in values for node in there)
    ]
    return f"no node has {' and '.join(none)}, which it prefers: its tasks go to any" if none else None


def unmet_dependency(state: State, job: Job) -> tuple[int, str] | None:
    """Return a job that a job comes after and that ended otherwise than required, with both in words; None if there is none."""
    jobs = state.jobs
    for each in job.after:
        other = state.index.find(each.job)
        if other == NONE or isnan(jobs.finished_at[other]):
            continue
        success = not jobs.failed[other] and not jobs.cancelled[other]
        if each.how == ("failure" if success else "success"):
            was = "succeeded" if success else "failed" if jobs.failed[other] else "was cancelled"
            return each.job, f"which had {'to succeed' if each.how == 'success' else 'to fail'}, and {was}"
    return None


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


def cancel(
    state: State, job: int, indices: Sequence[int] | None, now: float, only_waiting: bool = False
) -> facts.JobCancelled | None:
    """Cancel a job, or some of its tasks; None if nothing is left to cancel. With `only_waiting`, placed tasks continue."""
    row = job_row(state, job)
    count = int(state.jobs.tasks[row])
    wrong = [i for i in indices or () if not 0 <= i < count]
    if wrong:
        raise Refused(f"job {job} has no task {wrong[0]}: its tasks are 0 to {count - 1}")
    first = state.jobs.first[row]
    chosen = first + (np.arange(count) if indices is None else np.asarray(indices, np.int64))
    status = state.tasks.status[chosen]
    cancellable = status == WAITING if only_waiting else status <= RUNNING
    if not cancellable.any():
        return None
    if indices is None and not only_waiting:
        return facts.JobCancelled(at=now, id=job)
    return facts.JobCancelled(at=now, id=job, indices=np.unique(chosen[cancellable] - first).tolist())


def rows_below(state: State, queue: str) -> list[int]:
    """Return the rows of a queue and those below it; raises Unknown."""
    name = queue.strip("/")
    if name not in state.tree.rows and settings_for(name, state.tree.declared) is None:
        raise Unknown(f"there is no queue {queue!r}: choose one of {some(sorted(declared_leaves(state)))}")
    return [row for path, row in state.tree.rows.items() if name in path_to_root(path)]


def hold(state: State, job: int, now: float) -> facts.JobHeld | None:
    """Keep the waiting tasks of a job from starting; None if it is held already."""
    row = job_row(state, job)
    if not JOB.allows("held", state.job_status(row)) or state.jobs.waiting[row] == 0:
        raise Refused(f"job {job} has no waiting task: there is nothing to hold")
    return None if state.jobs.held[row] else facts.JobHeld(at=now, id=job)


def release(state: State, job: int, now: float) -> facts.JobReleased | None:
    """Undo :func:`hold`; None if it is not held."""
    return facts.JobReleased(at=now, id=job) if state.jobs.held[job_row(state, job)] else None


def edit(state: State, job: int, changes: facts.JobEdited) -> facts.JobEdited | None:
    """Change what a job asks for; None if nothing changes. A queue in `changes` must be a leaf."""
    row, spec = job_row(state, job), state.index.specs[job]
    edited = changes.edited(spec)
    if edited == spec:
        return None
    if not JOB.allows("edited", state.job_status(row)):
        raise Refused(f"job {job} has ended: `fairlead rerun {job}` runs it again")
    differ = [name for name in facts.FIXED_WHILE_RUNNING if getattr(edited, name) != getattr(spec, name)]
    if differ and state.jobs.holding[row]:
        names = {"on": "constraint", "time_limit": "time limit", "begin": "time to begin"}
        what = " and ".join(names.get(name, name) for name in differ)
        raise Refused(f"job {job} is running: its {what} can be changed only while all its tasks wait")
    check_job(state, replace(edited, after=[]), had=spec.demand.keys())  # its dependencies may be forgotten
    return changes


def again(state: State, number: int, failed: bool) -> Job:
    """Return a job to submit again: all of it, or only the failed tasks, which keep their indices; of a gang, always all.

    Its dependencies, and its time to begin, are dropped.
    """
    row, job = job_row(state, number), state.index.specs[number]
    if job.framework:
        raise Refused(f"job {number} is a task of framework {job.framework}: only it can launch the task again")
    if job.work.call is not None and job.work.call.fetch is not None:
        raise Refused(f"job {number} ran in a folder that was sent with it, and is not kept: submit it again with --send")
    if job.work.call is not None:
        raise Refused(f"job {number} makes calls of a Python program: only that program can make them again")
    if job.work.export:
        message = f"job {number} used an environment kept only until it ended: submit it again from a shell with that environment"
        raise Refused(message)
    tasks, work = job.tasks, replace(job.work, input="")
    if failed:
        first = int(state.jobs.first[row])
        chosen = np.flatnonzero(state.tasks.status[first : first + tasks] == FAILED).tolist()
        if not chosen:
            raise Refused(f"no task of job {number} has failed: omit --failed to rerun the whole job")
        if not job.gang:
            tasks, work = len(chosen), work.with_indices([work.known_as(k) for k in chosen])
    return replace(job, tasks=tasks, work=work, after=[], begin=None, key="", digest="", held=False, note=False)


def job_row(state: State, job: int) -> int:
    """Return the row of a job; raises Unknown."""
    row = state.index.find(job)
    if row == NONE:
        forgotten = "; finished jobs are forgotten after a while" if 0 < job <= state.index.last else ""
        raise Unknown(f"there is no job {job}{forgotten}")
    return row


def configure(state: State, queues: Sequence[Queue], settings: Settings, now: float) -> facts.Configured:
    """Accept a new queue tree, unless a queue with jobs would no longer be a leaf."""
    inner = inner_names(queue.name for queue in queues)
    live = state.jobs.queue[: state.jobs.n][np.isnan(state.jobs.finished_at[: state.jobs.n])]
    for row in np.unique(live):
        name = state.tree.names[row]
        if name in inner:
            raise Refused(f"queue {name!r} has jobs, so it must stay a leaf: wait until they end, or cancel them")
    return facts.Configured(at=now, queues=list(queues), settings=settings)


def change_nodes(state: State, nodes: Sequence[Node], now: float) -> list[facts.Fact]:
    """Accept other specs of nodes that are up. One that drains keeps draining."""
    found: list[facts.Fact] = []
    total = dict(zip(state.resources, state.cluster.capacity.tolist(), strict=True))
    for node in nodes:
        row = _known_node(state, node.name)
        for name in {*node.capacity, *state.cluster.specs[row].capacity}:
            more = node.capacity.get(name, 0) - state.cluster.specs[row].capacity.get(name, 0)
            total[name] = total.get(name, 0) + more
            if total[name] >= LARGEST:
                raise Refused(f"node {node.name!r}: with it there is more {name} than fairlead can count: declare less")
        found.append(facts.NodeJoined(at=now, node=node))
        if state.nodes.draining[row]:
            found.append(facts.NodeDrained(at=now, node=node.name))
    return found


def drain(state: State, node: str, now: float, cards: Sequence[int] = (), there: Sequence[int] = ()) -> facts.NodeDrained:
    """Drain a node, or some of the cards `there`: it finishes what it has and takes no more."""
    return facts.NodeDrained(at=now, node=node, cards=_known_cards(state, node, cards, there))


def resume(state: State, node: str, now: float, cards: Sequence[int] = (), there: Sequence[int] = ()) -> facts.NodeResumed:
    """Undo :func:`drain`."""
    return facts.NodeResumed(at=now, node=node, cards=_known_cards(state, node, cards, there))


def forget_cards(state: State, node: str, there: Sequence[int] | None, now: float) -> list[facts.Fact]:
    """Undo the draining of cards that a node has no more; `there` are those it has, None if unknown.

    Comes before the fact that the node joined with fewer, as each drained card takes a GPU from its capacity.
    """
    row = state.cluster.rows.get(node)
    if row is None or there is None:
        return []
    gone = sorted({*state.drained_cards(row)} - {*there})
    return [facts.NodeResumed(at=now, node=node, cards=gone)] if gone else []


def _known_cards(state: State, node: str, cards: Sequence[int], there: Sequence[int]) -> list[int]:
    _known_node(state, node)
    unknown = sorted({*cards} - {*there})
    if unknown:
        has = ", ".join(map(str, there)) or "none"
        raise Unknown(f"node {node!r} has no {named(unknown)}: it has {has}")
    return sorted({*cards})


def forget(state: State, node: str, now: float) -> facts.NodeForgotten | facts.NodeLeft:
    """Forget a lost node, or a machine that has joined and never came up."""
    row = state.cluster.rows.get(node)
    if node in state.cluster.members and (row is None or state.nodes.forgotten[row]):
        return facts.NodeLeft(at=now, node=node)
    if state.nodes.up[_known_node(state, node)]:
        raise Refused(f"node {node!r} is up: it can be forgotten when it is lost; `fairlead drain {node}` empties it")
    return facts.NodeForgotten(at=now, node=node)


def make_node_token(state: State, hashed: str, node: str, until: float, now: float) -> facts.NodeTokenMade:
    """Let one machine join with the token of this hash: as `node`, or as any new one if that is empty."""
    if sum(each > now for each, _ in state.cluster.node_tokens.values()) >= MOST_NODE_TOKENS:
        raise Refused(f"{MOST_NODE_TOKENS} tokens are unused: wait until some expire")
    return facts.NodeTokenMade(at=now, hash=hashed, until=until, node=node)


def admit_node(state: State, token: str, wanted: str, certificate: str, now: float) -> tuple[list[facts.Fact], str]:
    """Use up the token of this hash for a machine with this certificate. Also return the name of its node."""
    members = state.cluster.members
    until, node = state.cluster.node_tokens.get(token, (now, ""))
    if until <= now:
        raise Refused("the token is unknown, used or expired: make another with `fairlead node token`")
    if not node and wanted in members:
        raise Refused(
            f"there is a node {wanted!r} already: give another name with --name; if this is the same machine, make the "
            f"token with `fairlead node token --name {wanted}`"
        )
    if certificate in members.values() or len(members) >= MOST_MEMBERS:
        raise Refused(f"its certificate is in use, or there are {MOST_MEMBERS} nodes")
    return [facts.NodeAdmitted(at=now, node=node or wanted, certificate=certificate, token=token)], node or wanted


def replace_certificate(state: State, before: str, certificate: str, now: float) -> tuple[list[facts.Fact], str]:
    """Replace the certificate of a node, whose key has signed the new one. Also return the node's name."""
    names = {each: node for node, each in state.cluster.members.items()}
    if certificate in names:  # it asks again, since it got no answer
        return [], names[certificate]
    if before not in names:
        raise Refused("its certificate is unknown or has expired: join with a token of `fairlead node token --name NODE`")
    return [facts.NodeAdmitted(at=now, node=names[before], certificate=certificate)], names[before]


def _known_node(state: State, node: str) -> int:
    there = {name: row for name, row in state.cluster.rows.items() if not state.nodes.forgotten[row]}
    if node not in there:
        raise Unknown(f"there is no node {node!r}: there is {', '.join([*there][:10])}")
    return there[node]

"""Requests of frameworks, checked against the state and turned into facts, or refused with a reason; and facts due by time alone.

Independent of any wire format; the caller knows who is connected. An offer that is no longer valid is not the framework's
fault, which may not know yet: that is :class:`InvalidOffers`. A task that cannot be launched is :class:`InvalidTask`. Neither
changes anything.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
from msgspec.structs import replace

from fairlead.model.quantity import format_quantities
from fairlead.model.specs import ROOT, USERS, Framework, Job, Quantities, path_to_root, settings_for, written
from fairlead.outcomes import Outcome
from fairlead.scheduler import facts
from fairlead.scheduler.admission import MOST_LEAVES, Refused, Unknown, cancel, check_job
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.framework_index import Launched, Member, account_of, plus, queue_of
from fairlead.scheduler.frameworks.reservations import Left, Move, Moves, ReservedAmounts, joined
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED, STOPPING
from fairlead.scheduler.tables import I64, UNLIMITED, Bools

REFUSE_SECONDS = 5.0
"""Seconds for which unused resources are refused by default."""
LONGEST_GRACE_SECONDS = 3600.0
"""Maximum grace, in seconds, of a task stopped by its framework."""
LONGEST_REFUSAL_SECONDS = 365 * 86400.0
"""Maximum seconds of a refusal."""
NO_EXECUTORS: Mapping[str, Job] = {}
MOST_BELOW = 1000
"""Maximum number of queues below one that is configured, or is a user's, if frameworks make them."""
MOST_TIMEOUTS = 16.0
"""The longest time without offers of a node after one of it expired, in times of `offer_timeout`."""
MOST_LEVELS = 20
"""Levels of a role at most: each is a queue."""
NOT_IN_ROLES = "\0\t\n\v\f\r \x7f"


class InvalidOffers(Refused):
    """Offers that are not valid, or not of one framework, node and role."""


class InvalidTask(Refused):
    """A task, by the name that its framework gave it, that cannot be launched in its offers."""

    def __init__(self, task: str, message: str) -> None:
        super().__init__(message)
        self.task = task


class InvalidMoves(Refused):
    """A reservation that cannot be made or changed as `moves` request."""

    def __init__(self, moves: Moves, message: str) -> None:
        super().__init__(message)
        self.moves = moves


class ExecutorEnds(InvalidTask):
    """A task for an executor that is ending."""


def check_role(role: str) -> str | None:
    """Return what is wrong with a role's name by Mesos' rules, or None."""
    parts = role.split("/")
    if role == USERS:
        return None
    if not role or "" in parts:
        return f"role {role!r} is empty, or a part of it is"
    for part in parts:
        if part in (".", "..", USERS):
            return f"role {role!r}: no part may be {part!r}"
        if part.startswith("-"):
            return f"role {role!r}: no part may begin with '-'"
    if role.count("/") >= MOST_LEVELS:
        return f"a role of {role.count('/') + 1} levels: use at most {MOST_LEVELS}"
    wrong = next((c for c in NOT_IN_ROLES if c in role), None)
    return None if wrong is None else f"role {role!r} may not contain {wrong!r}"


def subscribe(
    state: State, framework: Framework, who: str, suppressed: Sequence[str], now: float, update: bool = False
) -> list[Fact]:
    """Subscribe a framework: new, back, or with a changed description.

    One that is back loses its offers, which are made again; with `update`, only those of roles it gives up.
    """
    f = state.frameworks
    if who in f.gone:
        raise Refused(f"framework {who} is gone: subscribe without an id, as a new one")
    if update and who not in f.members:
        raise Unknown(f"there is no framework {who}")
    if not framework.roles:
        raise Refused("a framework has at least one role")
    if not framework.failover_timeout >= 0:
        raise Refused(f"a failover timeout of {framework.failover_timeout:g} seconds: use 0 or more")
    for role in framework.roles:
        if fault := check_role(role):
            raise Refused(fault)
    if unknown := [role for role in suppressed if role not in framework.roles]:
        raise Refused(f"role {unknown[0]!r} is suppressed, and none of the framework's roles")
    if len(state.tree.names) + 3 * len(framework.roles) > MOST_LEAVES + len(state.tree.declared):
        raise Refused(f"there are {MOST_LEAVES} queues of users and frameworks already: no more can be added")
    _check_crowd(state, [role for role in framework.roles if role not in state.tree.rows])
    roles = {role for role in f.members[who].leaves if role not in framework.roles} if update else None
    framework = replace(framework, roles=[*dict.fromkeys(framework.roles)])
    fact = facts.FrameworkSubscribed(at=now, id=who, framework=framework, suppressed=sorted({*suppressed}))
    found = _rescinded(state, who, "subscribed", now, roles)
    if not update and who in f.members and f.members[who].away_since is None:
        found.append(facts.FrameworkDisconnected(at=now, id=who))  # not noticed before
    return [*found, fact]


def _check_crowd(state: State, new: Sequence[str]) -> None:
    """Raise Refused if new roles crowd the queue below which they are configured: nobody fills the tree for others."""
    above = [next((name for name in path_to_root(role) if settings_for(name, state.tree.declared)), ROOT) for role in new]
    for name, count in Counter(above).items():
        below = sum(other.startswith(f"{name}/") for other in state.tree.names) + count
        if below > MOST_BELOW:
            message = f"queue {written(name)!r} would have {below} queues below it: {MOST_BELOW} at most, so use its roles again"
            raise Refused(message)


def disconnect(state: State, who: str, now: float, not_before: float = 0.0) -> list[Fact]:
    """Note that a framework's connection is lost, if it was not. It is not removed for that before `not_before`."""
    if _member(state, who).away_since is not None:
        return []
    lost = facts.FrameworkDisconnected(at=now, id=who, not_before=not_before)
    return [*_rescinded(state, who, "disconnected", now), lost]


def tear_down(state: State, who: str, now: float) -> list[Fact]:
    """Remove a framework and stop its tasks."""
    _member(state, who)
    return [*_rescinded(state, who, "gone", now), *_gone(state, who, now)]


def _gone(state: State, who: str, now: float) -> list[Fact]:
    found: list[Fact] = [facts.FrameworkGone(at=now, id=who)]
    for launched in state.frameworks.tasks.get(who, {}).values():
        found += [] if launched.over else _stopped(state, launched.job, now, by_framework=False)
    for number, executor in state.frameworks.executors.items():
        found += shut_down(state, number, now) if executor.framework == who else []
    return found


def suppress(state: State, who: str, roles: Sequence[str], now: float) -> list[Fact]:
    """Stop offers for these roles, or all of the framework's if none is named."""
    roles = _roles(state, who, roles)
    return [facts.RolesSuppressed(at=now, id=who, roles=roles)] if {*roles} - {*_member(state, who).suppressed} else []


def revive(state: State, who: str, roles: Sequence[str], now: float) -> list[Fact]:
    """Resume offers for these roles, or all of the framework's, and forget what it refused."""
    return [facts.RolesRevived(at=now, id=who, roles=_roles(state, who, roles))]


def _roles(state: State, who: str, roles: Sequence[str]) -> list[str]:
    mine = _member(state, who).framework.roles
    if unknown := [role for role in roles if role not in mine]:
        raise Refused(f"framework {who} has no role {unknown[0]!r}: it has {', '.join(mine)}")
    return [*dict.fromkeys(roles)] or [*mine]


def until(seconds: float | None, now: float) -> float:
    """Return until when a refusal holds; Mesos' rules for the seconds."""
    if seconds is None or not seconds >= 0:
        seconds = REFUSE_SECONDS
    return now + min(seconds, LONGEST_REFUSAL_SECONDS)


def decline(state: State, who: str, offers: Sequence[int], refuse_seconds: float | None, now: float) -> list[Fact]:
    """Decline offers; ignores those that are not valid or not the framework's."""
    _member(state, who)
    mine = [offer for offer in dict.fromkeys(offers) if whose(state, offer) == who]
    return [facts.OffersDeclined(at=now, framework=who, ids=mine, until=until(refuse_seconds, now))] if mine else []


def accept(
    state: State,
    who: str,
    offers: Sequence[int],
    asked: Sequence[Job | Moves],
    refuse_seconds: float | None,
    now: float,
    executors: Mapping[str, Job] = NO_EXECUTORS,
) -> tuple[list[Fact], list[InvalidTask | InvalidMoves]]:
    """Launch tasks in offers, each in what the previous ones leave; what remains is refused.

    Also returns what cannot be launched or reserved, with reasons. Raises InvalidOffers, and launches nothing then.

    offers : of one node and one role
    asked : tasks, with demand, work and name (`task`); placement is filled in here. And reservations to make or release.
    executors : by name, the tasks' executors; each is launched with the first of its tasks, unless it is on that node already
    """
    member, ids = _member(state, who), [*dict.fromkeys(offers)]
    if not ids or any(whose(state, offer) != who for offer in ids):
        raise InvalidOffers(f"offers {', '.join(map(str, ids))}: some are no longer valid")
    rows = np.searchsorted(state.offers.id[: state.offers.n], ids).astype(np.int64)
    places = {*zip(state.offers.leaf[rows].tolist(), state.offers.node[rows].tolist(), strict=True)}
    if len(places) > 1:
        raise InvalidOffers("offers that are accepted together are of one node and one role")
    leaf, node = places.pop()
    role = {"queue": state.tree.names[leaf], "framework": who, "tasks": 1, "retries": 0}
    role["revocable"] = member.framework.revocable
    chosen = [replace(each, **role) if isinstance(each, Job) else each for each in asked]
    programs = {name: replace(job, **role) for name, job in executors.items()}
    there = _left_in(state, ids, rows)
    launched, moves, refused, left = _launchable(state, chosen, programs, node, there)
    if not launched and not moves:
        return decline(state, who, ids, refuse_seconds, now), refused
    first, count, refused_until = state.index.last + 1, len(launched), until(refuse_seconds, now)
    numbers = [*range(first, first + count)]
    taken = [[job.taken.get(name, 0) / has for name, has in there.free.items() if has] for job in launched]
    parts = [min(1.0, max(each, default=0.0)) for each in taken]
    accepted = facts.OffersAccepted(
        at=now, framework=who, ids=ids, jobs=numbers, left=left.free, until=refused_until, left_apart=left.apart, parts=parts
    )
    found: list[Fact] = [accepted]
    owner = account_of(member.framework)
    for move in moves:
        found.append(facts.ResourcesReserved(at=now, node=node, **move._asdict(), account=owner if move.mark else ""))
    found += [facts.JobSubmitted(at=now, id=number, job=job) for number, job in zip(numbers, launched, strict=True)]
    if count:
        zeros, ones = np.zeros(count, np.int64), np.ones(count, np.int64)
        jobs = np.array(numbers, np.int64)
        found.append(facts.TasksPlaced(at=now, job=jobs, index=zeros, attempt=ones, node=node * ones, more=True))
    return found, refused


def _left_in(state: State, offers: Sequence[int], rows: I64) -> Left:
    """Return what is in offers, given by id and row."""
    apart: ReservedAmounts = {}
    for offer in offers:
        for mark, amount in state.frameworks.offered_apart.get(offer, {}).items():
            apart[mark] = plus(apart.get(mark, {}), amount)
    here = state.frameworks.role_reservations.get(state.cluster.specs[state.offers.node[rows[0]]].name, {})
    whole = frozenset(mark for mark, reservation in here.items() if reservation.whole)
    offered = state.frameworks.offered_ports.get(state.cluster.specs[state.offers.node[rows[0]]].name, {})
    numbers = joined(each for offer in offers for each in offered.get(offer, []))
    return Left(state.quantities(state.offers.rest[rows].sum(axis=0)), apart, whole, numbers)


def _launchable(
    state: State, asked: Sequence[Job | Moves], executors: Mapping[str, Job], node: int, left: Left
) -> tuple[list[Job], list[Move], list[InvalidTask | InvalidMoves], Left]:
    """Return what is launched, reserved and refused on a node, each in what the previous ones leave, and what is left at last.

    Executors come before their tasks.
    """
    begun: dict[str, Job] = {}
    launched: dict[str, Job] = {}
    moves: list[Move] = []
    refused: list[InvalidTask | InvalidMoves] = []
    for each in asked:
        if isinstance(each, Moves):
            try:
                left = reduce(Left.after, each.moves, left)
                moves += each.moves
            except ValueError as error:
                refused.append(InvalidMoves(each, str(error)))
            continue
        new = None
        try:
            if each.executor and each.executor not in begun:
                new = _new_executor(state, executors[each.executor], each.task, state.cluster.specs[node].name)
            left = _without_task(state, each, launched, len(begun), left, new)
        except InvalidTask as invalid:
            refused.append(invalid)
            continue
        if new is not None:
            begun[each.executor] = new
        launched[each.task] = each
    return [*begun.values(), *launched.values()], moves, refused, left


def reserve(state: State, node: str, moves: Sequence[Move], now: float) -> list[Fact]:
    """Make or release reservations of a node for its operator; its offers are rescinded first. Raises Refused, Unknown."""
    row = state.cluster.rows.get(node)
    if row is None or not state.nodes.up[row]:
        raise Unknown(f"there is no node {node}, or it is lost")
    here = state.frameworks.role_reservations.get(node, {})
    offers = np.flatnonzero(state.offers.node[: state.offers.n] == row)
    free = state.nodes.free[row] - state.nodes.held[row] + state.offers.rest[offers].sum(axis=0)
    apart = {mark: plus(each.amount, each.taken, -1) for mark, each in here.items() if each.there}
    left = Left(state.quantities(np.maximum(free, 0)), apart, frozenset(m for m, each in here.items() if each.whole))
    for move in moves:
        if not move.of and (fault := check_role(move.role)):
            raise Refused(fault)
        try:
            left = left.after(move)
        except ValueError as error:
            raise Refused(str(error).replace("in the offers", f"on {node}")) from None
    found: list[Fact] = []
    if len(offers):
        found.append(facts.OffersRescinded(at=now, ids=state.offers.id[offers].tolist(), why="node changed"))
    return found + [facts.ResourcesReserved(at=now, node=row, **move._asdict()) for move in moves]


def _new_executor(state: State, executor: Job, task: str, node: str) -> Job | None:
    """Return a task's executor if it must be launched, else None. Raises InvalidTask if it differs or is ending."""
    known = state.frameworks.executor_on(executor.framework, executor.executor, node)
    if known is None:
        return executor
    if state.frameworks.executors[known].over or state.tasks.status[state.jobs.first[state.job_row(known)]] >= STOPPING:
        raise ExecutorEnds(task, f"executor {executor.executor!r} is ending on {node}: launch the task after it has ended")
    if state.index.specs[known].info != executor.info:
        raise InvalidTask(task, f"executor {executor.executor!r} already runs on {node} with a different description")
    return None


def _without_task(state: State, job: Job, others: Mapping[str, Job], begun: int, left: Left, executor: Job | None) -> Left:
    """Return what is left of offers after a task and its new executor, if any. Raises InvalidTask."""
    queues = state.queues
    if not job.task:
        raise InvalidTask(job.task, "a task has a name")
    if job.task in state.frameworks.tasks.get(job.framework, {}) or job.task in others:
        raise InvalidTask(job.task, f"task {job.task!r} already exists")
    both = (job,) if executor is None else (job, executor)
    try:
        check_job(state, job, limits=False)  # offers are within limits
        if executor is not None and executor.demand:  # its tasks may ask for all of it
            check_job(state, executor, limits=False)
    except Refused as refused:
        raise InvalidTask(job.task, str(refused)) from None
    for name in path_to_root(job.queue):
        row = state.tree.rows[name]
        for kind, now, most in (("tasks", queues.tasks, queues.max_tasks), ("jobs", queues.jobs, queues.max_jobs)):
            if now[row] + len(others) + begun + len(both) > most[row]:
                raise InvalidTask(job.task, f"queue {state.display_name(name)!r} would exceed its maximum of {most[row]} {kind}")
    for each in both:
        try:
            left = left.without(each)
        except ValueError as lacks:
            raise InvalidTask(job.task, f"task {job.task!r} needs {format_quantities(each.demand)}; {lacks}") from None
    return left


def kill(state: State, who: str, task: str, now: float) -> list[Fact]:
    """Stop a task, with the grace that its framework gave it, unless it is stopping or over. Raises Unknown."""
    launched = tasks_of(state, who).get(task)
    if launched is None:
        raise Unknown(f"framework {who} has no task {task!r}")
    return [] if launched.over else _stopped(state, launched.job, now, by_framework=True)


def shut_down(state: State, executor: int, now: float, by_framework: bool = False) -> list[Fact]:
    """Stop an executor, by job, and what runs in it, unless it is stopping or over.

    Its framework's grace applies if the framework stops it; else that of its queue.
    """
    known = state.frameworks.executors.get(executor)
    return [] if known is None or known.over else _stopped(state, executor, now, by_framework)


def _stopped(state: State, job: int, now: float, by_framework: bool) -> list[Fact]:
    grace, stopped = state.index.specs[job].grace, cancel(state, job, None, now)
    if stopped is not None and by_framework and grace is not None:
        stopped = replace(stopped, grace=min(grace, LONGEST_GRACE_SECONDS))
    return [] if stopped is None else [stopped]


def report_status(
    state: State, job: int, what: str, said: str, uuid: str, now: float, end: tuple[int, int] | None = None
) -> list[Fact]:
    """Report that a task is starting, runs, or has ended, as its executor says; no-op if repeated, or no framework expects it.

    what, said, uuid : as in TaskSaid
    end : of an end: outcome and code. The engine reports the end of a task that is a process of its own.
    """
    f = state.frameworks
    who, task = f.task_of.get(job, ("", ""))
    launched = f.tasks[who][task] if who else None
    found: list[Fact] = []
    if launched is None or launched.over or uuid in launched.heard:
        return found
    row = int(state.jobs.first[state.job_row(job)])
    attempt = {"job": np.array([job]), "index": np.zeros(1, np.int64), "attempt": np.ones(1, np.int64)}
    if job in f.inside and state.tasks.status[row] == PLACED:
        found.append(facts.TasksStarted(at=now, **attempt))
    found.append(facts.TaskSaid(at=now, job=job, what=what if end is None else "ending", said=said, uuid=uuid))
    if end is not None and job in f.inside:
        outcome, code = end
        found.append(facts.TasksFinished(at=now, **attempt, outcome=np.array([outcome]), code=np.array([code])))
    return found


def demand_with_tasks(state: State, executor: int) -> Quantities:
    """Return the total demand of an executor, by job, and its tasks."""
    jobs = (executor, *state.frameworks.executors[executor].tasks)
    return reduce(plus, (state.index.specs[job].demand for job in jobs))


def ended_within(jobs: Sequence[int], outcome: Outcome, now: float) -> list[Fact]:
    """End the tasks of an executor that has ended, or never received them."""
    number = np.array(jobs, np.int64)
    zeros, ones = np.zeros(len(jobs), np.int64), np.ones(len(jobs), np.int64)
    return [facts.TasksFinished(at=now, job=number, index=zeros, attempt=ones, outcome=zeros + outcome, code=zeros)]


def tasks_of(state: State, who: str) -> dict[str, Launched]:
    """Return a framework's tasks by name: those that are unfinished, or have unacknowledged updates."""
    _member(state, who)
    return state.frameworks.tasks.get(who, {})


def settled(state: State, now: float) -> list[Fact]:
    """Return what is due: rescinded offers, tasks of ended executors, frameworks away for too long."""
    f, found = state.frameworks, list[Fact]()
    for why in sorted({*f.void.values()}):
        found.append(facts.OffersRescinded(at=now, ids=[offer for offer, each in f.void.items() if each == why], why=why))
    offers, n = state.offers, state.offers.n
    if n:
        left, node = np.ones(n, np.bool_), offers.node[:n]
        for why, ended in (
            ("node drained", state.nodes.draining[node]),
            ("limit", _over_a_limit(state)),
            ("others first", np.isin(offers.id[:n], f.yielding)),
        ):
            if (left & ended).any():
                found.append(facts.OffersRescinded(at=now, ids=offers.id[:n][left & ended].tolist(), why=why))
                left &= ~ended
        found += _expired(state, left & (offers.made[:n] + state.settings.offer_timeout <= now), now)
    for executor in f.executors.values():
        if executor.over:
            found += ended_within(executor.tasks, Outcome.SIGNALLED, now)
    for who, member in f.members.items():
        if member.gone_at <= now:
            found += _gone(state, who, now)
    return found


def _expired(state: State, rows: Bools, now: float) -> list[Fact]:
    """Rescind these offers, and refuse their nodes for their frameworks, for twice as long each time in a row."""
    f, offers, ids = state.frameworks, state.offers, dict[str, list[int]]()
    for row in np.flatnonzero(rows).tolist():
        ids.setdefault(f.at[state.tree.names[offers.leaf[row]]][0], []).append(int(offers.id[row]))
    times = {who: min(2.0 ** min(f.members[who].unanswered, 10), MOST_TIMEOUTS) for who in ids}
    return [
        facts.OffersRescinded(at=now, ids=each, why="expired", until=now + times[who] * state.settings.offer_timeout)
        for who, each in ids.items()
    ]


def suppress_all(state: State, now: float) -> list[Fact]:
    """Stop offers to all frameworks: for dry runs, which cannot know how frameworks would answer."""
    f, ids = state.frameworks, state.offers.id[: state.offers.n].tolist()
    found: list[Fact] = [facts.OffersRescinded(at=now, ids=ids, why="set aside")] if ids else []
    return found + [fact for who in f.members for fact in suppress(state, who, [], now)]


def _over_a_limit(state: State) -> Bools:
    """Return, per offer, whether a queue it counts in exceeds its limit of something offered."""
    queues, offers, n = state.queues, state.offers, state.offers.n
    limit = queues.limit[: queues.n]
    over = (queues.used[: queues.n] - queues.spare[: queues.n] > limit) & (limit < UNLIMITED)
    found = np.zeros(n, np.bool_)
    if over.any():
        for row in range(1, queues.n):
            over[row] |= over[queues.parent[row]]
        found = (over[offers.leaf[:n]] & (offers.rest[:n] > 0)).any(axis=1) & ~offers.revocable[:n]
    return found


def exceeded(state: State, role: str, limit: Quantities) -> Quantities | None:
    """Return what a role uses, including offers, if that exceeds a requested limit; else None."""
    row = state.tree.rows.get(queue_of(role))
    used = {} if row is None else state.quantities(state.queues.used[row] - state.queues.spare[row])
    return used if any(used.get(name, 0) > most for name, most in limit.items()) else None


def _rescinded(state: State, who: str, why: str, now: float, roles: set[str] | None = None) -> list[Fact]:
    f, offers = state.frameworks, state.offers
    if who not in f.members:
        return []
    leaves = [state.tree.rows[leaf] for role, leaf in f.members[who].leaves.items() if roles is None or role in roles]
    ids = offers.id[: offers.n][np.isin(offers.leaf[: offers.n], leaves)].tolist()
    return [facts.OffersRescinded(at=now, ids=ids, why=why)] if ids else []


def whose(state: State, offer: int) -> str | None:
    row = row_of_offer(state, offer)
    return None if row is None else state.frameworks.at[state.tree.names[state.offers.leaf[row]]][0]


def row_of_offer(state: State, offer: int) -> int | None:
    ids = state.offers.id[: state.offers.n]
    row = int(np.searchsorted(ids, offer))
    return row if row < len(ids) and ids[row] == offer else None


def _member(state: State, who: str) -> Member:
    if who not in state.frameworks.members:
        raise Unknown(f"there is no framework {who}")
    return state.frameworks.members[who]

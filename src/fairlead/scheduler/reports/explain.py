"""Explain why a job waits, by a dry run of the scheduling cycle.

Nothing is guessed: it is the reason for which the kernel did not place the job's next task.
"""

from collections.abc import Mapping
from math import inf
from signal import SIGALRM
from typing import Any

import numpy as np

from fairlead.model.quantity import format_quantity, format_share, round_quantity
from fairlead.model.specs import path_to_root, written
from fairlead.outcomes import Outcome
from fairlead.plain_text import listed
from fairlead.policies.drf import dominant_share
from fairlead.scheduler.admission import closed_nodes, job_row, no_such_node, unmet_dependency
from fairlead.scheduler.cluster import offered_of
from fairlead.scheduler.decide import Cycle, run_cycle
from fairlead.scheduler.feasibility import Bound, blocked_forever_by, hosts, never_starting_groups, over_bound
from fairlead.scheduler.framework_index import queue_of
from fairlead.scheduler.history import goes_by_history, share_over_time
from fairlead.scheduler.job_caps import cap_of, waits_for_cap
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.kernel.constants import LIMIT, MAX_JOBS, MAX_TASKS, NO_NODE, NONLENDABLE, NOT_REACHED
from fairlead.scheduler.kernel.scheduling import kept_beside, nonlendable_for, open_to, reserved_from
from fairlead.scheduler.reports.claims import claim, safety
from fairlead.scheduler.reports.reservations import RESERVED, holds_by_job, kept_by_guarantee
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED, REVOKING
from fairlead.scheduler.tables import APART, NONE, vector

LEAST_SHARE_SHOWN = 0.001
"""Shares of past use below this are not shown, unless a policy goes by history alone."""
MOST_AHEAD = 10
"""Maximum queues and jobs that are listed as ahead."""
NOBODY: Mapping[str, float] = {}
NEVER = "can never start as things are: "
"""Begins the reason of a job that no node or limit allows to start."""


def explain(state: State, job: int, now: float = inf, unheard: Mapping[str, float] = NOBODY) -> dict[str, Any]:
    """Explain why a job does not run, or runs only in part.

    `now` is in seconds; inf disables the min-runtime protection. `unheard` has the seconds since the scheduler's start, by node,
    of nodes that have not said since then what runs there.

    ``reason`` : one of ``over``, ``running``, ``held``, ``begin``, ``dependency``, ``singleton``, ``delayed``, ``at most``,
        ``gang is stopping``, ``turn``, ``limit``, ``max tasks``, ``max jobs``, ``constraint``, ``too large``, ``withheld``,
        ``no room``, ``gang does not fit``, ``behind``, ``about to start``
    ``text`` : the reason as text
    ``claim`` : what may be preempted for it, if its queue is short
    ``safety`` : what may be preempted of it, if it runs
    ``kept`` : what is held for other jobs: which, on which nodes, with expected start and end
    ``reserved`` : what is held for this job, likewise
    ``ahead`` : the queues served before it, with their dominant shares, now and of past use
    ``ahead_in_queue`` : the jobs of its own queue that go first
    The other keys hold the values in the text, in base units.
    """
    row = job_row(state, job)
    jobs = state.jobs
    if not np.isnan(jobs.finished_at[row]):
        return _ended(state, job, row)
    if jobs.waiting[row] == 0:
        return {**_answer(job, "running", _how_it_runs(state, row, unheard)), **safety(state, row, now)}
    if jobs.held[row]:
        return _answer(job, "held", f"it is held: `fairlead release {job}` releases it")
    if state.dependencies.waits(job, state.index.specs[job]):
        return _before_it(state, job)
    if jobs.waiting[row] == jobs.delayed[row]:
        return _delayed(state, row)
    if waits_for_cap(state, job):
        return _over_job_cap(state, job)
    group = int(jobs.group[row])
    if 0 < jobs.at_most[row] <= jobs.holding[row]:
        most = int(jobs.at_most[row])
        text = f"it runs as many tasks as it asked for at once, {most}: `fairlead edit {job} --at-most` changes that"
        return _answer(job, "at most", text, limit=most)
    if group == NONE:
        text = "one task of the gang was lost: it starts again when the others have stopped"
        return _answer(job, "gang is stopping", text)
    return {**_waiting(state, row, group, run_cycle(state)), **claim(state, row, now)}


def _how_it_runs(state: State, row: int, unheard: Mapping[str, float]) -> str:
    """Say that all tasks run, as far as is known since the scheduler's start."""
    jobs, tasks = state.jobs, state.tasks
    own = slice(int(jobs.first[row]), int(jobs.first[row] + jobs.tasks[row]))
    held = (tasks.status[own] >= PLACED) & (tasks.status[own] <= REVOKING)
    names = {state.cluster.specs[node].name for node in np.unique(tasks.node[own][held]).tolist()} if unheard else set()
    quiet = sorted(names & unheard.keys())
    if not quiet:
        return "all its tasks run"
    have = "has" if len(quiet) == 1 else "have"
    ago = max(unheard[name] for name in quiet)
    return f"all its tasks ran when the scheduler restarted, {ago:.0f} s ago; {listed(quiet)} {have} not been heard since"


def _before_it(state: State, job: int) -> dict[str, Any]:
    """Explain what must happen before a job may start: a time, or the end of other jobs."""
    waits, spec = state.dependencies, state.index.specs[job]
    others = [after for after in spec.after if after.job in waits.waits_for.get(job, ())]
    behind = waits.behind(job, spec)
    words = {"success": "to succeed", "failure": "to fail", "end": "to end", "start": "to start"}
    texts = [f"job {a.job}, which has {words[a.how]} first" for a in others if a.how in words]
    texts += [f"job {number} of the same name, as a singleton" for number in behind if number not in waits.waits_for.get(job, ())]
    found = [f"it comes after {' and '.join(texts)}"] if texts else []
    more = {"begins_at": waits.begins[job]} if job in waits.begins else {}
    if more:
        is_first = spec.begin == more["begins_at"]
        found.append("its time to begin has not come" if is_first else "it failed, and waits to start again")
    reason = "begin" if not texts else "dependency" if others else "singleton"
    return _answer(job, reason, "; ".join(found), after=behind, **more)


def _delayed(state: State, row: int) -> dict[str, Any]:
    """Explain what the waiting tasks of a job wait for, if none of them may start."""
    job = int(state.jobs.id[row])
    times = [at for at, number, place in state.dependencies.timers if number == job and place != NONE]
    if times:
        return _answer(job, "delayed", "its failed tasks wait to start again", begins_at=min(times))
    others = [after.job for after in state.index.specs[job].after if after.how == "index"]
    text = f"each of its tasks waits for the success of the task of the same index of job {others[0]}"
    return _answer(job, "dependency", text, after=others)


def _waiting(state: State, row: int, group: int, result: Cycle) -> dict[str, Any]:
    """Explain, by a dry run, why a job that may start is not served."""
    jobs, job = state.jobs, int(state.jobs.id[row])
    if row in result.job:
        return _answer(job, "about to start", "there is room, and it is its turn")
    bound = over_bound(state, row)
    if bound is not None:
        return _over_limits_forever(job, bound)
    if state.order.groups.hopeless[group]:
        return _no_node(state, row, result)
    stop = int(result.stop[group])
    tried, leaf = int(result.stop_job[group]), int(jobs.queue[row])
    blocked = blocked_forever_by(state, leaf, int(jobs.priority[row]), job) != NONE
    if blocked or (stop == NOT_REACHED and state.queues.strict[leaf]):
        return _behind_the_first(state, row, result)
    if stop == LIMIT:
        return _over_a_limit(state, row)
    if stop == NONLENDABLE:
        return _naming_reserved(state, row, _withheld(state, row))
    if stop in (MAX_TASKS, MAX_JOBS):
        return _over_a_count(state, row, stop == MAX_TASKS)
    if stop != NO_NODE:
        return _answer(job, "turn", "others are served first, and there is more to place than one cycle takes")
    ahead = _ahead(state, result, group)
    before = _ahead_in_queue(state, result, group)
    if tried != row:
        first = int(jobs.id[tried])
        found = _no_node(state, tried, result)
        text = f"job {first} of the same shape was submitted earlier and goes first: {found['text']}"
        return _answer(job, "behind", text, first=first, ahead=ahead, ahead_in_queue=before, kept=found.get("kept", []))
    found = _naming_reserved(state, row, _no_node(state, row, result))
    if "reserved" in found:
        return {**found, "ahead": ahead, "ahead_in_queue": before}
    if found["reason"] == "no room" and before:
        other = job_row(state, before[0])
        higher = f", of priority {jobs.priority[other]}," if jobs.priority[other] != jobs.priority[row] else ""
        more = f" and {len(before) - 1} more" if len(before) > 1 else ""
        found["text"] += f"; in its own queue job {before[0]}{higher}{more} would go first"
    if found["reason"] == "no room" and ahead:
        mine = share_over_time(state.queues, leaf, state.grain, state.cluster.total)
        least = 0.0 if goes_by_history(state.queues, leaf) else LEAST_SHARE_SHOWN
        shown = (most := max(mine, *(a["share_over_time"] for a in ahead))) >= least and most > 0
        over_time = [f" ({format_share(a['share_over_time'])} of past use)" if shown else "" for a in ahead]
        names = [f"{a['queue']} at {a['dominant_share']:.1%}{more}" for a, more in zip(ahead, over_time, strict=True)]
        found["text"] += f"; served first when there is room: {', '.join(names[:3])}"
        found["text"] += f"; its own queue had {format_share(mine)} of past use" if shown else ""
    return {**found, "ahead": ahead, "ahead_in_queue": before}


def _naming_reserved(state: State, row: int, found: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with what is reserved for the job, or whose guarantee prevents that."""
    mine = [kept for kept in holds_by_job(state, 0.0) if kept.job == state.jobs.id[row] and kept.why == RESERVED]
    if not mine:
        more = kept_by_guarantee(state, int(state.jobs.group[row]))
        if found["reason"] == "no room" and not state.settings.idle_budget:
            more += "; no room is kept for it, since `idle_budget` is 0"
        return {**found, "text": found["text"] + more}
    kept, names = mine[0], [state.cluster.specs[node].name for node in mine[0].nodes[:MOST_AHEAD]]
    end, idle = kept.end if kept.end < inf else None, state.quantities(kept.idle)
    reserved = {"nodes": names, "made": kept.made, "start": kept.start, "end": end, "slips": kept.slips, "idle": idle}
    return {**found, "text": f"{found['text']}; room on {listed(names)} is reserved for it", "reserved": reserved}


def _ended(state: State, job: int, row: int) -> dict[str, Any]:
    """Return how a job ended; for one cancelled because of a dependency, which one."""
    jobs = state.jobs
    unmet = unmet_dependency(state, state.index.specs[job]) if jobs.cancelled[row] == jobs.tasks[row] else None
    if unmet is not None:
        return _answer(job, "over", f"it was cancelled: it came after job {unmet[0]}, {unmet[1]}", after=[unmet[0]])
    first = int(jobs.first[row])
    end = int(state.tasks.outcome[first]), int(state.tasks.code[first])
    if state.index.specs[job].work.ray and end == (Outcome.SIGNALLED, SIGALRM):
        text = (
            "it was stopped: it asked Ray for room outside its placement group, got none, and used none of the group: "
            "docs/ray.md says how Ray's libraries ask inside"
        )
        return _answer(job, "over", text)
    idle = f"it ended because nobody used it for {state.index.specs[job].work.idle:g} s: no connection, and no CPU or GPU use"
    return _answer(job, "over", idle if end[0] == Outcome.UNUSED else "it has ended")


def _behind_the_first(state: State, row: int, cycle: Cycle) -> dict[str, Any]:
    """Explain why the first job of a strict leaf, which nobody passes, does not run."""
    jobs, job, queue = state.jobs, int(state.jobs.id[row]), int(state.jobs.queue[row])
    tried = cycle.stop_job[(state.groups.leaf[: state.groups.n] == queue) & (cycle.stop_job != NONE)]
    name = state.display_name(state.tree.names[queue])
    never = blocked_forever_by(state, queue, int(jobs.priority[row]), job)
    if not len(tried) and never == NONE:
        return _answer(job, "turn", "others are served first, and there is more to place than one cycle takes")
    first = never if never != NONE else int(min(tried, key=lambda j: (-jobs.priority[j], jobs.id[j])))
    number = int(jobs.id[first])
    bound = over_bound(state, first) if never != NONE else None
    if bound is not None:
        why = _over_limits_forever(number, bound)
    else:
        why = _no_node(state, first, cycle) if never != NONE else _waiting(state, first, int(jobs.group[first]), cycle)
    text = f"queue {name} is strict, and job {number} goes first: {why['text']}"
    if never != NONE:
        text = f"{NEVER}{text.replace(f': {NEVER}', ': ')}"
    return _answer(job, "behind", text, first=number, ahead=why["ahead"], kept=why.get("kept", []))


def _over_limits_forever(job: int, bound: Bound) -> dict[str, Any]:
    """Explain that a job can never start, since it needs more at once than a queue may have."""
    return _answer(job, bound.kind, f"{NEVER}{bound.text}", **bound.more)


def _answer(job: int, reason: str, text: str, **more: Any) -> dict[str, Any]:
    return {"job": job, "reason": reason, "text": text, "ahead": [], **more}


def _path(state: State, row: int) -> list[str]:
    return path_to_root(state.tree.names[state.jobs.queue[row]])


def _over_a_limit(state: State, row: int) -> dict[str, Any]:
    jobs, queues = state.jobs, state.queues
    demand = state.shapes.demand[jobs.shape_row[row]]
    count = int(jobs.waiting[row]) if jobs.gang[row] else 1
    for name in _path(state, row):
        q = state.tree.rows[name]
        for r, resource in enumerate(state.resources):
            wanted = int(demand[r]) * count
            used, limit = int(queues.used[q, r]), int(queues.limit[q, r])
            kept = _kept_for_others(state, row, q, r)
            if not jobs.revocable[row]:
                used -= int(queues.spare[q, r])
            if wanted and used + kept + wanted > limit:
                queue = state.display_name(name)
                offered = 0 if queues.spare[q, r] else int(queues.offered[q, r])  # else some may be of what is spare
                only = f", of which {round_quantity(resource, offered)} is in open offers" if offered else ""
                text = (
                    f"queue {queue} is limited to {format_quantity(resource, limit)} {resource}: it uses "
                    f"{round_quantity(resource, used)}{only}{_held_text(resource, kept)}; the job needs "
                    f"{round_quantity(resource, wanted)} more"
                )
                if jobs.revocable[row]:
                    text += "; it is revocable, but no idle resources are available beyond the limit"
                more = {"queue": queue, "resource": resource, "limit": limit, "used": used, "needed": wanted}
                more["kept_for_others"] = kept
                return _answer(int(jobs.id[row]), "limit", text, **more)
    return _behind_others(state, row, "a limit is reached")


def _kept_for_others(state: State, row: int, q: int, r: int) -> int:
    """Return how much of a resource is held for claims below a queue, except those of the job's group."""
    demand, group = state.shapes.demand[state.jobs.shape_row[row]], int(state.jobs.group[row])
    own = int(scheduling.served_tasks(state.view(), group)) * int(demand[r])
    return int(state.queues.claimed[q, r]) - own


def _held_text(resource: str, amount: int) -> str:
    """Return what is held for claims of others as the end of a sentence, if anything."""
    return f", and {round_quantity(resource, amount)} is held for claims of others" if amount else ""


def _withheld(state: State, row: int) -> dict[str, Any]:
    """Explain of which resource too little is left beside guarantees that others do not lend."""
    jobs, queues = state.jobs, state.queues
    demand = state.shapes.demand[jobs.shape_row[row]] * (int(jobs.waiting[row]) if jobs.gang[row] else 1)
    for r, resource in enumerate(state.resources):
        kept = int(nonlendable_for(state.view(), jobs.queue[row], r))
        free = int(state.cluster.total[r]) - int(queues.used[0, r])
        others, reserved = _kept_for_others(state, row, 0, r), int(reserved_from(state.view(), jobs.group[row], r))
        if demand[r] and open_to(state.view(), jobs.group[row], r, free - kept - others, reserved) < demand[r]:
            some, quota = round_quantity(resource, free), round_quantity(resource, kept)
            reserved = min(reserved, max(0, free - kept - others))
            begin = f"of {some} free {resource}, {quota}" if kept <= free else f"{some} {resource} is free, and {quota}"
            text = (
                f"{begin} is quota that other queues do not lend{_held_text(resource, others)}"
                f"{f', and {round_quantity(resource, reserved)} is kept for reservations' if reserved else ''}; the job needs "
                f"{round_quantity(resource, int(demand[r]))}"
            )
            more = {"resource": resource, "withheld": kept, "free": free, "kept_for_others": others}
            more["kept_for_reservations"] = reserved
            return _answer(int(jobs.id[row]), "withheld", text, **more)
    # What the dry run has just placed is not used yet.
    return _answer(int(jobs.id[row]), "turn", "others are served first, and leave it no room beside quota that is not lent")


def _over_a_count(state: State, row: int, tasks: bool) -> dict[str, Any]:
    jobs, queues = state.jobs, state.queues
    count = (int(jobs.waiting[row]) if jobs.gang[row] else 1) if tasks else 1
    running, most = (queues.tasks, queues.max_tasks) if tasks else (queues.jobs, queues.max_jobs)
    for name in _path(state, row):
        q = state.tree.rows[name]
        kept = int(kept_beside(state.view(), int(jobs.group[row]), q)[0 if tasks else 1])
        if running[q] + kept + count > most[q]:
            what = "tasks" if tasks else "jobs"
            queue = state.display_name(name)
            some = what if most[q] != 1 else what.removesuffix("s")
            text = f"queue {queue} may run {most[q]} {some} at once, and {running[q]} {'runs' if running[q] == 1 else 'run'}"
            text += f"; room is kept for {kept} of others" if kept else ""
            more = {"queue": queue, "running": int(running[q]), "limit": int(most[q]), "kept_for_others": kept}
            return _answer(int(jobs.id[row]), "max tasks" if tasks else "max jobs", text, **more)
    return _behind_others(state, row, f"its queue runs as many {'tasks' if tasks else 'jobs'} as it may")


def _behind_others(state: State, row: int, then: str) -> dict[str, Any]:
    """Explain what stops a job only once those before it have started, as in a dry run."""
    return _answer(int(state.jobs.id[row]), "turn", f"others are served first, and with them {then}")


def _over_job_cap(state: State, job: int) -> dict[str, Any]:
    """Explain which jobs of the same user keep one from being admitted under the cap."""
    spec = state.index.specs[job]
    inside, most = sorted(state.job_caps.inside[spec.user]), cap_of(state.settings, spec)
    first = sum(other < job for other in state.job_caps.waits[spec.user])
    capped = f"{spec.user or 'its user'} may have {most} admitted job{'s' * (most != 1)} at once"
    several = f"s {listed(list(map(str, inside)))} are" if len(inside) > 1 else f" {inside[0]} is" if inside else ""
    now = f": job{several} admitted" if inside else ""
    before = f"; {first} more of the same user {'is' if first == 1 else 'are'} ahead" if first else ""
    return _answer(job, "max jobs", capped + now + before, limit=most, running=len(inside), first=inside[:MOST_AHEAD])


def _no_node(state: State, row: int, cycle: Cycle) -> dict[str, Any]:
    """Explain why no node takes the next task, or the gang; and name nodes that are lost, drained or closed to its user."""
    found, shape, nodes, n = _lacking(state, row, cycle), state.jobs.shape_row[row], state.nodes, state.nodes.n
    could = state.cluster.masks[state.shapes.mask[shape], :n] & ~nodes.forgotten[:n]
    could &= (nodes.capacity[:n] >= state.shapes.demand[shape]).all(axis=1)
    up, count = nodes.up[:n], int(state.jobs.waiting[row]) if state.jobs.gang[row] else 1
    most, with_drained = (hosts(state, shape, nodes.capacity[:n], drained) for drained in (False, True))
    would = most < count <= with_drained
    for which, how in ((~up, "lost"), (up & nodes.draining[:n] & (not most or would), "drained")):
        if names := [state.cluster.specs[node].name for node in np.flatnonzero(could & which).tolist()]:
            are, them = ("are", "them") if len(names) > 1 else ("is", "it")
            found["text"] += f"; {listed(names)}, which could hold {'it' if count == 1 else 'a task of it'}, {are} {how}"
            if how == "drained":
                enough = f"; with {them} the gang could start" if count > 1 and would else ""
                found["text"] += f"{enough}: `fairlead resume {names[0]}`"
    if found["reason"] != "constraint":
        found["text"] = "; ".join([found["text"], *closed_nodes(state, state.index.specs[int(state.jobs.id[row])])])
    return found


def _lacking(state: State, row: int, cycle: Cycle) -> dict[str, Any]:
    """Explain why no node takes the next task, or the gang: the closest node, and what it lacks."""
    jobs, nodes = state.jobs, state.nodes
    job, shape = int(jobs.id[row]), jobs.shape_row[row]
    demand = state.shapes.demand[shape]
    n = nodes.n
    up = nodes.up[:n] & ~nodes.draining[:n]
    meets = state.cluster.masks[state.shapes.mask[shape], :n]
    if not up.any():
        return _answer(job, "no room", "there is no node that takes tasks")
    if not (up & meets).any():
        return _answer(job, "constraint", no_such_node(state, state.index.specs[job]), on=state.index.specs[job].on)
    large = up & meets & (nodes.capacity[:n] >= demand).all(axis=1)
    kept = _kept_from(state, int(jobs.group[row]))
    # The closest: one that only lacks what is held for others; else the one that lacks the smallest part of the demand.
    starts = np.zeros_like(kept)
    np.add.at(starts, cycle.node, state.shapes.demand[jobs.shape_row[cycle.job]])
    free = nodes.free[:n] - starts
    room = (free if large.any() else nodes.capacity[:n]) - kept * large.any()
    lack = np.maximum(0, demand - np.maximum(0, room)) * (demand > 0)
    part = (lack / np.maximum(1, demand)).max(axis=1)
    part[(free >= demand).all(axis=1)] -= 1
    part[~(large if large.any() else up & meets)] = np.inf
    closest = int(np.argmin(part))
    name = state.cluster.specs[closest].name
    missing = {resource: int(lack[closest, r]) for r, resource in enumerate(state.resources) if lack[closest, r]}
    lacks = " and ".join(f"{round_quantity(resource, amount)} {resource}" for resource, amount in missing.items())
    more = {"node": name, "missing": missing}
    if not large.any():
        return _answer(job, "too large", f"no node is large enough, even empty: {name}, the closest, lacks {lacks}", **more)
    if jobs.gang[row] and jobs.waiting[row] > 1:
        where = ", each on a node of its own" if state.shapes.fit[shape] == APART else ""
        most = hosts(state, shape, nodes.capacity[:n])
        if most < jobs.waiting[row]:
            text = f"{NEVER}a gang of {jobs.waiting[row]}{where}, and all nodes, even empty, hold at most {most} of its tasks"
            return _answer(job, "too large", text, fits=most, needed=int(jobs.waiting[row]))
        fits = hosts(state, shape, free - kept)
        text = f"a gang of {jobs.waiting[row]} needs room for all its tasks at once{where}: there is room for {fits}"
        owners, who = _owners(state, row, np.flatnonzero(large & (kept > 0).any(axis=1)))
        text += f", not counting what is held for {who}" if owners else ""
        text += _in_offers(state, shape, free - kept, large, int(jobs.waiting[row]))
        return _answer(job, "gang does not fit", text, fits=fits, needed=int(jobs.waiting[row]), kept=owners)
    owners, who = _owners(state, row, np.array([closest]) if (kept[closest] > 0).any() else np.zeros(0, np.int64))
    if not missing:
        to_be_offered = "it is offered to a framework first" if state.groups.is_framework.any() else ""
        why = f"it is held for {who}" if who else to_be_offered or "it is held for another job" * bool(kept[closest].any())
        text = f"{name} has room, but {why}" if why else f"{name} has room: the job is placed at the next decision"
        return _answer(job, "no room", text, **more, kept=owners)
    besides = ["tasks that start there now"] if starts[closest][demand > 0].any() else []
    besides += [f"what is held for {who}"] if owners else []
    beside = f", not counting {' and '.join(besides)}" if besides else ""
    text = f"no node has room: {name}, the closest, lacks {lacks}{beside}{_in_offers(state, shape, free - kept, large)}"
    text += _in_reservations(state, free - kept, demand)
    return _answer(job, "no room", text, **more, kept=owners)


def _in_offers(state: State, shape: int, free: np.ndarray, large: np.ndarray, count: int = 1) -> str:
    """Return a note if `count` tasks would fit on large enough nodes together with what is offered to frameworks.

    It names one node for a task, all that would help for a gang.
    """
    offers, n = state.offers, state.offers.n
    offered = offered_of(offers, state.nodes.n)
    room = free + offered
    would = large & offered.any(axis=1) & (room >= state.shapes.demand[shape]).all(axis=1)
    if not would.any() or hosts(state, shape, room) < count:
        return ""
    nodes = np.flatnonzero(would)[: None if count > 1 else 1]
    whose = {state.tree.names[leaf] for leaf in offers.leaf[:n][np.isin(offers.node[:n], nodes)].tolist()}
    roles = sorted({written(queue_of(state.frameworks.at[leaf][1])) for leaf in whose})
    names = listed([state.cluster.specs[node].name for node in nodes.tolist()])
    return f"; the open offers on {names} to frameworks of {listed(roles)} would be enough"


def _in_reservations(state: State, free: np.ndarray, demand: np.ndarray) -> str:
    """Return a note if a task would fit on a node together with what roles reserved there and leave idle."""
    for name, here in state.frameworks.role_reservations.items():
        idle = {each.role: vector(each.idle, state.resources) for each in here.values() if each.there and each.idle}
        if idle and (free[state.cluster.rows[name]] + sum(idle.values()) >= demand).all():
            return f"; the reservations of {listed(sorted(idle))} on {name} are idle and would be enough"
    return ""


def _kept_from(state: State, group: int) -> np.ndarray:
    """Return what is held on each node against tasks of unlimited duration of this group; shape (nodes, resources)."""
    n, holds, v = state.nodes.n, state.holds, state.view()
    kept = state.nodes.held[:n].copy()
    for h in np.flatnonzero(holds.group[: holds.n] == group).tolist():
        node = int(holds.node[h])
        kept[node] = [scheduling.kept(v, node, r, inf, h, NONE) for r in range(len(state.resources))]
    return kept


def _owners(state: State, row: int, nodes: np.ndarray) -> tuple[list[dict[str, Any]], str]:
    """Return for whom resources of these nodes are held against a waiting job, by expected start; and as text."""
    found = []
    for kept in holds_by_job(state, 0.0):
        there = np.intersect1d(state.holds.node[np.flatnonzero(state.holds.group[: state.holds.n] == kept.group)], nodes)
        if kept.group != state.jobs.group[row] and len(there):
            names = [state.cluster.specs[node].name for node in there[:MOST_AHEAD]]
            queue = state.display_name(state.tree.names[kept.leaf])
            end = kept.end if kept.end < inf else None
            entry = {"job": kept.job, "queue": queue, "why": kept.why, "nodes": names, "start": kept.start, "end": end}
            found.append(entry)
    found.sort(key=lambda entry: (entry["start"], entry["job"]))
    words = [f"job {entry['job']} of {entry['queue']}" for entry in found[:3]]
    more = [f"{len(found) - 3} more"] if len(found) > 3 else []
    return found, ", ".join([*words, *more])


def _ahead_in_queue(state: State, cycle: Cycle, group: int) -> list[int]:
    """Return the jobs of the same leaf that wait for room and go first, in order: the first of each group."""
    leaf = state.groups.leaf[: state.groups.n]
    before = (leaf == leaf[group]) & (cycle.stop_order < cycle.stop_order[group]) & _waiting_for_room(state, cycle)
    rows = cycle.stop_job[before][np.argsort(cycle.stop_order[before])]
    return state.jobs.id[rows[:MOST_AHEAD]].tolist()


def _waiting_for_room(state: State, cycle: Cycle) -> np.ndarray:
    """Return, per group, whether it waits for room and could ever start."""
    return (cycle.stop == NO_NODE) & ~never_starting_groups(state)[: len(cycle.stop)]


def leaves_in_turn(state: State, cycle: Cycle, before: float = inf) -> list[int]:
    """Return the leaves that wait for room, in the order in which they are served; optionally those before a place in it."""
    groups = np.flatnonzero(_waiting_for_room(state, cycle) & (cycle.stop_order < before))
    return list(dict.fromkeys(state.groups.leaf[groups[np.argsort(cycle.stop_order[groups])]].tolist()))


def _ahead(state: State, cycle: Cycle, group: int) -> list[dict[str, Any]]:
    """Return the queues served before, in order, with their dominant shares, now and of past use."""
    q, mine, found = state.queues, int(state.groups.leaf[group]), []
    for leaf in [each for each in leaves_in_turn(state, cycle, cycle.stop_order[group]) if each != mine][:MOST_AHEAD]:
        share = float(dominant_share(q.used[leaf], state.cluster.total, q.divisor(leaf)))
        over_time = share_over_time(q, leaf, state.grain, state.cluster.total)
        name = state.display_name(state.tree.names[leaf])
        found.append({"queue": name, "dominant_share": share, "share_over_time": over_time})
    return found

"""Why a job waits: what it waits for, now, found by running the scheduling cycle on paper.

Nothing here is guessed: the reason is the one for which the very kernel that decides did not place the job's next task.
"""

from typing import Any

import numpy as np

from fairlead.model.quantity import format_quantity, round_quantity
from fairlead.model.specs import ancestors, written
from fairlead.policies.arithmetic import dominant_share
from fairlead.scheduler.admission import job_row
from fairlead.scheduler.decide import run_cycle
from fairlead.scheduler.history import share_over_time
from fairlead.scheduler.kernel_stops import LIMIT, MAX_JOBS, MAX_TASKS, NO_NODE
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import NONE

TOLD = 0.001
"""Shares over time that are smaller are not worth a word."""
MOST_AHEAD = 10
"""Queues and jobs that are ahead are counted, and so many of them named."""


def explain(state: State, job: int) -> dict[str, Any]:
    """Say why a job does not run, or runs in part only.

    Returns
    -------
    dict
        ``reason`` is one of ``over``, ``running``, ``held``,
        ``dependency``, ``gang is stopping``, ``turn``, ``limit``, ``max tasks``,
        ``max jobs``, ``constraint``, ``too large``, ``no room``, ``gang does not fit``, ``behind``, ``about to start``;
        ``text`` says it in a line; ``ahead`` names who is served before it, with their dominant shares, now and over time; the
        other keys hold
        what the text is made of, in base units.
    """
    row = job_row(state, job)
    jobs = state.jobs
    if not np.isnan(jobs.finished_at[row]):
        return _answer(job, "over", "it has ended: nothing of it waits")
    if jobs.waiting[row] == 0:
        return _answer(job, "running", "all its tasks run: nothing of it waits")
    if jobs.held[row]:
        return _answer(job, "held", f"it is held: `fairlead release {job}` lets it go")
    if job in state.dependencies.waits_for:
        words = {"success": "to succeed", "failure": "to fail", "end": "to end"}
        others = [after for after in state.index.specs[job].after if after.job in state.dependencies.waits_for[job]]
        text = "it comes after " + " and ".join(f"job {a.job}, which has {words[a.how]} first" for a in others)
        return _answer(job, "dependency", text, after=[a.job for a in others])
    bucket = int(jobs.bucket[row])
    if bucket == NONE:
        text = "one task of the gang was lost: it starts again when the others have stopped"
        return _answer(job, "gang is stopping", text)

    result = run_cycle(state)
    if row in result.job:
        return _answer(job, "about to start", "there is room, and it is its turn")
    stop = int(result.stop[bucket])
    tried = int(result.stop_job[bucket])
    if stop == LIMIT:
        return _over_a_limit(state, row)
    if stop in (MAX_TASKS, MAX_JOBS):
        return _over_a_count(state, row, stop == MAX_TASKS)
    if stop != NO_NODE:
        return _answer(job, "turn", "others are served first, and there is more to place than one cycle takes")
    ahead = _ahead(state, result.stop, result.stop_order, bucket)
    if tried != row:
        first = int(jobs.id[tried])
        found = _no_node(state, tried)
        text = f"job {first}, which is like it and was submitted before, is first: {found['text']}"
        return _answer(job, "behind", text, first=first, ahead=ahead)
    found = _no_node(state, row)
    if found["reason"] == "no room" and ahead:
        mine = share_over_time(state.queues, int(jobs.queue[row]), state.grain, state.cluster.total)
        told = max(mine, *(a["share_over_time"] for a in ahead)) >= TOLD
        over_time = [f" ({a['share_over_time']:.1%} over time)" if told else "" for a in ahead]
        names = [f"{a['queue']} at {a['dominant_share']:.1%}{more}" for a, more in zip(ahead, over_time, strict=True)]
        found["text"] += f"; when there is room, it is first the turn of {', '.join(names[:3])}"
        found["text"] += f"; its own queue had {mine:.1%} over time" if told else ""
    return {**found, "ahead": ahead}


def _answer(job: int, reason: str, text: str, **more: Any) -> dict[str, Any]:
    return {"job": job, "reason": reason, "text": text, "ahead": [], **more}


def _path(state: State, row: int) -> list[str]:
    leaf = state.tree.names[state.jobs.queue[row]]
    return [leaf, *ancestors(leaf)]


def _over_a_limit(state: State, row: int) -> dict[str, Any]:
    jobs, queues = state.jobs, state.queues
    demand = state.shapes.demand[jobs.shape_row[row]]
    count = int(jobs.waiting[row]) if jobs.gang[row] else 1
    for name in _path(state, row):
        q = state.tree.rows[name]
        for r, resource in enumerate(state.resources):
            wanted = int(demand[r]) * count
            if wanted and queues.used[q, r] + wanted > queues.limit[q, r]:
                used, limit = int(queues.used[q, r]), int(queues.limit[q, r])
                text = (
                    f"queue {written(name)} is limited to {format_quantity(resource, limit)} {resource}: it uses "
                    f"{round_quantity(resource, used)}, and this needs {round_quantity(resource, wanted)} more"
                )
                more = {"queue": written(name), "resource": resource, "limit": limit, "used": used, "needed": wanted}
                return _answer(int(jobs.id[row]), "limit", text, **more)
    raise AssertionError("the kernel found a limit that is not there")


def _over_a_count(state: State, row: int, tasks: bool) -> dict[str, Any]:
    jobs, queues = state.jobs, state.queues
    count = (int(jobs.waiting[row]) if jobs.gang[row] else 1) if tasks else 1
    running, most = (queues.tasks, queues.max_tasks) if tasks else (queues.jobs, queues.max_jobs)
    for name in _path(state, row):
        q = state.tree.rows[name]
        if running[q] + count > most[q]:
            what = "tasks" if tasks else "jobs"
            text = f"queue {written(name)} may run {most[q]} {what} at once, and {running[q]} run"
            more = {"queue": written(name), "running": int(running[q]), "limit": int(most[q])}
            return _answer(int(jobs.id[row]), "max tasks" if tasks else "max jobs", text, **more)
    raise AssertionError("the kernel found a bound that is not there")


def _no_node(state: State, row: int) -> dict[str, Any]:
    """Why no node takes the next task, or the whole gang; the closest node, and what it lacks."""
    jobs, nodes = state.jobs, state.nodes
    job, shape = int(jobs.id[row]), jobs.shape_row[row]
    demand = state.shapes.demand[shape]
    n = nodes.n
    up = nodes.up[:n] & ~nodes.draining[:n]
    meets = state.cluster.masks[state.shapes.mask[shape], :n]
    if not up.any():
        return _answer(job, "no room", "there is no node that takes tasks")
    if not (up & meets).any():
        wanted = " and ".join(f"{label}={'|'.join(values)}" for label, values in state.index.specs[job].on.items())
        return _answer(job, "constraint", f"no node has {wanted}", on=state.index.specs[job].on)
    large = up & meets & (nodes.capacity[:n] >= demand).all(axis=1)
    kept = np.zeros((n, len(demand)), np.int64)
    for bucket, reservation in state.reservations.items():
        if bucket != jobs.bucket[row]:
            for node, count in zip(reservation.nodes, reservation.tasks, strict=True):
                kept[node] += count * state.shapes.demand[state.buckets.shape_row[bucket]]
    # The closest: where the largest part of a demand that is missing is smallest.
    room = (nodes.free[:n] if large.any() else nodes.capacity[:n]) - kept * large.any()
    lack = np.maximum(0, demand - np.maximum(0, room)) * (demand > 0)
    part = (lack / np.maximum(1, demand)).max(axis=1)
    part[~(large if large.any() else up & meets)] = np.inf
    closest = int(np.argmin(part))
    name = state.cluster.specs[closest].name
    missing = {resource: int(lack[closest, r]) for r, resource in enumerate(state.resources) if lack[closest, r]}
    lacks = " and ".join(f"{round_quantity(resource, amount)} {resource}" for resource, amount in missing.items())
    more = {"node": name, "missing": missing}
    if not large.any():
        return _answer(
            job, "too large", f"no node is large enough, even empty: {name}, the closest, lacks {lacks}", **more
        )
    if jobs.gang[row] and jobs.waiting[row] > 1:
        asked = demand > 0
        fits = (np.maximum(0, (nodes.free[:n] - kept)[large][:, asked]) // demand[asked]).min(axis=1).sum()
        text = f"a gang of {jobs.waiting[row]} starts at once or not at all, and there is room for {fits}"
        return _answer(job, "gang does not fit", text, fits=int(fits), needed=int(jobs.waiting[row]))
    if not missing:
        return _answer(job, "no room", f"{name} has room, but it is kept for another job", **more)
    return _answer(job, "no room", f"no node has room: {name}, the closest, lacks {lacks}", **more)


def _ahead(state: State, stop: np.ndarray, order: np.ndarray, bucket: int) -> list[dict[str, Any]]:
    """The queues whose turn comes before, in order: each with its dominant share, and that over time."""
    q = state.queues
    found: dict[int, dict[str, Any]] = {}
    before = np.flatnonzero((stop == NO_NODE) & (order < order[bucket]))
    for b in before[np.argsort(order[before])]:
        leaf = int(state.buckets.leaf[b])
        if leaf != state.buckets.leaf[bucket] and leaf not in found and len(found) < MOST_AHEAD:
            share = float(dominant_share(q.used[leaf], state.cluster.total, q.weight[leaf]))
            over_time = share_over_time(q, leaf, state.grain, state.cluster.total)
            found[leaf] = {"queue": state.tree.names[leaf], "dominant_share": share, "share_over_time": over_time}
    return list(found.values())

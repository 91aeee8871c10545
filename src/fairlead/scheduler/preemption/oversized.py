"""Which victims of claims for guarantees are recorded as oversized, and for how long they are safe (rule: once-per-run).

A victim is recorded if its queue falls below its guarantee by it, or if it is so large that it leaves the guarantees of others no
room. The rest are no loss to their queues: they may be victims again whenever they run.
"""

import numpy as np

from fairlead.scheduler import facts
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.queue_tree import beside, by_weight, up_to_root
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import RUNNING
from fairlead.scheduler.tables import I64, NONE, Bools


def note_oversized(state: State, fact: facts.TasksRevoked, claim: facts.Claim) -> None:
    """Record which victims are oversized, and how long their later attempts run before they are victims again. All are stopping.

    That is the p90 of their run times if known, but twice what they ran by now at least, so that each gets done. A task that is
    within what its queue's weight entitles it to is not oversized, even if others are guaranteed all there is.
    """
    tasks = state.current_tasks(fact.attempts)
    began = state.tasks.started_at[tasks]  # or placed
    jobs, queues, n = state.jobs, state.queues, state.queues.n
    runs = queues.tasks[:n] > 0
    runs[up_to_root(queues, state.tree.rows[claim.queue])] = True
    most = state.cluster.open - beside(queues.guarantee[:n], queues.parent[:n])
    losses = _losses(state, tasks, claim) if claim.oversized else np.zeros(len(tasks), np.bool_)
    columns = state.job_rows(fact.job).tolist(), tasks.tolist(), (fact.at - began).tolist(), losses.tolist()
    for row, task, ran, is_loss in zip(*columns, strict=True):
        needs = state.shapes.demand[jobs.shape_row[row]] * (jobs.tasks[row] if jobs.gang[row] else 1)
        left = np.maximum(most[jobs.queue[row]], by_weight(queues, int(jobs.queue[row]), runs, state.cluster.open.astype(float)))
        if is_loss or (not jobs.revocable[row] and (needs > left).any()):
            usual = scheduling.p90_duration(state.view(), row)
            state.tasks.oversized[task] = True
            jobs.safe_for[row] = max(jobs.safe_for[row], 1.0, 2 * ran, usual if usual < np.inf else 0.0)


def _losses(state: State, tasks: I64, claim: facts.Claim) -> Bools:
    """Mark the victims by which a queue falls below its guarantee of something; all of them if a claim for a guarantee opens.

    They count one after another, the tasks of a gang together. A queue above the claim has gained it.
    """
    queues, jobs, b = state.queues, state.jobs, state.groups
    row = state.job_row(claim.job)
    group, path = int(jobs.group[row]), up_to_root(queues, int(jobs.queue[row]))
    has, gain = _will_have(state, tasks), np.zeros_like(queues.used[: queues.n])
    gain[path] = state.shapes.demand[b.shape_row[group]] * max(1, int(b.gang[group]))
    at_first, rows, found = has.copy(), state.job_rows_of(tasks), np.zeros(len(tasks), np.bool_)
    for unit in np.unique(np.where(jobs.gang[rows], -1 - rows, tasks)).tolist():
        mine = rows == -1 - unit if unit < 0 else tasks == unit
        row = int(rows[mine][0])
        line, needs = up_to_root(queues, int(jobs.queue[row]))[:-1], state.shapes.demand[jobs.shape_row[row]]
        least, had = queues.guarantee[line], has[line] + gain[line]
        has[[*line, 0]] -= needs * np.count_nonzero(mine)
        named = (least > 0) & (needs > 0) & (at_first[line] >= least)
        found[mine] = (named & (had >= least) & (has[line] + gain[line] < least)).any()
    view, used = state.view(), queues.used[: queues.n]
    for group in np.flatnonzero((b.head[: b.n] != NONE) & queues.guarded[b.leaf[: b.n]] & ~b.revocable[: b.n]).tolist():
        open_before, open_now = (scheduling.guarded_part(view, group, x - used)[0] != NONE for x in (at_first, has + gain))
        if open_now and not open_before:
            found[:] = True
    return found


def _will_have(state: State, victims: I64) -> I64:
    """Return what each queue will have, with what is kept for its claims, when all that is stopping has ended but the victims."""
    rows, n = state.held_rows(), state.queues.n
    rows = rows[(state.tasks.status[rows] > RUNNING) & ~np.isin(rows, victims)]
    jobs, found = state.job_rows_of(rows), state.queues.used[:n] + state.queues.claimed[:n]
    for row, count in zip(*np.unique(jobs, return_counts=True), strict=True):
        found[up_to_root(state.queues, int(state.jobs.queue[row]))] -= count * state.shapes.demand[state.jobs.shape_row[row]]
    return found


def forget_oversized(state: State, unguarded: Bools) -> None:
    """Forget which tasks were oversized in queues, by row, where nothing is guaranteed any more."""
    jobs = state.jobs
    for row in np.flatnonzero((jobs.id[: jobs.n] != NONE) & (jobs.safe_for[: jobs.n] > 0)).tolist():
        if jobs.queue[row] < len(unguarded) and unguarded[jobs.queue[row]]:
            jobs.safe_for[row] = 0.0
            state.tasks.oversized[jobs.first[row] : jobs.first[row] + jobs.tasks[row]] = False

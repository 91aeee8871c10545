"""Invariants of every state: all sums and lists that it keeps, recomputed from the tasks.

For tests, fuzzing, and a scheduler with ``FAIRLEAD_CHECK`` set; slow, since it reads every task.
"""

from typing import Any

import numpy as np

from fairlead.model.cards import cards_of
from fairlead.model.specs import ROOT, Quantities, Ranges, ancestors
from fairlead.scheduler.effects import ends_early
from fairlead.scheduler.framework_index import own_queue, plus
from fairlead.scheduler.frameworks.effects import wants_offers
from fairlead.scheduler.frameworks.reservations import RESERVED, count_of, joined
from fairlead.scheduler.job_caps import cap_of, waits_for_cap
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.kernel.constants import MAX_RESERVATIONS, P90_ONE_IN
from fairlead.scheduler.kernel.scheduling import set_of
from fairlead.scheduler.kernel.view import BLOCK, DIVIDED_SOMEWHERE, HDRF_SOMEWHERE, IN_ORDER, LEAVING
from fairlead.scheduler.queue_tree import up_to_root
from fairlead.scheduler.state import State, linked
from fairlead.scheduler.statuses import CANCELLED, FAILED, PLACED, REVOKING, RUNNING, SUCCEEDED, WAITING
from fairlead.scheduler.tables import APART, BINS, I64, NONE, OF_QUEUE, RESERVATION, vector


def check_invariants(state: State) -> None:
    """Recompute and compare. Raises AssertionError with the node, queue, group or job of which something kept is wrong."""
    assert state.view().scratches == 0, "a kernel kept the arrays that it worked in"
    _check_lists(state)
    _check_index(state)
    _check_jobs(state)
    _check_sums(state)
    _check_holds(state)
    _check_offers(state)
    _check_executors(state)
    _check_ports(state)
    _check_histograms(state)
    _check_admitted(state)
    check_order(state)


def _check_index(state: State) -> None:
    """The rows of jobs, the gangs with leaders and the tasks in executors are those of the submitted jobs."""
    index, jobs = state.index, state.jobs
    rows = {int(jobs.id[row]): row for row in np.flatnonzero(jobs.id[: jobs.n] != NONE).tolist()}
    kept = {index.first + place: row for place, row in enumerate(index.row_of.tolist()) if row != NONE}
    assert kept == rows, f"the rows of jobs are {rows}, not {kept}"
    led = {number for number, job in index.specs.items() if job.is_led}
    inside = {number for number, job in index.specs.items() if job.runs_in_executor}
    assert index.led == led, f"jobs {led} are gangs with leaders, not {index.led}"
    assert index.in_executors == inside, f"jobs {inside} run in executors, not {index.in_executors}"


def _check_admitted(state: State) -> None:
    """Under a cap, exactly those jobs are admitted that wait in a group or run. Others wait only if the cap is reached."""
    jobs, inside = state.jobs, dict[str, set[int]]()
    for row in np.flatnonzero((jobs.group[: jobs.n] != NONE) | (jobs.holding[: jobs.n] > 0)):
        job = state.index.specs[int(jobs.id[row])]
        if cap_of(state.settings, job) is not None:
            inside.setdefault(job.user, set()).add(int(jobs.id[row]))
    kept = {who: some for who, some in state.job_caps.inside.items() if some}
    assert kept == inside, f"jobs {inside} are admitted, not {kept}"
    for who, waits in state.job_caps.waits.items():
        most = state.settings.max_jobs_of.get(who, state.settings.max_jobs_of.get("*", 0))
        assert not waits or len(inside.get(who, ())) >= most, f"jobs {waits} of {who!r} wait below the cap of {most}"


def _check_lists(state: State) -> None:
    """Each group's list has its jobs by number, linked both ways, and counts those that already run."""
    jobs, groups = state.jobs, state.groups
    listed = 0
    for b in range(groups.n):
        previous, job, started = NONE, int(groups.head[b]), 0
        while job != NONE:
            what = f"job {jobs.id[job]} in group {b}"
            assert jobs.group[job] == b, f"{what}: is in {jobs.group[job]}"
            assert jobs.before[job] == previous, f"{what}: comes after another row than {previous}"
            assert previous == NONE or jobs.id[previous] < jobs.id[job], f"{what}: comes after a later job"
            listed += 1
            started += jobs.holding[job] > 0
            previous, job = job, int(jobs.after[job])
        assert groups.tail[b] == previous, f"group {b} ends with row {previous}, not {groups.tail[b]}"
        assert groups.started[b] == started, f"group {b} has {started} jobs that run, not {groups.started[b]}"
    entered = int((jobs.group[: jobs.n] != NONE).sum())
    assert entered == listed, f"{entered} jobs are in groups, and {listed} in their lists"


def _check_jobs(state: State) -> None:
    """A job's counts are those of its tasks, and it is in a group exactly if it may start."""
    jobs, n = state.jobs, state.jobs.n
    there = np.flatnonzero(jobs.id[:n] != NONE)
    whose, sizes = np.repeat(there, jobs.tasks[there]), jobs.tasks[there]
    task = np.arange(len(whose)) + np.repeat(jobs.first[there] - np.cumsum(sizes) + sizes, sizes)
    status = state.tasks.status[task]
    held = (status >= PLACED) & (status <= REVOKING)
    leaving, counted = np.count_nonzero(held & (status > RUNNING)), state.order.counts[LEAVING]
    assert leaving == counted, f"{leaving} tasks are stopping, not {counted}"
    assert (status[state.tasks.delayed[task]] == WAITING).all(), "a task is delayed that does not wait"
    counts = {"waiting": status == WAITING, "holding": held, "failed": status == FAILED, "cancelled": status == CANCELLED}
    counts["delayed"] = state.tasks.delayed[task]
    for name, which in counts.items():
        found, kept = np.bincount(whose[which], minlength=n)[there], getattr(jobs, name)[there]
        for k in np.flatnonzero(kept != found):
            raise AssertionError(f"job {jobs.id[there[k]]} has {found[k]} tasks {name}, not {kept[k]}")
    done = (status == SUCCEEDED) | (status == FAILED) | (status == CANCELLED)
    over = (np.bincount(whose[done], minlength=n)[there] == sizes).tolist()
    ended = {*state.ended_jobs().tolist()}
    for row, is_over in zip(there.tolist(), over, strict=True):
        job = int(jobs.id[row])
        assert is_over == (not np.isnan(jobs.finished_at[row])), f"job {job} is over: {is_over}, but its end differs"
        assert is_over == (job in ended), f"job {job} is over: {is_over}, but the list of ended jobs differs"
        may_start = (jobs.at_most[row] == 0 or jobs.holding[row] < jobs.at_most[row]) and jobs.waiting[row] > jobs.delayed[row]
        may_start = may_start and not (jobs.gang[row] and jobs.holding[row]) and not jobs.held[row]
        may_start = may_start and not ends_early(state, row)
        may_start = may_start and not state.dependencies.waits(job, state.index.specs[job]) and not waits_for_cap(state, job)
        assert (jobs.group[row] != NONE) == may_start, f"job {job} may start: {may_start}, but its group differs"
    apart = held & (state.shapes.fit[jobs.shape_row[whose]] == APART)
    on = list(zip(whose[apart].tolist(), state.tasks.node[task[apart]].tolist(), strict=True))
    assert len(set(on)) == len(on), f"tasks of gangs that go apart share nodes: {on}"
    lost = ~state.nodes.up[state.tasks.node[task[held]]]
    assert not lost.any(), f"jobs {jobs.id[whose[held][lost]]} are on a lost node"


def _check_sums(state: State) -> None:
    """What is free on nodes and used by queues adds up from the tasks that hold resources."""
    nodes, queues = state.nodes, state.queues
    tasks = state.held_rows()
    rows = state.job_rows_of(tasks)
    demand = state.shapes.demand[state.jobs.shape_row[rows]]
    used = np.zeros_like(nodes.capacity[: nodes.n])
    np.add.at(used, state.tasks.node[tasks], demand)
    offers = state.offers
    np.add.at(used, offers.node[: offers.n], offers.rest[: offers.n])
    apart = _check_role_reservations(state)
    for _, node, amount in apart:
        used[node] += amount
    for n, spec in enumerate(state.cluster.specs):
        free, found = nodes.free[n].tolist(), (nodes.capacity[n] - used[n]).tolist()
        assert free == found, f"node {spec.name} has {found} free, not {free}"
        _check_drained_cards(state, n)
        listed, there = sorted(linked(nodes.task[n], state.tasks.after)), tasks[state.tasks.node[tasks] == n].tolist()
        assert listed == there, f"node {spec.name} has tasks {there}, not {listed}"
    assert (state.tasks.job[tasks] == rows).all(), "a task that holds resources is another job's"
    closed, there = nodes.draining[: nodes.n, None], nodes.capacity[: nodes.n] - nodes.free[: nodes.n]
    total = np.where(closed, there, nodes.capacity[: nodes.n])[nodes.up[: nodes.n]].sum(axis=0).tolist()
    assert state.cluster.total.tolist() == total, f"the cluster has {total}, not {state.cluster.total.tolist()}"

    sums = {name: np.zeros_like(getattr(queues, name)) for name in ("used", "tasks", "jobs", "offered", "spare", "spare_tasks")}
    leaves, revocable = state.jobs.queue[rows], state.jobs.revocable[rows]
    promised, rest = offers.leaf[: offers.n], offers.rest[: offers.n]
    lent = offers.revocable[: offers.n]
    for name, where, what in (
        ("used", leaves, demand), ("used", promised, rest), ("offered", promised, rest),
        ("spare", leaves[revocable], demand[revocable]), ("spare", promised[lent], rest[lent]),
        ("tasks", leaves, 1), ("jobs", state.jobs.queue[np.unique(rows)], 1), ("spare_tasks", leaves[revocable], 1),
    ):  # fmt: skip
        np.add.at(sums[name], where, what)
    for role, _, amount in apart:
        sums["used"][state.tree.rows[f"{own_queue(role)}/{RESERVED}"]] += amount
    for name, q in state.tree.rows.items():
        above = NONE if name == ROOT else state.tree.rows[ancestors(name)[0]]
        assert queues.parent[q] == above, f"queue {name!r} is below row {above}, not {queues.parent[q]}"
    by_name = sorted(state.tree.rows.items())
    for above in {*queues.parent[1 : queues.n].tolist()}:
        ranks = [int(queues.rank[q]) for _, q in by_name if q and queues.parent[q] == above]
        assert ranks == sorted({*ranks}), f"queues below {state.tree.names[above]!r} are not ranked by name"
    for name, found in sums.items():
        for q in range(queues.n - 1, 0, -1):  # parents come before their children
            found[queues.parent[q]] += found[q]
        for q, queue in enumerate(state.tree.names):
            kept = getattr(queues, name)[q].tolist()
            assert kept == found[q].tolist(), f"queue {queue!r}: {name} is {found[q].tolist()}, not {kept}"
    _check_lending(state)


def _check_role_reservations(state: State) -> list[tuple[str, int, I64]]:
    """Reservations are used and offered as their tasks and offers say; returns role, node and amount of those that count."""
    f, found = state.frameworks, []
    has: dict[tuple[str, str], Quantities] = {}
    promised: dict[tuple[str, str], Quantities] = {}
    tasks = state.held_rows()
    for row, job in zip(tasks.tolist(), state.job_rows_of(tasks).tolist(), strict=True):
        node = state.cluster.specs[state.tasks.node[row]].name
        for mark, amount in state.index.specs[int(state.jobs.id[job])].apart.items():
            has[node, mark] = plus(has.get((node, mark), {}), amount)
    for offer, apart in f.offered_apart.items():
        place = int(state.offers.node[: state.offers.n][state.offers.id[: state.offers.n] == offer][0])
        for mark, amount in apart.items():
            at = state.cluster.specs[place].name, mark
            promised[at] = plus(promised.get(at, {}), amount)
    for node, here in f.role_reservations.items():
        for mark, reservation in here.items():
            used = has.pop((node, mark), {})
            assert reservation.taken == used, f"tasks do not use {reservation.taken} of reservation {mark} on {node}"
            assert reservation.offered == promised.pop((node, mark), {}), f"{reservation.offered} of {mark} is not offered"
            assert reservation.amount, f"reservation {mark} on {node} is empty"
            assert min(reservation.idle.values(), default=0) >= 0, f"reservation {mark} on {node} is used beyond its amount"
            if reservation.there:
                found.append((reservation.role, state.cluster.rows[node], vector(reservation.amount, state.resources)))
    assert not has, f"tasks use {has} of unknown reservations"
    assert not promised, f"{promised} is offered of unknown reservations"
    return found


def _check_ports(state: State) -> None:
    """On each node, tasks have the ports that they say, valid offers have the others, and no port is given twice."""
    f, tasks = state.frameworks, state.held_rows()
    has: dict[str, dict[int, Ranges]] = {}
    for row, job in zip(tasks.tolist(), state.job_rows_of(tasks).tolist(), strict=True):
        number = int(state.jobs.id[job])
        if ranges := state.index.specs[number].ports:
            has.setdefault(state.cluster.specs[state.tasks.node[row]].name, {})[number] = ranges
    assert f.ports == has, f"tasks have ports {has}, not {f.ports}"
    for node in f.ports | f.offered_ports:
        given = [each for held in (f.ports, f.offered_ports) for ranges in held.get(node, {}).values() for each in ranges]
        assert count_of(joined(given)) == count_of(given), f"ports {given} of {node} are given twice"
    for node, held in f.offered_ports.items():
        there = state.offers.id[: state.offers.n][state.offers.node[: state.offers.n] == state.cluster.rows[node]]
        assert {*held} <= {*there.tolist()}, f"ports of {node} are offered in offers {[*held]}, which are not valid"


def _check_lending(state: State) -> None:
    """What queues do not lend and do not use is kept from others; likewise for the queues below."""
    queues = state.queues
    below = np.zeros_like(queues.used)
    for q in range(queues.n - 1, -1, -1):
        found = np.maximum(below[q], queues.nonlendable[q] - queues.used[q] - queues.claimed[q]).tolist()
        kept = queues.idle_nonlendable[q].tolist()
        assert kept == found, f"queue {state.tree.names[q]!r} does not lend {found} to others, not {kept}"
        if q:
            below[queues.parent[q]] += queues.idle_nonlendable[q]


def _check_drained_cards(state: State, node: int) -> None:
    """Drained cards that nobody has are no part of the capacity, as far as there is room."""
    drained, in_use = {*state.drained_cards(node)}, set[int]()
    for task in linked(state.nodes.task[node], state.tasks.after):
        in_use |= {*cards_of(state.tasks.cards[task].tolist())}
    whole = state.cluster.specs[node].capacity.get("gpu", 0)
    there, free = (state.quantities(column[node]).get("gpu", 0) for column in (state.nodes.capacity, state.nodes.free))
    less = 1000 * len(drained - in_use)
    assert whole - there == min(less, free + whole - there), f"node {node} has {there} of {whole} gpu, drained {drained}"


def _check_holds(state: State) -> None:
    """Holds are for pending jobs, and follow the rule in `kernel/holds.pxi`."""
    holds, nodes, n = state.holds, state.nodes, state.holds.n
    tasks = state.held_rows()
    jobs = state.job_rows_of(tasks)
    demand, apart = state.shapes.demand[state.jobs.shape_row[jobs]], state.queues.apart[state.jobs.queue[jobs]]
    for node, spec in enumerate(state.cluster.specs):
        here = np.flatnonzero(holds.node[:n] == node)
        listed = linked(nodes.hold[node], holds.after)
        starts = np.where(holds.kind[here] == RESERVATION, holds.start[here], -np.inf)
        assert listed == here[np.argsort(starts, kind="stable")].tolist(), f"node {spec.name} has holds {here}, not {listed}"
        starts = np.sort(starts)
        on = state.tasks.node[tasks] == node
        claims: list[I64] = []
        for h, start in zip(listed, starts.tolist(), strict=True):
            counted = (apart >> holds.place[h]) & 1 == 0 if holds.place[h] != NONE else True
            back = demand[on & counted & (state.tasks.until[tasks] <= holds.start[h])].sum(axis=0)
            assert back.tolist() == holds.back[h].tolist(), f"on node {spec.name} {back} is expected back, not {holds.back[h]}"
            most = np.max([np.zeros(len(back), np.int64), *claims], axis=0)
            claims.append(holds.amount[np.array(listed)[starts <= start]].sum(axis=0) - back)
            idle = np.minimum(nodes.free[node], np.maximum(most, claims[-1])) - np.minimum(nodes.free[node], most)
            assert idle.tolist() == holds.idle[h].tolist(), f"on node {spec.name} {idle} is idle, not {holds.idle[h]}"
        found = np.max([np.zeros(len(state.resources), np.int64), *claims], axis=0).tolist()
        kept = nodes.held[node].tolist()
        assert found == kept, f"on node {spec.name} {found} is held for jobs, not {kept}"
    claimed = scheduling.kept_for_claims(state.view())
    assert (state.queues.claimed[: state.queues.n] == claimed).all(), f"{claimed} is held for claims, by queue"
    _check_promises(state)


def _check_promises(state: State) -> None:
    """Each reservation is for one task or gang, each claim's holds for some; lines count the tasks that are reserved for."""
    holds, n = state.holds, state.holds.n
    reserved = np.zeros(state.queues.n, np.int64)
    for group, number in sorted({*zip(holds.group[:n].tolist(), holds.number[:n].tolist(), strict=True)}):
        mine = np.flatnonzero((holds.group[:n] == group) & (holds.number[:n] == number))
        assert mine[-1] - mine[0] == len(mine) - 1, f"the holds of group {group} are {mine}, not adjacent"
        assert state.groups.head[group] != NONE, f"nodes are held for group {group}, where no job waits"
        gang, kinds = int(state.groups.gang[group]), holds.kind[mine]
        assert len(set(kinds.tolist())) == 1, f"group {group} has holds of kinds {kinds}"
        assert (number == NONE) == (kinds[0] != RESERVATION), f"group {group} has holds of kind {kinds[0]} as number {number}"
        kept = holds.tasks[mine]
        assert (kept > 0).all(), f"group {group} has holds for {kept} tasks"
        if state.shapes.fit[state.groups.shape_row[group]] == APART:
            assert len(set(holds.node[mine].tolist())) == kept.sum(), f"group {group} goes apart, and has holds for {kept} tasks"
        if gang or kinds[0] == RESERVATION:
            assert kept.sum() == max(1, gang), f"group {group} has holds for {kept} tasks, not {max(1, gang)}"
        if kinds[0] == RESERVATION:
            reserved[scheduling.line_of_leaf(state.view(), state.groups.leaf[group])] += kept.sum()
        assert (holds.amount[mine] == holds.tasks[mine][:, None] * state.shapes.demand[state.groups.shape_row[group]]).all()
        for name in ("start", "end", "slips", "planned", "place"):
            assert len(set(getattr(holds, name)[mine].tolist())) == 1, f"group {group} has holds that differ in {name}"
    assert (reserved == state.queues.reserved[: state.queues.n]).all(), f"{reserved} tasks have reservations, by line"
    places = {*holds.place[:n][holds.kind[:n] == RESERVATION].tolist()}
    assert len(places) <= MAX_RESERVATIONS, f"there are {len(places)} reservations, over {MAX_RESERVATIONS}"
    bits = sum(1 << place for place in places)
    assert not (state.queues.apart[: state.queues.n] & ~bits).any(), f"leaves are apart for others than {[*places]}"
    listed = state.queues.line[1 : 1 + state.queues.listed[0]].tolist()
    assert sorted(listed) == np.flatnonzero(state.queues.in_list[: state.queues.n]).tolist(), f"{listed} are listed"
    b = state.groups
    waits = np.flatnonzero((b.head[: b.n] != NONE) | b.is_framework[: b.n])
    pending = np.bincount(b.leaf[waits], minlength=state.queues.n)
    assert (pending == state.queues.pending[: state.queues.n]).all(), f"{pending} groups wait, by leaf"
    needs = (state.shapes.demand[b.shape_row[waits]] > 0) | b.is_framework[waits, np.newaxis]
    needing = np.zeros((state.queues.n, needs.shape[1]), np.int64)
    np.add.at(needing, b.leaf[waits], needs)
    assert (needing == state.queues.needing[: state.queues.n]).all(), f"{needing} groups wait for each resource, by leaf"
    assert pending.sum() == state.queues.waits[0], f"{pending.sum()} groups wait, not {state.queues.waits[0]}"
    assert waits.sum() == state.queues.who_waits[0], f"groups {waits.tolist()} wait: their sum is not {state.queues.who_waits[0]}"


def _check_offers(state: State) -> None:
    """Offers are to connected frameworks, which are in groups exactly if they want offers; refusals are linked to leaves."""
    f, offers, refusals = state.frameworks, state.offers, state.refusals
    ids = offers.id[: offers.n].tolist()
    assert ids == sorted({*ids}), f"offers {ids} are not in order"
    assert max([*ids, *f.void], default=0) <= f.last_offer, f"offer {ids[-1:]} is after the last, {f.last_offer}"
    for leaf, node in zip(offers.leaf[: offers.n].tolist(), offers.node[: offers.n].tolist(), strict=True):
        who, _ = f.at[state.tree.names[leaf]]
        assert f.members[who].away_since is None, f"framework {who} is away, and is offered something"
        assert state.nodes.up[node], f"framework {who} is offered a node that is lost"
    wanted = {
        state.tree.rows[leaf]
        for who, member in f.members.items()
        for role, leaf in member.leaves.items()
        if wants_offers(state, who, role)
    }
    waits = state.groups.leaf[: state.groups.n][state.groups.is_framework[: state.groups.n]].tolist()
    assert sorted(waits) == sorted(wanted), f"frameworks wait for offers in leaves {waits}, not {wanted}"
    for leaf in range(state.queues.n):
        listed, row = [], int(state.queues.refusal[leaf])
        while row:
            listed.append(row - 1)
            row = int(refusals.after[row - 1])
        mine = np.flatnonzero(refusals.leaf[: refusals.n] == leaf).tolist()
        assert sorted(listed) == mine, f"leaf {leaf} has refusals {mine}, not {listed}"
    for who, tasks in f.tasks.items():
        for task, launched in tasks.items():
            assert f.task_of[launched.job] == (who, task), f"job {launched.job} is task {task!r} of framework {who}"
            assert launched.updates or not launched.over, f"task {task!r} of framework {who} is over and acknowledged"


def _check_executors(state: State) -> None:
    """Tasks in executors are on their nodes, of their frameworks, and hold resources; ended empty executors are removed."""
    f = state.frameworks
    assert f.inside == {job: n for n, each in f.executors.items() for job in each.tasks}, f"{f.inside} are inside"
    for number, executor in f.executors.items():
        assert executor.tasks or not executor.over, f"executor {number} is over and empty"
        for job in [*executor.tasks, *([] if executor.over else [number])]:
            row, spec = state.jobs.first[state.job_row(job)], state.index.specs[job]
            assert (spec.framework, spec.executor) == (executor.framework, executor.name), f"job {job} is in {number}"
            assert PLACED <= state.tasks.status[row] <= REVOKING, f"job {job} of executor {number} holds nothing"
            node = state.cluster.specs[state.tasks.node[row]].name
            assert node == executor.node, f"job {job} of executor {number} is on {node}, not {executor.node}"


def _check_histograms(state: State) -> None:
    """Each histogram has one place, in its set, and its counts add up."""
    histograms, n = state.histograms, state.histograms.n
    sets, ways = np.nonzero(histograms.places != NONE)
    places = zip(histograms.places[sets, ways].tolist(), sets.tolist(), strict=True)
    what = list(zip(histograms.about[:n].tolist(), histograms.key[:n].tolist(), strict=True))
    assert len(set(what)) == n, "two histograms are about the same"
    assert sorted(places) == [(row, set_of(*what[row])) for row in range(n)], "a histogram has another place than its own"
    assert (histograms.total[:n] == histograms.counts[:n].sum(axis=1)).all(), "the counts of a histogram are not its total"
    assert (histograms.counts[:n] >= 0).all(), "a histogram counts less than nothing"
    for row in range(n):
        longest_first = np.repeat(np.arange(BINS), histograms.counts[row])[::-1]
        allowed = (len(longest_first) + 1) // P90_ONE_IN
        found = int(longest_first[allowed - 1]) if allowed else NONE
        assert histograms.p90[row] == found, f"the p90 bin of histogram {row} is {found}, not {histograms.p90[row]}"
    queues = histograms.key[:n][histograms.about[:n] == OF_QUEUE]
    assert (queues < state.queues.n).all(), "a histogram is about an unknown queue"


def check_order(state: State) -> None:
    """Compare the order with one rebuilt from the tables, and its bounds with the nodes.

    For tests and FAIRLEAD_CHECK. Brings the order up to date, which changes no decision. Raises AssertionError with the queue,
    group or node for which the order is wrong.
    """
    order, counts = state.order, state.order.counts
    if counts[IN_ORDER]:
        v = order.view(state)
        if not counts[HDRF_SOMEWHERE] and not counts[DIVIDED_SOMEWHERE]:  # these rebuild all trees each cycle
            scheduling.refresh(v)
            kept = _order_contents(state)
            scheduling.rebuild(v)
            rebuilt = _order_contents(state)
            for queue, part in kept:
                before, after = kept[queue, part], rebuilt[queue, part]
                assert before == after, f"queue {queue!r}: the order has {part} {before}, rebuilt {after}"
        if not counts[HDRF_SOMEWHERE]:  # it tries all groups, parked or not
            _check_parked(v, state)
        _check_bounds(state)


def _order_contents(state: State) -> dict[tuple[str, str], Any]:
    """Return what the order has for each queue: its tree, from the root on, and its key if jobs wait."""
    order, cache = state.order, state.order.queues
    found: dict[tuple[str, str], Any] = {}
    for q, name in enumerate(state.tree.names):
        tree = slice(cache.base[q] + 1, cache.base[q] + 2 * cache.slots[q])
        for part in ("best", "may_fit", "least", "needs", "cells"):
            found[name, part] = (order.least if part == "least" else order.trees[part])[tree].tolist()
        if q and order.trees["best"][tree.start] != NONE:
            for part in ("below", "first", "level", "column", "last_served"):
                found[name, part] = getattr(cache, part)[q].item()
            found[name, "charged"] = cache.charged[q].tolist()
        if q:
            found[name, "active"] = bool(cache.active[q])
        found[name, "active_weight"] = cache.active_weight[q].tolist()
    return found


def _check_parked(v: Any, state: State) -> None:
    """A parked group fits on no node but freed ones, unless its queue may be stale, or it is a gang with holds."""
    order, groups = state.order, state.groups
    for b in np.flatnonzero(order.groups.parked[: groups.n] & ~groups.is_framework[: groups.n]):
        queues = up_to_root(state.queues, int(groups.leaf[b]))
        bound = order.groups.keeping[b] and groups.gang[b]
        if groups.head[b] != NONE and not bound and not order.queues.maybe_stale[queues].any():
            count, shape = max(1, int(groups.gang[b])), groups.shape_row[b]
            stale = np.flatnonzero(~order.nodes.is_freed[: state.nodes.n])
            room = sum(int(scheduling.room_for(v, n, shape, count)) for n in stale.tolist())
            where = f"queue {state.tree.names[queues[0]]!r}"
            assert room < count, f"{where}: group {b} is parked, and {room} tasks of it fit on nodes that are not marked freed"


def _check_bounds(state: State) -> None:
    """No node has more free than the bounds of its block."""
    order, nodes = state.order, state.nodes
    for n in np.flatnonzero(nodes.up[: nodes.n] & ~nodes.draining[: nodes.n]):
        room = nodes.free[n] - nodes.held[n]
        for bounds, size in ((order.bounds, BLOCK), (order.large_bounds, BLOCK * BLOCK)):
            bound = bounds[n // size]
            assert (room <= bound).all(), f"node {state.cluster.specs[n].name} has {room} free, and its block {bound}"

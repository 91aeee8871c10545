"""Accounting: what facts about tasks do to the tables.

Resources are taken and given back, and jobs enter and leave their pending groups. The file ends with helpers that
translate columns of facts to rows.

Each `apply_*` function goes through the columns of one fact. It returns -1 when all is applied. If a task is not in the
status that the fact implies, it stops and returns the position.
"""


cdef void _note_event(View v) noexcept nogil:
    """Note that a task starts or ends, or a job comes."""
    v.queues[0].events += 1
    v.counts[NEWS] += 1
    v.times[SERVED_AT] = -INFINITY


cpdef void note_arrival(View v, i64 group, double at) noexcept nogil:
    """Note that a job of a group comes, held or not: a replay holds it only once it has come."""
    begin_moment(v, at)
    _note_event(v)
    leaf = v.groups[group].leaf
    if v.queues[leaf].pending == 0:
        enlist(v, line_of(v, leaf))
        v.times[WAITS_AT] = at


cpdef void enter_group(View v, i64 job, i64 group, double at) noexcept nogil:
    """Insert a job into its group's list by job number. New jobs come last; returned ones are near the front."""
    jobs, groups = v.jobs, v.groups
    begin_moment(v, at)
    v.counts[NEWS] += 1
    if groups[group].head == NONE:
        groups[group].since, groups[group].retry_at = at, 0.0
        note_pending(v, group, 1)
    expect_claim(v, group, at)
    after, before = NONE, groups[group].tail
    if before != NONE and jobs[before].id > jobs[job].id:
        after, before = groups[group].head, NONE
        while after != NONE and jobs[after].id < jobs[job].id:
            before, after = after, jobs[after].after
    jobs[job].after, jobs[job].before, jobs[job].group = after, before, group
    if before == NONE:
        groups[group].head = job
    else:
        jobs[before].after = job
    if after == NONE:
        groups[group].tail = job
    else:
        jobs[after].before = job
    if jobs[job].holding > 0:
        groups[group].started += 1
    if v.counts[IN_ORDER]:
        touch_group(v, group)


cpdef void leave_group(View v, i64 job, double at) noexcept nogil:
    """Remove a job from its group, and drop the group's holds if they were for it or the group is empty."""
    jobs, groups = v.jobs, v.groups
    group, after, before = jobs[job].group, jobs[job].after, jobs[job].before
    v.counts[NEWS] += 1
    if before == NONE:
        groups[group].head = after
    else:
        jobs[before].after = after
    if after == NONE:
        groups[group].tail = before
    else:
        jobs[after].before = before
    if jobs[job].holding > 0:
        groups[group].started -= 1
    jobs[job].group = NONE
    jobs[job].after = NONE
    jobs[job].before = NONE
    if groups[group].head == NONE:
        note_pending(v, group, -1)
    if v.counts[HOLDS] > 0 and (groups[group].head == NONE or (groups[group].gang > 0 and served_tasks(v, group) > 0)):
        drop_holds(v, group, NONE, at)
    elif v.counts[HOLDS] > 0 and before == NONE:
        hand_on(v, group, at)
    if v.counts[IN_ORDER]:
        if groups[group].head == NONE:
            v.group_cache[group].parked = False  # an empty group is not searched for room
        touch_group(v, group)


cdef i64 apply_placed(View v, i64 count, i64 *job, i64 *index, i64 *attempt, i64 *node, bint more, double at) noexcept nogil:
    """Apply TasksPlaced; `job` holds rows."""
    cdef i64 m = v.len_total
    jobs, tasks = v.jobs, v.tasks
    begin_moment(v, at)
    for k in range(count):
        j, n = job[k], node[k]
        if j < 0 or index[k] < 0 or index[k] >= jobs[j].tasks or n < 0 or n >= v.counts[NODES] or not v.nodes[n].up:
            return k
        t = jobs[j].first + index[k]
        if tasks[t].status != WAITING or attempt[k] != tasks[t].attempt + 1:
            return k
        demand = &v.demand[jobs[j].shape_row * m]
        for r in range(m):
            if demand[r] > 0 and v.free[n * m + r] < demand[r]:
                return k
        tasks[t].status = TRANSITIONS[WAITING][PLACE]
        tasks[t].attempt = attempt[k]
        tasks[t].node = n
        tasks[t].started_at = NAN
        jobs[j].waiting -= 1
        jobs[j].holding += 1
        jobs[j].next = max(jobs[j].next, index[k] + 1)
        _set_expected_end(v, j, t, n, at)
        group = jobs[j].group
        used = NONE
        if v.counts[HOLDS] > 0 and group != NONE:
            used = hold_to_use(v, group, j, node + k, min(count - k, max(1, v.groups[group].gang)), at)
        _take_of_node(v, n, j, t, 1, at)
        if group != NONE:
            if jobs[j].holding == 1:
                v.groups[group].started += 1
            if v.counts[HOLDS] > 0:
                use_hold(v, group, n, used, at)
            note_passing(v, jobs[j].queue)
            if startable(v, j) == 0 or jobs[j].gang:
                leave_group(v, j, at)
            elif v.counts[IN_ORDER]:
                touch_group(v, group)
    if not more:
        v.times[SERVED_AT] = at
    return -1


cdef void _set_expected_end(View v, i64 j, i64 t, i64 n, double at) noexcept nogil:
    """Set when a task placed on a node with holds is assumed to have ended."""
    v.tasks[t].until = NAN
    if v.nodes[n].hold == NONE:
        return
    lasts = lasts_at_most(v, j, p90_duration(v, j))
    v.tasks[t].until, v.tasks[t].trusted = at + lasts, lasts < v.jobs[j].time_limit
    if v.tasks[t].trusted:
        v.queues[v.jobs[j].queue].trusted += 1


cdef void _take_of_node(View v, i64 n, i64 j, i64 t, i64 sign, double at) noexcept nogil:
    """Take the demand of task t of job j from node n (sign 1), or give it back (-1); `holding` is up to date already."""
    cdef i64 m = v.len_total
    cdef bint first, has_holds
    demand = &v.demand[v.jobs[j].shape_row * m]
    first = v.jobs[j].holding == (1 if sign > 0 else 0)
    has_holds = v.nodes[n].hold != NONE
    if sign > 0:
        link_task(v, n, j, t)
    else:
        _unlink_task(v, n, t)
    if has_holds:
        count_idle(v, n, at)
    for r in range(m):
        v.free[n * m + r] -= sign * demand[r]
    if has_holds:
        give_back_at(v, n, v.jobs[j].queue, v.jobs[j].shape_row, v.tasks[t].until, sign)
        set_idle(v, n)
    q = v.jobs[j].queue
    note_lack(v, q, at)
    _note_event(v)
    if sign < 0 and v.queues[line_of(v, q)].debt > 0.0:
        enlist(v, line_of(v, q))
    if v.counts[IN_ORDER]:
        touch_queue(v, q)
        if sign < 0:
            room_came_back(v, n)
    turn = v.queues[0].served + 1
    while q != NONE:
        p = v.queues[q].parent
        if p != NONE and v.queues[p].tick > 0.0:
            count_use(v, q, at)
        for r in range(m):
            v.used[q * m + r] += sign * demand[r]
            if v.jobs[j].revocable:
                v.spare[q * m + r] += sign * demand[r]
        if sign < 0 and v.queues[q].guaranteed:
            note_fall(v, q, demand, at)
        v.queues[q].tasks += sign
        if v.jobs[j].revocable:
            v.queues[q].spare_tasks += sign
        if sign > 0 and v.queues[q].spare_tasks > 0 and is_above_limit(v, v.used, q):
            v.times[CLAIM_DUE] = min(v.times[CLAIM_DUE], at)  # a pending job may claim that back now
        if first:
            v.queues[q].jobs += sign
        if sign > 0:
            note_served(v, q, turn, not v.jobs[j].once)  # else counted when the room was offered
        q = p
    if sign > 0:
        note_beyond(v, j)
    if v.queues[0].has_nonlendable:
        set_idle_nonlendable(v, v.jobs[j].queue)
    if sign > 0 and v.jobs[j].revocable:
        v.times[CLAIM_DUE] = min(v.times[CLAIM_DUE], at)


cdef void link_task(View v, i64 n, i64 j, i64 t) noexcept nogil:
    """Add task t of job row j to a node's list."""
    tasks, after = v.tasks, v.nodes[n].task
    tasks[t].job, tasks[t].after, tasks[t].before = j, after, NONE
    if after != NONE:
        tasks[after].before = t
    v.nodes[n].task = t


cdef void _unlink_task(View v, i64 n, i64 t) noexcept nogil:
    tasks, after, before = v.tasks, v.tasks[t].after, v.tasks[t].before
    if before == NONE:
        v.nodes[n].task = after
    else:
        tasks[before].after = after
    if after != NONE:
        tasks[after].before = before


cdef i64 apply_started(View v, i64 count, i64 *job, i64 *index, i64 *attempt, double at) noexcept nogil:
    """Apply TasksStarted; `job` holds rows."""
    jobs, tasks = v.jobs, v.tasks
    for k in range(count):
        j = job[k]
        if j < 0 or index[k] < 0 or index[k] >= jobs[j].tasks:
            return k
        t = jobs[j].first + index[k]
        now = TRANSITIONS[tasks[t].status][START]
        if tasks[t].attempt != attempt[k] or now == IMPOSSIBLE:
            return k
        tasks[t].status = now
        tasks[t].started_at = at
    return -1


cdef i64 apply_finished(
    View v, i64 count, i64 *job, i64 *index, i64 *attempt, i64 *outcome, i64 *code, double at, i64 max_losses, i64 *touched
) noexcept nogil:
    """Apply the end of attempts; `job` holds rows. `touched[k]` is set to the row of a job that is not plain and needs more work.

    :data:`fairlead.scheduler.statuses.TRANSITIONS` gives the next status. A lost task waits again until it was lost
    `max_losses` times, a failed one until it failed more often than its job's `retries`.
    """
    cdef i64 m = v.len_total
    cdef bint idle
    jobs, tasks = v.jobs, v.tasks
    begin_moment(v, at)
    for k in range(count):
        touched[k] = NONE
        j = job[k]
        if j < 0 or index[k] < 0 or index[k] >= jobs[j].tasks:
            return k
        t = jobs[j].first + index[k]
        was = tasks[t].status
        if tasks[t].attempt != attempt[k] or was < PLACED or was > REVOKING:
            return k
        how = _outcome_of(v, j, t, outcome[k], code[k])
        event = _end_event(v, j, t, how, code[k], max_losses)
        now = TRANSITIONS[was][event]
        jobs[j].holding -= 1
        v.counts[LEAVING] -= was > RUNNING
        idle = jobs[j].holding == 0
        if idle and jobs[j].group != NONE:
            v.groups[jobs[j].group].started -= 1
            if v.counts[IN_ORDER]:
                touch_group(v, jobs[j].group)
        if v.nodes[tasks[t].node].hold != NONE:
            note_overrun(v, j, t, at)
        _take_of_node(v, tasks[t].node, j, t, -1, at)
        tasks[t].trusted = False
        if _ended_by_itself(was, how, code[k]):
            whose = note_duration(v, j, index[k], at - tasks[t].started_at, at)
            if whose != P90_SAME and v.counts[IN_ORDER]:
                invalidate_estimates(v, j, whose)
        tasks[t].status = now
        tasks[t].outcome = TIME_LIMIT if was == EXPIRING and event != DONE else how
        tasks[t].code = code[k]
        tasks[t].finished_at = at if now != WAITING else NAN
        if now == WAITING:
            jobs[j].waiting += 1
            jobs[j].irregular = True
        elif now == FAILED:
            jobs[j].failed += 1
        elif now == CANCELLED:
            jobs[j].cancelled += 1
        if jobs[j].group != NONE and (now == WAITING or jobs[j].at_most > 0):
            expect_claim(v, jobs[j].group, at)
        if now == WAITING or idle or jobs[j].at_most > 0 or (now == FAILED and v.shapes[jobs[j].shape_row].fit == APART):
            if jobs[j].plain:
                _settle(v, j, at)
            else:
                touched[k] = j
    return -1


cdef i64 _outcome_of(View v, i64 j, i64 t, i64 outcome, i64 code) noexcept nogil:
    """Return an attempt's outcome: a task that its node stopped, not the scheduler, is lost if it exits 0, unless its job is done then."""
    running = v.tasks[t].status in (PLACED, RUNNING)
    return LOST if outcome == STOPPED and code == 0 and running and not v.jobs[j].exit_done and not v.jobs[j].once else outcome


cdef i64 _end_event(View v, i64 j, i64 t, i64 outcome, i64 code, i64 max_losses) noexcept nogil:
    """Return the event of the table of transitions for an attempt's end."""
    tasks = v.tasks
    if outcome == UNUSED or (outcome == EXITED and code == 0):
        return DONE
    if v.jobs[j].once:
        return GIVE_UP
    if outcome == STOPPED and code == 0:
        return DONE if v.jobs[j].exit_done and tasks[t].status not in (STOPPING, EXPIRING) else YIELDED
    if outcome == NOT_STARTED:
        return NOT_BEGUN
    if outcome == LOST:
        if code == 0:  # else its node has no account for it, and is closed to its user now
            tasks[t].losses += 1
        return GIVE_UP if tasks[t].losses >= max_losses else LOSE
    if tasks[t].status in (PLACED, RUNNING) and tasks[t].failures < v.jobs[j].retries:
        tasks[t].failures += 1
        return RETRY
    return FAIL


cdef bint _ended_by_itself(i64 was, i64 outcome, i64 code) noexcept nogil:
    """Return True if an attempt's duration counts: it was not cut short, except by its time limit."""
    if outcome in (LOST, NOT_STARTED):
        return False
    return was == EXPIRING or (was == RUNNING and outcome != STOPPED) or (outcome == EXITED and code == 0)


cdef void _settle(View v, i64 j, double at) noexcept nogil:
    """After tasks of a plain job ended or returned: end the job, or let it wait in its group if it may run more at once."""
    if v.jobs[j].waiting > 0:
        if v.jobs[j].group == NONE and not v.jobs[j].held and startable(v, j) > 0:
            enter_group(v, j, v.jobs[j].home, at)
    elif v.jobs[j].holding == 0:
        end_job(v, j, at)


def submitted(View v, i64 first, const i64[::1] groups, double at):
    """Note new jobs, in the rows from `first` on, and let them wait in these groups."""
    for k in range(groups.shape[0]):
        note_arrival(v, groups[k], at)
        enter_group(v, first + k, groups[k], at)


cpdef void end_job(View v, i64 j, double at) noexcept nogil:
    """End a job. `ended` has room for it."""
    if isnan(v.jobs[j].finished_at):
        v.jobs[j].finished_at = at
        v.ended[v.counts[ENDED]] = v.jobs[j].id
        v.counts[ENDED] += 1
        if v.jobs[j].tasks > 1:
            expire_histogram(v, v.jobs[j].id)


def placed(View v, const i64[::1] job, const i64[::1] index, const i64[::1] attempt, const i64[::1] node, bint more, double at):
    """Return :func:`apply_placed`."""
    return apply_placed(v, job.shape[0], <i64 *>&job[0], <i64 *>&index[0], <i64 *>&attempt[0], <i64 *>&node[0], more, at)


def started(View v, const i64[::1] job, const i64[::1] index, const i64[::1] attempt, double at):
    """Return :func:`apply_started`."""
    return apply_started(v, job.shape[0], <i64 *>&job[0], <i64 *>&index[0], <i64 *>&attempt[0], at)


def finished(
    View v, const i64[::1] job, const i64[::1] index, const i64[::1] attempt, const i64[::1] outcome, const i64[::1] code,
    double at, i64 max_losses, i64[::1] touched,
):
    """Return :func:`apply_finished`."""
    return apply_finished(
        v, job.shape[0], <i64 *>&job[0], <i64 *>&index[0], <i64 *>&attempt[0], <i64 *>&outcome[0], <i64 *>&code[0],
        at, max_losses, &touched[0],
    )


def link_tasks(View v, const i64[::1] tasks, const i64[::1] jobs):
    """Link all nodes' lists from the tasks that hold resources, and their job rows."""
    for n in range(v.counts[NODES]):
        v.nodes[n].task = NONE
    for k in range(tasks.shape[0]):
        link_task(v, v.tasks[tasks[k]].node, jobs[k], tasks[k])


def add_waiting(View v, const flag[::1] but, double[:, ::1] wanted, i64[::1] tasks):
    """Add to each queue the demand and number of tasks that wait below it and may start, except jobs marked in `but`."""
    cdef i64 m = v.len_total, b, j, q, r, count
    for b in range(v.counts[GROUPS]):
        j, count = v.groups[b].head, 0
        while j != NONE:
            if but.shape[0] == 0 or not but[j]:
                count += startable(v, j)
            j = v.jobs[j].after
        q = v.groups[b].leaf if count > 0 else NONE
        while q != NONE:
            tasks[q] += count
            for r in range(m):
                wanted[q, r] += count * v.demand[v.groups[b].shape_row * m + r]
            q = v.queues[q].parent


def rows_of(const i64[::1] job, i64 first, const i64[::1] row_of_job):
    """Return the rows of jobs, NONE if unknown; `row_of_job[0]` belongs to job number `first`."""
    found = np.empty(job.shape[0], np.int64)
    cdef i64[::1] rows = found
    for k in range(job.shape[0]):
        rows[k] = row_of_job[job[k] - first] if 0 <= job[k] - first < row_of_job.shape[0] else NONE
    return found


def current_tasks(
    View v, const i64[::1] job, const i64[::1] index, const i64[::1] number, i64 first, const i64[::1] row_of_job
):
    """Return the task rows of current attempts, NONE for others; `first` and `row_of_job` as in :func:`rows_of`."""
    found = rows_of(job, first, row_of_job)
    cdef i64[::1] tasks = found
    for k in range(job.shape[0]):
        row, tasks[k] = tasks[k], NONE
        if row != NONE and 0 <= index[k] < v.jobs[row].tasks:
            task = v.jobs[row].first + index[k]
            status = v.tasks[task].status
            if v.tasks[task].attempt == number[k] and PLACED <= status <= REVOKING:
                tasks[k] = task
    return found


def first_mentions(View v, const i64[::1] tasks, i64 status):
    """Return the positions where each task row with this status (NONE: any) occurs first, in order. NONE is no row."""
    chosen = np.zeros(tasks.shape[0], np.uint8)
    cdef unsigned char[::1] is_chosen = chosen
    cdef i64[::1] order
    cdef bint rising = True
    last = NONE
    for k in range(tasks.shape[0]):
        if tasks[k] != NONE and (status == NONE or v.tasks[tasks[k]].status == status):
            is_chosen[k] = True
            rising &= tasks[k] > last
            last = tasks[k]
    if not rising:
        order = np.argsort(tasks, kind="stable")
        for k in range(1, order.shape[0]):
            if tasks[order[k]] == tasks[order[k - 1]]:
                is_chosen[order[k]] = False
    return np.flatnonzero(chosen)


def limited(View v, const i64[::1] rows):
    """Return the positions of the jobs with a time limit."""
    return np.array([k for k in range(rows.shape[0]) if v.jobs[rows[k]].time_limit < INFINITY], np.int64)


def chosen_attempts(View v, i64 count):
    """Return what a cycle placed as columns (job, index, number, node), and True if some jobs have gaps.

    The waiting tasks of a job with gaps are not consecutive: its index and number are not final.
    """
    found = np.empty((4, count), np.int64)
    cdef i64[:, ::1] columns = found
    cdef bint gaps = False
    for k in range(count):
        row, index = v.planned_job[k], v.planned_index[k]
        number = 0
        if v.jobs[row].irregular:
            gaps = True
        else:
            number = v.tasks[v.jobs[row].first + index].attempt + 1
        columns[0, k], columns[1, k], columns[2, k] = v.jobs[row].id, index, number
        columns[3, k] = v.planned_node[k]
    return found, gaps

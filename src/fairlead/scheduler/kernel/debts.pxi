"""Debts: what each queue is owed for the time in which it had less than its part, and was waiting.

    level   L = max((P + H) / W, (P - S + H') / W')     among the children of a queue, for each resource
            P: the queue's part, less what is not lent below it by who is not hungry, and what such children use
            W: weights of its other active children, W': of the **hungry**, which wait for more
            H, H': what these are charged for past use; S: what those use that are not hungry
    part    p = L * w - h; within guarantee and limit. h is at most what there is, times half of w / W for the queue and each above
    lack    l = least of p - used over the resources that each waiting job needs, as a fraction of what there is. One that cannot
            have more of a resource, by a limit or since that is not lent, may be owed room for jobs that do not need it
    debt    d grows by l / p * time, and shrinks to max(l, -b) / p * T at least, T: how long its tasks last, 0 if that is
            unknown; b: what the task, or gang, that started last took beyond the part, 0 if nobody else waited; 0 for a queue that
            neither waits nor runs at a count, or did not for longer than its patience. So it is in seconds, and who runs nothing
            is owed a second more each second, whatever the weight.
            Who starts a task beyond its part works that off before it is owed room again, but not what it ran before
            others came. It is never below -T / p, with p as a share: what a task as large as the cluster takes

- **Line**: a leaf, or the highest queue above it that serves its children in the order of their jobs (fifo, priority). Debts
  are of lines; such a queue's children have what it lacks in common.
- **Asked**: lines are asked whether they are owed room in moments of which the first event comes once as many tasks have started or
  ended, or jobs come, as run; once a count is late by the least patience of those who wait; and after a gang started in its
  reservation, or a node with reserved room was lost. But there is at least one event for LINES_PER_EVENT active queues. Only
  then is anybody given a reservation. Once tasks were placed and all are served that can be (TasksPlaced without `more`), nobody
  is asked again before something happens.
- **Counting**: what lines have lacked is added up, by need, in the first such moment from

      min over the lines that wait of t + min(s, (s - d mod s) / rate), or their `put_off` if that is earlier

  s is the line's patience, more if its debt is a multiple of that (`_step`), t when its debt d was last added up, and the rate l / p by
  the parts of that moment; 1 if none is known.
  So a count is due within s of the last one, or of the moment when the line began to wait. Since a debt grows by at most 1 s a second, what is added
  between two counts is wrong by at most s. Then it is added up for the lines for which that time has come, and for those on the list.
  It is for all lines, and all parts are computed, if other queues are hungry or active than when parts were last computed, somebody runs tasks and
  is not hungry, something is not lent, or a few ticks of past use are over. Where nobody waits nothing is counted, nor without a budget.
  All of it follows from the facts.
  What a leaf lacked is also added up, by those parts, before a task of it starts or ends, and before it begins or ceases to wait. Else
  who ran a task between two counts would be owed as if they had not, and who came, as if they had waited.
- **Ties**: where siblings' shares tie, who is owed more goes first, once after each count: debt times part, of all lines below, if a
  debt is a part of its work. So heavy queues with large tasks keep a node that was drained for them. Under other policies, such as
  fairtree, a key may not rise with what is served: siblings take turns. Without a budget the order is the policy's alone.
- **List**: the lines that are asked. A line owed its patience is listed if by a count its debt has passed another step (`_step`), or one
  of its tasks started or ended since lines were last asked. A line that is put off is listed by counts until that is over. A count puts off
  one that runs tasks, waits with several groups and is owed less, for its patience: then its oldest job is asked for. Listed
  in this moment is also who gets a job while nothing of it waits, and whose oldest job may have been passed. The root's `listed` is its length.
"""


cdef bint is_by_jobs(View v, i64 q) noexcept nogil:
    """Return True if a queue serves its children in the order of their jobs, whatever they use."""
    return v.queues[q].policy == FIFO or v.queues[q].policy == BY_PRIORITY


cdef i64 line_of(View v, i64 leaf) noexcept nogil:
    """Return the line of a leaf."""
    q = leaf
    while q > 0 and is_by_jobs(v, v.queues[q].parent):
        q = v.queues[q].parent
    return q


def line_of_leaf(View v, i64 leaf):
    """Return :func:`line_of`."""
    return line_of(v, leaf)


cdef void enlist(View v, i64 x) noexcept nogil:
    """Put a line on the list of those that may be owed something."""
    if v.times[IDLE_BUDGET] > 0.0 and not v.queues[x].in_list and v.queues[0].listed + 1 < v.counts[QUEUES]:
        v.queues[x].in_list = True
        v.queues[0].listed += 1
        v.queues[v.queues[0].listed].line = x


cpdef void note_pending(View v, i64 b, i64 more) noexcept nogil:
    """Note that a group has jobs, or wants offers, now (1) or no more (-1). A framework may need any resource."""
    leaf = v.groups[b].leaf
    if v.queues[leaf].pending == (0 if more > 0 else 1):
        note_lack(v, leaf, v.times[MOMENT])
        if more > 0:
            _note_coming(v, line_of(v, leaf), leaf, v.times[MOMENT])
    _count_group(v, b, more)
    if more > 0 and v.queues[leaf].pending == 1:
        enlist(v, line_of(v, leaf))


cdef void _note_coming(View v, i64 x, i64 leaf, double at) noexcept nogil:
    """Note that a line begins to wait in a leaf: from now on, if it is owed nothing yet. What it did not wait for is not added up."""
    if v.queues[x].debt <= 0.0:
        _owe_nothing(v, x, at)
    if x != leaf and v.queues[x].tasks == 0:
        for q in range(v.counts[QUEUES]):
            if v.queues[q].pending > 0 and line_of(v, q) == x:
                return
        v.queues[x].debt_at = at


cdef void _owe_nothing(View v, i64 x, double at) noexcept nogil:
    """Note that a line is owed nothing until now."""
    v.queues[x].owed_since, v.queues[x].wasted = at, 0.0
    if x != 0:
        v.queues[x].idled_then = v.queues[0].idled_then - idled_in_a_day(v, at)


cdef void _count_group(View v, i64 b, i64 more) noexcept nogil:
    """Count a group that waits, or waits no more, and what each of its leaf's groups needs; if they have nothing in common, what any does."""
    cdef i64 m = v.len_total
    leaf, shape, all_need, some_need = v.groups[b].leaf, v.groups[b].shape_row, 0, 0
    v.queues[leaf].pending += more
    v.queues[0].waits += more
    v.queues[0].who_waits += more * b
    for r in range(m):
        v.needing[leaf * m + r] += more if v.groups[b].is_framework or v.demand[shape * m + r] > 0 else 0
        some_need |= needs_bit(r) if v.needing[leaf * m + r] > 0 else 0
        all_need |= needs_bit(r) if v.needing[leaf * m + r] == v.queues[leaf].pending else 0
    if v.queues[leaf].pending > 0:
        v.queues[leaf].wants = all_need if all_need != 0 else some_need


cpdef void count_pending(View v) noexcept nogil:
    """Compute `pending` of all leaves, what they want, `waits`, `who_waits`, and `reserved` of all lines."""
    v.queues[0].waits = v.queues[0].who_waits = 0
    for q in range(v.counts[QUEUES]):
        v.queues[q].pending = v.queues[q].reserved = 0
        for r in range(v.len_total):
            v.needing[q * v.len_total + r] = 0
    for h in range(v.counts[HOLDS]):
        if v.holds[h].kind == RESERVATION:
            v.queues[line_of(v, v.groups[v.holds[h].group].leaf)].reserved += v.holds[h].tasks
    for b in range(v.counts[GROUPS]):
        if v.groups[b].head != NONE or v.groups[b].is_framework:
            _count_group(v, b, 1)


cdef void note_passing(View v, i64 leaf) noexcept nogil:
    """Note that a task was placed: it may have passed the oldest job of its line."""
    x = line_of(v, leaf)
    if x != leaf or v.queues[leaf].pending > 1 or v.queues[x].debt > 0.0:
        enlist(v, x)


cpdef void begin_moment(View v, double at) noexcept nogil:
    """Before anything of a moment happens, decide whether lines are asked in it, and count debts if needed."""
    if at > v.times[MOMENT]:
        if v.queues[0].listed > 0:
            _shorten_list(v, at)
        v.times[MOMENT] = at
        if v.times[IDLE_BUDGET] > 0.0 and _is_time_to_ask(v, at):
            v.times[ASKED_AT], v.queues[0].events = at, 0
            if v.queues[0].waits == 0 and v.times[DEBTS_AT] > -INFINITY:
                v.times[DUE_AT] = v.times[LEAST_PATIENCE] = INFINITY
            elif at >= v.times[DUE_AT] or v.times[DEBTS_AT] == -INFINITY:
                _count_debts(v, at)


cdef bint _is_time_to_ask(View v, double at) noexcept nogil:
    """Return True if enough has happened since lines were asked (rule: asked), or a count of debts is late by the patience of who waits."""
    if v.queues[0].events < v.queues[0].line // LINES_PER_EVENT:
        return False
    return v.queues[0].events >= v.queues[0].tasks or at >= v.times[DUE_AT] + v.times[LEAST_PATIENCE]


cdef bint is_asked(View v) noexcept nogil:
    """Return True if lines on the list are asked now whether they are owed room: not once a cycle has served all."""
    return v.times[ASKED_AT] >= v.times[MOMENT] and v.times[SERVED_AT] == -INFINITY


cdef void _shorten_list(View v, double at) noexcept nogil:
    """Once a moment is over, leave on the list who is owed and was not asked in it, and note when who waits needs a count."""
    cdef bint asked = v.times[ASKED_AT] >= v.times[MOMENT]
    count, v.queues[0].listed = v.queues[0].listed, 0
    for k in range(count):
        x = v.queues[k + 1].line
        v.queues[x].in_list = False
        if _waits(v, x):
            least = patience(v, x)
            part, lack = _part_and_lack(v, x)
            _note_need(v, x, least, part, lack)
            if not asked and v.queues[x].put_off <= at and (v.queues[x].debt >= least or v.queues[x].reserved > 0):
                enlist(v, x)


cdef bint _waits(View v, i64 x) noexcept nogil:
    """Return True if a line has jobs that are not placed, even beyond its limits; of one of several leaves, always."""
    return v.queues[x].pending > 0 or is_by_jobs(v, x)


cdef void _note_need(View v, i64 x, double least, double part, double lack) noexcept nogil:
    """Note when a line that waits needs a count, by the formula above."""
    step = _step(least, v.queues[x].debt)
    after = step - fmod(v.queues[x].debt, step) if least > 0.0 else 0.0
    if part > LEAST_SHARE:  # else it is not known yet: a debt grows by at most 1 s a second
        after = min(step, after * part / lack) if lack > 0.0 else step
    due = after + max(v.queues[x].debt_at, v.times[DEBTS_AT])
    v.queues[x].due_at = min(due, v.queues[x].put_off) if v.queues[x].put_off > 0.0 else due
    v.times[LEAST_PATIENCE] = min(v.times[LEAST_PATIENCE], least)
    v.times[DUE_AT] = min(v.times[DUE_AT], v.queues[x].due_at)


cdef double _step(double least, double debt) noexcept nogil:
    """Return by how much a debt grows until its line is asked again: its patience, or an eighth to a quarter of a debt of 8 of these."""
    cdef int octave = 0
    if debt > 8.0 * least > 0.0:
        frexp(debt / (4.0 * least), &octave)
    return least * (<i64>1 << min(max(0, octave - 1), 62))


cdef void _count_debts(View v, double at) noexcept nogil:
    """Add up what lines have lacked (rule: counted): those that need it, or, if parts may have changed, all by new parts."""
    cdef bint changed
    n, mark = v.counts[QUEUES], v.scratches
    owed, hungry = floats(v, n), flags(v, 4 * n)
    active, lines, moved = hungry + n, hungry + 2 * n, hungry + 3 * n
    v.counts[NEWS] += 1
    v.times[DUE_AT] = v.times[LEAST_PATIENCE] = INFINITY
    for k in range(v.queues[0].listed):
        x = v.queues[k + 1].line
        moved[x], v.queues[x].in_list = True, False
    v.queues[0].listed = 0
    _note_hungry(v, hungry, active, lines)
    changed = not _are_parts_valid(v, hungry, active, at)
    if changed:
        v.queues[0].line = 0
        _set_parts(v, hungry, active)
    _note_longest(v, lines)
    for x in range(n):
        if changed and active[x]:
            v.queues[0].line += 1
        if lines[x] and not active[x]:
            v.queues[x].debt = v.queues[x].put_off = v.queues[x].wasted = 0.0
        elif lines[x]:
            if changed or moved[x] or at >= v.queues[x].due_at:
                _count_debt(v, x, hungry[x], moved[x], at)
            v.times[DUE_AT] = min(v.times[DUE_AT], v.queues[x].due_at)
            least = patience(v, x)
            if _waits(v, x):
                v.times[LEAST_PATIENCE] = min(v.times[LEAST_PATIENCE], least)
            if hungry[x] and v.queues[x].debt >= least and v.queues[x].debt > 0.0:
                owed[x] = v.queues[x].debt * _part_and_lack(v, x)[0]
    if changed:
        v.times[DEBTS_AT] = at
    for q in range(n - 1, 0, -1):
        p = v.queues[q].parent
        owed[p] += owed[q]
        _set_owed(v, q, <i64>(1e6 * owed[q]) if compares_shares(v.queues[p].policy) else 0)
    release(v, mark)


cdef void _note_longest(View v, flag *lines) noexcept nogil:
    """Note how long the longest tasks last of the lines that run any; of the root, if that is not a line itself."""
    longest = 0.0
    for x in range(1, v.counts[QUEUES]):
        if lines[x] and v.queues[x].tasks > 0:
            longest = max(longest, v.queues[x].lasts)
    if not lines[0]:
        v.queues[0].lasts = longest


cdef bint _are_parts_valid(View v, flag *hungry, flag *active, double at) noexcept nogil:
    """Return True if parts depend on nothing that has changed since they were computed, but for a few ticks of past use."""
    cdef bint same
    same = not v.queues[0].has_nonlendable and v.times[DEBTS_AT] > -INFINITY
    for q in range(v.counts[QUEUES]):
        standing = <i64>hungry[q] + active[q]
        same &= standing == v.queues[q].standing and standing != 1  # what is used by who is not hungry counts
        same &= v.queues[q].tick == 0.0 or at < v.times[DEBTS_AT] + PARTS_TICKS * v.queues[q].tick
        v.queues[q].standing = standing
    return same


cdef void _count_debt(View v, i64 x, bint hungry, bint moved, double at) noexcept nogil:
    """Add up what an active line lacked, and list it if it is to be asked; `moved` if a task of it has started or ended."""
    before = v.queues[x].debt
    part, lack = _add_lack(v, x, hungry, at)
    least = patience(v, x) if _waits(v, x) else INFINITY
    if hungry and v.queues[x].debt >= least and v.queues[x].debt > 0.0:
        step = _step(least, v.queues[x].debt)
        if moved or least == 0.0 or floor(before / step) < floor(v.queues[x].debt / step):
            enlist(v, x)
    if hungry and v.queues[x].put_off == 0.0 and v.queues[x].debt < least < INFINITY and v.queues[x].pending > 1 and v.queues[x].tasks > 0:
        v.queues[x].put_off = at + least  # others of it may run in place of its oldest
    if hungry and v.queues[x].put_off > 0.0:
        enlist(v, x)
    if v.queues[x].put_off <= at:
        v.queues[x].put_off = 0.0
    v.queues[x].due_at = INFINITY
    if least < INFINITY:
        _note_need(v, x, least, part, lack)


cdef (double, double) _add_lack(View v, i64 x, bint hungry, double at) noexcept nogil:
    """Add up what a line has lacked, or had more, since that was added up; return its part, if it waits or is owed, and what it lacks."""
    passed, part, lack = at - max(v.queues[x].debt_at, v.times[DEBTS_AT]), 0.0, 0.0
    if v.times[DEBTS_AT] == -INFINITY:  # never counted
        passed = 0.0
    v.queues[x].debt_at = at
    if hungry or v.queues[x].debt != 0.0:
        part, lack = _part_and_lack(v, x)
        before, now = v.queues[x].debt, v.queues[x].debt + lack / part * passed
        if lack < 0.0:
            v.queues[x].debt = max(now, min(before, max(lack, -v.queues[x].beyond) / part * v.queues[x].lasts if hungry else 0.0))
        elif hungry or before < 0.0:
            v.queues[x].debt = now if hungry else min(now, 0.0)
        v.queues[x].debt = max(v.queues[x].debt, -v.queues[x].lasts / part)  # the part may have grown
    if v.queues[x].debt <= 0.0:
        _owe_nothing(v, x, at)
    return part, lack


cdef void note_lack(View v, i64 leaf, double at) noexcept nogil:
    """Add up what a line that is a leaf lacked before it uses more or less, or begins or ceases to wait, if its part is known.

    One that neither waited nor ran for longer than its patience is owed nothing.
    """
    since = max(v.queues[leaf].debt_at, v.times[DEBTS_AT])
    if at > since > -INFINITY and leaf > 0 and not is_by_jobs(v, v.queues[leaf].parent):
        if v.queues[leaf].pending == 0 and v.queues[leaf].tasks == 0 and v.queues[leaf].debt > 0.0 and at - since > patience(v, leaf):
            v.queues[leaf].debt = v.queues[leaf].put_off = 0.0
        for r in range(v.len_total):
            if v.due[leaf * v.len_total + r] > 0.0:
                _add_lack(v, leaf, v.queues[leaf].pending > 0 and _may_run_more(v, leaf), at)
                return
        if v.queues[leaf].pending == 0:
            v.queues[leaf].debt_at = at


cdef void note_beyond(View v, i64 j) noexcept nogil:
    """Note what a task of job row j, or its gang, took beyond its line's part once it is placed."""
    if v.times[IDLE_BUDGET] > 0.0:
        x = line_of(v, v.jobs[j].queue)
        excess = -_part_and_lack(v, x)[1] if v.queues[0].waits > v.queues[x].pending else 0.0  # it may have all that nobody wants
        v.queues[x].beyond = max(0.0, min(size_held(v, j), excess))


cdef double size_held(View v, i64 j) noexcept nogil:
    """Return the dominant share of a task of job row j, or of what its gang holds."""
    return share_of(v, &v.demand[v.jobs[j].shape_row * v.len_total]) * (v.jobs[j].holding if v.jobs[j].gang else 1)


cdef void _set_owed(View v, i64 q, i64 owed) noexcept nogil:
    """Note what a queue and those below it are owed, by which ties are broken."""
    if v.queues[q].owed != owed:
        v.queues[q].owed = owed
        if v.counts[IN_ORDER]:
            v.queue_cache[q].last_served = turn_of(v, q)
            set_turn(v, q)


cdef double patience(View v, i64 x) noexcept nogil:
    """Return the debt from which a line gets reservations (rule: patience): how long its tasks last; 0 if that is unknown.

    While it runs nothing, a part of that, or of how long those last that run: who drains a node for it waits no longer than that.
    """
    lasts, longest = v.queues[x].lasts, v.queues[0].lasts
    if v.queues[x].tasks > 0:
        return lasts
    return PATIENCE * (min(lasts, longest) if longest > 0.0 else lasts)


cdef void _note_hungry(View v, flag *hungry, flag *active, flag *lines) noexcept nogil:
    """Note which queues are hungry and active, and which are lines with jobs; and what these want."""
    inner, waits = flags(v, v.counts[QUEUES]), flags(v, v.counts[QUEUES])
    for q in range(v.counts[QUEUES] - 1, -1, -1):
        p = v.queues[q].parent
        if not inner[q]:
            hungry[q] = v.queues[q].pending > 0
            x = line_of(v, q)
            lines[x] = True
            if x != q and hungry[q]:  # what each of the line's leaves wants, as far as they have something in common
                both = v.queues[x].wants & v.queues[q].wants if waits[x] else v.queues[q].wants
                v.queues[x].wants, waits[x] = both if both != 0 else v.queues[x].wants, True
        hungry[q] = hungry[q] and _may_run_more(v, q)
        active[q] = active[q] or hungry[q] or v.queues[q].tasks > 0
        if p != NONE:
            inner[p] = True
            hungry[p] |= hungry[q]
            active[p] |= active[q]


cdef bint _may_run_more(View v, i64 q) noexcept nogil:
    return v.queues[q].tasks < v.queues[q].max_tasks and v.queues[q].jobs < v.queues[q].max_jobs


cdef void _set_parts(View v, flag *hungry, flag *active) noexcept nogil:
    """Compute the parts of all queues; parents precede their children."""
    cdef i64 m = v.len_total, n = v.counts[QUEUES]
    weight, size = floats(v, 10 * n * m), n * m
    hungry_weight, sated, before = weight + size, weight + 2 * size, weight + 3 * size
    charged, hungry_charged, levels = weight + 4 * size, weight + 5 * size, weight + 6 * size
    kept, taken = weight + 7 * size, weight + 8 * size  # not lent by who is not hungry: of a queue with those below, and with what they use
    most = weight + 9 * size  # the bound of what is charged, as a part of the cluster
    for q in range(n - 1, 0, -1):
        p = v.queues[q].parent
        for r in range(m):
            i, j = q * m + r, p * m + r
            if not hungry[q]:
                kept[i] = v.idle_nonlendable[i]
            kept[j] += kept[i]
            taken[j] += kept[i]
            if not hungry[q] and kept[i] > 0.0:
                taken[j] += v.used[i]
            elif active[q]:
                weight[j] += v.weight[i]
                if hungry[q]:
                    hungry_weight[j] += v.weight[i]
                else:
                    sated[j] += v.used[i]
    for r in range(m):
        most[r] = 1.0
    for q in range(1, n):
        p = v.queues[q].parent
        for r in range(m if active[q] else 0):
            i, j = q * m + r, p * m + r
            most[i] = most[j] * (1.0 if is_by_jobs(v, p) else 0.5 * v.weight[i] / max(v.weight[i], weight[j]))
            if compares_shares(v.queues[p].policy) and v.queues[p].tick > 0.0:
                if hungry[q] or kept[i] == 0.0:
                    before[i] = min(mean_now(v, q, r) / 4, v.total[r] * most[i])
                    charged[j] += before[i]
                if hungry[q]:
                    hungry_charged[j] += before[i]
    for q in range(n):
        p = v.queues[q].parent
        for r in range(m):
            i, j = q * m + r, p * m + r
            if q == 0 or not active[q]:
                due = <double>v.total[r] if q == 0 else 0.0
            elif is_by_jobs(v, p):
                due = v.used[i] + (max(0.0, v.due[j] - kept[j] - v.used[j]) if hungry[q] else 0.0)
            else:
                due = max(0.0, levels[j] * v.weight[i] - before[i]) + (kept[i] if hungry[q] else 0.0)
            v.due[i] = _within(v, i, due)
            if weight[i] > 0.0:
                lent = max(0.0, v.due[i] - taken[i])
                levels[i] = (lent + charged[i]) / weight[i]
                if hungry_weight[i] > 0:
                    levels[i] = max(levels[i], (lent - sated[i] + hungry_charged[i]) / hungry_weight[i])


cdef double _within(View v, i64 i, double due) noexcept nogil:
    """Return a part within guarantee and limit."""
    due = max(due, <double>v.guarantee[i])
    return due if v.limit[i] == UNLIMITED else min(due, <double>v.limit[i])


cdef double lack_of(View v, i64 x, i64 needs) noexcept nogil:
    """Return what a line lacks of the resources that it needs (bits), as a fraction of what there is; negative: it has more."""
    cdef i64 m = v.len_total
    lack = INFINITY
    for r in range(m):
        if v.total[r] > 0 and needs & needs_bit(r):
            lack = min(lack, (_part_of(v, x, r) - v.used[x * m + r]) / v.total[r])
    return lack if lack < INFINITY else 0.0


cdef double _part_of(View v, i64 x, i64 r) noexcept nogil:
    """Return a line's part of a resource.

    If parts are of before a leaf began to wait, it is at most what its weight entitles it to now; half of that if it had none.
    """
    i = x * v.len_total + r
    due = v.due[i]
    if v.counts[RESERVES] and v.times[WAITS_AT] >= v.times[DEBTS_AT]:  # in a cycle the order says who is active
        entitled = v.total[r] * entitled_part(v, x, r, 1.0)
        due = _within(v, i, min(due, entitled) if due > 0 else 0.5 * entitled)
    return due


cdef double size_of(View v, i64 b) noexcept nogil:
    """Return the dominant share of a group's next task, or whole gang."""
    cdef i64 m = v.len_total
    return max(1, v.groups[b].gang) * share_of(v, &v.demand[v.groups[b].shape_row * m])


cdef double share_of(View v, i64 *amount) noexcept nogil:
    """Return the dominant share of an amount."""
    share = 0.0
    for r in range(v.len_total):
        if v.total[r] > 0:
            share = max(share, <double>amount[r] / v.total[r])
    return share


cdef double in_parts(View v, i64 x, double share) noexcept nogil:
    """Return a share as a multiple of a line's part, so that lines of different weights compare. Only for a cycle that reserves."""
    know(v, x)
    return share / v.queue_cache[x].due_share


cdef void know(View v, i64 x) noexcept nogil:
    """Compute what a line lacks and its part, unless they are known."""
    cache = v.queue_cache
    if cache[x].known != v.counts[NEWS]:
        cache[x].known = v.counts[NEWS]
        cache[x].due_share, cache[x].lack = _part_and_lack(v, x)


cdef (double, double) _part_and_lack(View v, i64 x) noexcept nogil:
    """Return a line's part of what it wants most of, as a share, never 0; and what it lacks of all that it wants."""
    cdef i64 m = v.len_total
    part, lack = LEAST_SHARE, INFINITY
    for r in range(m):
        if v.total[r] > 0 and v.queues[x].wants & needs_bit(r):
            due = _part_of(v, x, r)
            part, lack = max(part, due / v.total[r]), min(lack, (due - v.used[x * m + r]) / v.total[r])
    return part, lack if lack < INFINITY else 0.0


cdef double due_to(View v, i64 x, i64 b) noexcept nogil:
    """Return what a line lacks, and a task more if it is owed what the next of this group takes.

    A line with gangs is due the room of those that run as well (rule: gangs): their tasks do not end together, so others would have
    it. Twice what it has beyond its part is subtracted.
    """
    lack, size = lack_of(v, x, needs_of(v, v.groups[b].shape_row)), size_of(v, b)
    due = max(lack, 0.0) + size if is_owed_a_task(v, x, b, current_job(v, b)) else lack
    return due + max(0.0, in_gangs(v, x) + 2 * min(lack, 0.0)) if v.groups[b].gang > 0 and due > 0.0 else due


cdef double in_gangs(View v, i64 x) noexcept nogil:
    """Return the dominant share of what the gangs of a line use."""
    cdef i64 m = v.len_total
    mark, used = v.scratches, integers(v, m)
    for n in range(v.counts[NODES] if v.queues[x].tasks > 0 else 0):
        t = v.nodes[n].task
        while t != NONE:
            j = v.tasks[t].job
            for r in range(m if v.jobs[j].gang and line_of(v, v.jobs[j].queue) == x else 0):
                used[r] += v.demand[v.jobs[j].shape_row * m + r]
            t = v.tasks[t].after
    share = share_of(v, used)
    release(v, mark)
    return share


cdef bint is_owed_a_task(View v, i64 x, i64 b, i64 job) noexcept nogil:
    """Return True if a line is owed what a task like the next of a group, of a job row, takes while it lasts.

    If nobody knows how long they last, the longest tasks of the lines that run some count.
    """
    lasts = p90_duration(v, job)
    if lasts == INFINITY:
        lasts = v.queues[0].lasts
    return 0.0 < size_of(v, b) * lasts <= v.queues[x].debt * _part_and_lack(v, x)[0]


cdef bint has_its_part(View v, i64 x, i64 b) noexcept nogil:
    """Return True if a line has its part, with what is reserved for it."""
    shape = v.groups[b].shape_row
    return lack_of(v, x, needs_of(v, shape)) <= v.queues[x].reserved * share_of(v, &v.demand[shape * v.len_total]) + LEAST_SHARE


cdef double due_in_order(View v, i64 x, i64 b) noexcept nogil:
    """Return what a line lacks if only tasks count whose jobs are not behind a group's next, at most the size of that (rule: oldest).

    So the oldest job has the first claim on its line's part. If the line lacks some with all of its tasks, that is returned.
    """
    cdef i64 m = v.len_total
    cdef bint behind
    shape, job = v.groups[b].shape_row, current_job(v, b)
    lack, mark, back = size_of(v, b), v.scratches, integers(v, m)
    for n in range(v.counts[NODES] if v.queues[x].tasks > 0 and lack_of(v, x, needs_of(v, shape)) <= LEAST_SHARE else 0):
        t = v.nodes[n].task
        while t != NONE:
            j = v.tasks[t].job
            if v.jobs[j].queue == x or (v.queue_cache[x].inner and line_of(v, v.jobs[j].queue) == x):
                behind = v.jobs[j].id > v.jobs[job].id
                if v.jobs[j].priority != v.groups[b].priority and (v.jobs[j].queue == v.groups[b].leaf or v.queues[x].policy == BY_PRIORITY):
                    behind = v.jobs[j].priority < v.groups[b].priority
                for r in range(m if behind else 0):
                    back[r] += v.demand[v.jobs[j].shape_row * m + r]
            t = v.tasks[t].after
    for r in range(m):
        if v.demand[shape * m + r] > 0:
            lack = min(lack, (_part_of(v, x, r) - v.used[x * m + r] + back[r]) / max(1, v.total[r]))
    release(v, mark)
    return lack


cdef void put_off(View v, i64 b, double at) noexcept nogil:
    """Note that no room can be kept for a group: its line is tried again later (rule: retry), the later the longer it has been owed."""
    x = line_of(v, v.groups[b].leaf)
    least = max(MIN_FORECAST_SECONDS, patience(v, x), RETRY_LEAST * v.queues[0].lasts)
    v.queues[x].put_off = at + max(least, RETRY_FRACTION * (at - v.queues[x].owed_since))


def pass_over(View v, i64 b, double at):
    """Call :func:`put_off`."""
    put_off(v, b, at)

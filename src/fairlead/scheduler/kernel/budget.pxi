"""The budget: how much may idle in room that is kept for reservations.

Over a day at most the part IDLE_BUDGET of each resource that there is. What idled is added up by hour. What reservations are
expected to idle until their starts counts too, so that each is paid when it is made.

- **Again**: a reservation that ends without a start has idled something for nothing. The next one of its line is expected to idle at least as
  much: it is not made before the budget has that.
- **Charged**: once a reservation has ended, what it has idled beyond what its tasks use while they last counts as its line's use.
- **Savings**: a line that runs nothing, and is owed more than all that have reservations, may use more for one: the budget of the time
  that it has been owed and of the day before, less what all reservations have idled in that time. It may idle its `allowance`,
  twice what was expected, and then ends. What it idles does not count within the day.
"""


cdef i64 _row_of_hour(View v, double at) noexcept nogil:
    """Return the row of the hour of a moment, cleared if it was of another."""
    hour = <i64>floor(at / HOUR)
    k = hour - HOURS * floor_div(hour, HOURS)
    if v.hours[k].hour != hour:
        v.hours[k].hour, v.hours[k].idled = hour, 0.0
        for r in range(v.len_total):
            v.spent[k * v.len_total + r] = 0.0
    return k


cdef void spend(View v, i64 h, double passed, double at) noexcept nogil:
    """Count what a reservation's hold has idled for some seconds until now; what is paid from savings is not spent of a day's budget."""
    cdef i64 m = v.len_total
    k, share = _row_of_hour(v, at), passed * share_of(v, &v.idle[h * m])
    for r in range(m if v.holds[h].allowance == 0.0 else 0):
        v.spent[k * m + r] += v.idle[h * m + r] * passed
    v.hours[k].idled += share
    v.queues[0].idled_then += share


cdef double idled_beyond(View v, i64 h) noexcept nogil:
    """Return what a hold has idled beyond what its tasks use while they last, as a share times seconds."""
    cdef i64 m = v.len_total
    return in_shares(v, &v.idled[h * m]) - share_of(v, &v.amount[h * m]) * (v.holds[h].end - v.holds[h].start)


cdef double left_of(View v, i64 r, double now) noexcept nogil:
    """Return what may be spent on a resource now, base units times seconds."""
    cdef i64 m = v.len_total
    hour, left = <i64>floor(now / HOUR), v.times[IDLE_BUDGET] * v.total[r] * (HOURS - 1) * HOUR
    for k in range(HOURS):
        if v.hours[k].hour > hour - HOURS:
            left -= v.spent[k * m + r]
    for h in range(v.counts[HOLDS]):
        if is_paid_for(v, h):
            left -= max(v.cost[h * m + r] - v.idled[h * m + r], v.idle[h * m + r] * (now - v.holds[h].counted))
    return left


cdef bint is_paid_for(View v, i64 h) noexcept nogil:
    """Return True if the budget pays for what a hold idles."""
    return v.holds[h].kind == RESERVATION and v.holds[h].allowance == 0.0


cdef double overspent_at(View v, double now) noexcept nogil:
    """Return when the budget is overspent, or an allowance, if nothing happens until then; inf if never.

    What is left falls ever faster: once it has idled what was expected, a hold spends as fast as it idles. So it is spent before it would
    be at the speed of any moment before that, and exactly then at the last speed.
    """
    cdef i64 m = v.len_total
    cdef double least = INFINITY
    for h in range(v.counts[HOLDS]):
        if v.holds[h].allowance > 0.0:
            least = min(least, _exhausted_at(v, h))
    for r in range(m):
        for h in range(-1, v.counts[HOLDS]):
            at = now if h < 0 else _spends_from(v, h, r)
            if now <= at < INFINITY:
                speed = 0.0
                for k in range(v.counts[HOLDS]):
                    speed += v.idle[k * m + r] if _spends_from(v, k, r) <= at else 0.0
                left = left_of(v, r, at) if speed > 0.0 else -1.0
                if left >= 0.0:
                    least = min(least, at + left / speed)
    return least


cdef double _exhausted_at(View v, i64 h) noexcept nogil:
    """Return when a promise will have idled all its allowance, from its hold h on, if nothing happens until then."""
    cdef i64 m = v.len_total
    cdef double least = INFINITY
    for r in range(m):
        idled, speed = 0.0, 0.0
        for k in range(h, next_promise(v, h)):
            idled += v.idled[k * m + r] - v.idle[k * m + r] * v.holds[k].counted
            speed += v.idle[k * m + r]
        if speed > 0.0:
            least = min(least, (v.holds[h].allowance * v.total[r] - idled) / speed)
    return least


cdef double _spends_from(View v, i64 h, i64 r) noexcept nogil:
    """Return from when on a hold idles more of a resource than was expected; inf if it idles nothing that the budget pays for."""
    i = h * v.len_total + r
    if v.idle[i] == 0 or not is_paid_for(v, h):
        return INFINITY
    return v.holds[h].counted + max(0.0, v.cost[i] - v.idled[i]) / v.idle[i]


cdef bint is_paid(View v, double *cost, double least, double now) noexcept nogil:
    """Return True if the budget has as much of each resource that costs anything (rule: paid), and a share `least` of it (rule: again)."""
    for r in range(v.len_total):
        if cost[r] > 0.0 and max(cost[r], least * v.total[r]) > left_of(v, r, now):
            return False
    return True


cdef bint is_overspent(View v, double now) noexcept nogil:
    """Return True if more has been spent, and is to be spent, than the budget has of some resource.

    What idles is at most what is kept. So the budget lasts at least until what is left is divided by that (FUNDED).
    """
    cdef i64 m = v.len_total
    cdef double lasts = INFINITY, kept
    if now < v.times[FUNDED]:
        return False
    for r in range(m):
        left, kept = left_of(v, r, now) if v.total[r] > 0 else INFINITY, 0.0
        if left < -LEAST_SHARE * HOUR * v.total[r]:
            return True
        for h in range(v.counts[HOLDS]):
            kept += v.amount[h * m + r]
        lasts = min(lasts, max(0.0, left) / kept) if kept > 0.0 else lasts
    v.times[FUNDED] = now + lasts
    return False


cdef bint has_saved(View v, i64 x, double share, double now) noexcept nogil:
    """Return True if a reservation for a line that is expected to idle a share, times seconds, may be paid from its savings (rule: saved)."""
    if v.queues[x].tasks > 0 or v.times[IDLE_BUDGET] <= 0.0:
        return False
    for h in range(v.counts[HOLDS]):
        if v.holds[h].allowance > 0.0 or (v.holds[h].kind == RESERVATION and v.queues[line_of(v, v.groups[v.holds[h].group].leaf)].debt >= v.queues[x].debt):
            return False
    return max(share, v.queues[x].wasted) <= _savings(v, x, now)


cdef double _savings(View v, i64 x, double now) noexcept nogil:
    """Return what a line has saved, as a share times seconds."""
    cdef double coming = 0.0, share
    cdef i64 m = v.len_total
    for h in range(v.counts[HOLDS]):
        share = 0.0
        for r in range(m if v.holds[h].kind == RESERVATION else 0):
            share = max(share, (v.cost[h * m + r] - v.idled[h * m + r]) / max(1, v.total[r]))
        coming += share
    idled = v.queues[0].idled_then - v.queues[x].idled_then if x != 0 else idled_in_a_day(v, now)
    return v.times[IDLE_BUDGET] * ((HOURS - 1) * HOUR + now - v.queues[x].owed_since) - idled - coming


cdef double idled_in_a_day(View v, double now) noexcept nogil:
    """Return what all reservations have idled within a day, as shares times seconds."""
    cdef double idled = 0.0
    hour = <i64>floor(now / HOUR)
    for k in range(HOURS if v.queues[0].idled_then > 0.0 else 0):
        idled += v.hours[k].idled if v.hours[k].hour > hour - HOURS else 0.0
    return idled


cdef double idled_by(View v, i64 h, double now) noexcept nogil:
    """Return what a promise has idled, from its hold h on: the largest share of any resource, times seconds."""
    cdef i64 m = v.len_total
    mark, idled = v.scratches, floats(v, m)
    for k in range(h, next_promise(v, h)):
        for r in range(m):
            idled[r] += v.idled[k * m + r] + v.idle[k * m + r] * (now - v.holds[k].counted)
    share = in_shares(v, idled)
    release(v, mark)
    return share


cdef double in_shares(View v, double *amount) noexcept nogil:
    """Return the largest share of an amount that is times seconds."""
    share = 0.0
    for r in range(v.len_total):
        if v.total[r] > 0:
            share = max(share, amount[r] / v.total[r])
    return share

"""First fit: the nodes with room for a task: the preferred first, then the least wasted, skipping full blocks; and the choice
among them (`fit`).

A bound is at least what any node of its block has free of each resource. It rises when room is freed. It falls to the
exact value after the whole block was searched in vain.
"""


cdef bint holds_task(View v, i64 n, i64 shape) noexcept nogil:
    """Return True if a node accepts tasks of a shape and has room for one."""
    cdef i64 m = v.len_total
    if not v.nodes[n].up or v.nodes[n].draining or not v.masks[v.shapes[shape].mask * v.cols_masks + n]:
        return False
    for r in range(m):
        if v.demand[shape * m + r] > 0 and v.demand[shape * m + r] > v.free[n * m + r] - v.held[n * m + r]:
            return False
    return True


cdef bint _is_tried(View v, i64 n, i64 shape, i64 kinds) noexcept nogil:
    """Return True if a node is of one of the kinds that are tried now, and preferred if only these are."""
    if not kinds >> v.node_cache[n].kind & 1:
        return False
    return not v.shape_cache[shape].preferring or v.masks[v.shapes[shape].prefers * v.cols_masks + n]


cdef bint _block_may_hold(View v, i64 *bound, i64 shape) noexcept nogil:
    cdef i64 m = v.len_total
    for r in range(m):
        if v.demand[shape * m + r] > 0 and v.demand[shape * m + r] > bound[r]:
            return False
    return True


cdef double _wasted(View v, i64 shape, i64 kind) noexcept nogil:
    """Return what a task strands of scarce resources on a node of a kind; INFINITY if the kind lacks what it needs.

    The task takes the part `taken` of the node: the largest demand / capacity. It strands what that part has and it does
    not need, as a part of all there is, summed over the scarce resources. If none is, all count, but for PACK and SPREAD.
    """
    cdef i64 m = v.len_total
    cdef double taken = 0, wasted = 0, sign = -1.0 if v.shapes[shape].fit == FIRST or v.shapes[shape].fit == APART else 0.0
    kinds, demand = &v.kinds[kind * m], &v.demand[shape * m]
    for r in range(m):
        if demand[r] > 0:
            if kinds[r] == 0:
                return INFINITY
            taken = max(taken, <double>demand[r] / kinds[r])
    for r in range(m):
        wasted += max(0.0, taken * kinds[r] - <double>demand[r]) * max(v.scarcity[r], sign * v.scarcity[r])
    return wasted


cdef void _go_to_next_kinds(View v, i64 shape) noexcept nogil:
    """Set a shape's cursor before the nodes that go next: those of all kinds that waste alike, the least wasted first."""
    cdef double least = INFINITY, after = v.shape_cache[shape].wasted
    cdef i64 kinds = 0
    for kind in range(v.len_kinds):
        wasted = _wasted(v, shape, kind)
        if after < wasted < least:
            kinds, least = 0, wasted
        if wasted == least and least < INFINITY:
            kinds |= (<i64>1) << kind
    v.shape_cache[shape].kinds, v.shape_cache[shape].wasted = kinds, least
    v.shape_cache[shape].cursor = 0 if kinds else v.counts[NODES]


cdef i64 first_fit(View v, i64 shape) noexcept nogil:
    """Return the first node with room for a task of a shape, or the number of nodes if there is none.

    The preferred nodes go first; then the kinds of nodes by what the task would waste there; then the first that joined.
    Within a cycle room only shrinks, so the search continues from the shape's cursor.
    """
    cdef i64 count = v.counts[NODES]
    if v.shape_cache[shape].cycle != v.counts[CYCLE]:
        v.shape_cache[shape].cycle, v.shape_cache[shape].wasted = v.counts[CYCLE], -1.0
        v.shape_cache[shape].preferring = v.shapes[shape].prefers != 0
        _go_to_next_kinds(v, shape)
    elif v.shape_cache[shape].cursor < count and holds_task(v, v.shape_cache[shape].cursor, shape):
        return v.shape_cache[shape].cursor
    while v.shape_cache[shape].kinds:
        n = _next_node(v, shape, v.shape_cache[shape].cursor, v.shape_cache[shape].kinds)
        if n < count:
            v.shape_cache[shape].cursor = n
            return n
        _go_to_next_kinds(v, shape)
        if not v.shape_cache[shape].kinds and v.shape_cache[shape].preferring:
            v.shape_cache[shape].preferring, v.shape_cache[shape].wasted = False, -1.0
            _go_to_next_kinds(v, shape)
    return count


cdef i64 _next_node(View v, i64 shape, i64 n, i64 kinds) noexcept nogil:
    """Return the first node from `n` on that is of one of the kinds and has room for a task; the number of nodes if none."""
    cdef i64 m = v.len_total, count = v.counts[NODES]
    whole = -1  # the block that was searched from its first node on
    while n < count:
        if n % (BLOCK * BLOCK) == 0:
            block = n // (BLOCK * BLOCK)
            if not (v.large_kinds_in[block] & kinds and _block_may_hold(v, &v.large_bounds[block * m], shape)):
                n += BLOCK * BLOCK
                continue
        if n % BLOCK == 0:
            block = n // BLOCK
            if not (v.kinds_in[block] & kinds and _block_may_hold(v, &v.bounds[block * m], shape)):
                n += BLOCK
                continue
            whole = block
        if _is_tried(v, n, shape, kinds) and holds_task(v, n, shape):
            return n
        n += 1
        if n % BLOCK == 0 and whole == n // BLOCK - 1:
            _lower(v, whole)
    return count


cdef i64 by_fit(View v, i64 shape, i64 first) noexcept nogil:
    """Return the node for a task of a shape, by the shape's `fit`, among those that waste as little as `first`, the first with room.

    PACK takes the smallest, SPREAD the largest free part of the task's dominant resource.
    """
    cdef i64 m = v.len_total
    fit, r = v.shapes[shape].fit, _dominant(v, shape)
    if fit == FIRST or fit == APART or r == NONE:
        return first
    n, best, least = first, first, _open_part(v, first, r)
    while n < v.counts[NODES]:
        if n % BLOCK == 0 and not _block_may_hold(v, &v.bounds[(n // BLOCK) * m], shape):
            n += BLOCK
            continue
        part = _open_part(v, n, r)
        if ((fit == PACK and part < least) or (fit == SPREAD and part > least)) and (
            _is_tried(v, n, shape, v.shape_cache[shape].kinds) and holds_task(v, n, shape)
        ):
            best, least = n, part
        n += 1
    return best


cdef i64 _dominant(View v, i64 shape) noexcept nogil:
    """Return the resource with a task's largest demand / total; NONE if it needs nothing."""
    cdef i64 m = v.len_total
    found, most = NONE, 0.0
    for r in range(m):
        if v.demand[shape * m + r] > 0 and <double>v.demand[shape * m + r] / max(1, v.total[r]) > most:
            found, most = r, <double>v.demand[shape * m + r] / max(1, v.total[r])
    return found


cdef double _open_part(View v, i64 n, i64 r) noexcept nogil:
    """Return the part of a node's capacity of a resource that is free and not held."""
    cdef i64 m = v.len_total
    return <double>(v.free[n * m + r] - v.held[n * m + r]) / max(1, v.capacity[n * m + r])


cdef void _lower(View v, i64 block) noexcept nogil:
    """Lower a block's bound, and that of its large block, to the exact values."""
    cdef i64 m = v.len_total
    bound = &v.bounds[block * m]
    for r in range(m):
        bound[r] = v.large_bounds[block // BLOCK * m + r] = -1
    for n in range(block * BLOCK, min((block + 1) * BLOCK, v.counts[NODES])):
        if v.nodes[n].up and not v.nodes[n].draining:
            for r in range(m):
                bound[r] = max(bound[r], v.free[n * m + r] - v.held[n * m + r])
    large = block // BLOCK
    last = min((large + 1) * BLOCK, (v.counts[NODES] + BLOCK - 1) // BLOCK)
    for k in range(large * BLOCK, last):
        for r in range(m):
            v.large_bounds[large * m + r] = max(v.large_bounds[large * m + r], v.bounds[k * m + r])


cpdef void set_bounds(View v) noexcept nogil:
    """Compute all bounds."""
    for block in range((v.counts[NODES] + BLOCK - 1) // BLOCK):
        _lower(v, block)


cdef void raise_bounds(View v, i64 n) noexcept nogil:
    """Raise the bounds of a node's blocks to what the node has free, after an increase or an undone placement."""
    cdef i64 m = v.len_total
    block, large = n // BLOCK, n // (BLOCK * BLOCK)
    for r in range(m):
        room = v.free[n * m + r] - v.held[n * m + r]
        if room > v.bounds[block * m + r]:
            v.bounds[block * m + r] = room
            v.large_bounds[large * m + r] = max(v.large_bounds[large * m + r], room)


cdef void room_came_back(View v, i64 n) noexcept nogil:
    """Note that a node has more free than before: it is freed."""
    raise_bounds(v, n)
    if not v.node_cache[n].is_freed:
        v.node_cache[n].is_freed = True
        v.node_cache[v.counts[FREED]].freed = n
        v.counts[FREED] += 1


cdef i64 at_most_here(View v, i64 shape, i64 count) noexcept nogil:
    """Return how many of `count` tasks that start together one node may have: one, if they go apart."""
    return min(1, count) if v.shapes[shape].fit == APART else count


cdef i64 capacity_for(View v, i64 n, i64 shape) noexcept nogil:
    """Return how many tasks of a shape a node could hold if empty; 0 if it accepts none."""
    cdef i64 m = v.len_total
    if not v.nodes[n].up or v.nodes[n].draining or not v.masks[v.shapes[shape].mask * v.cols_masks + n]:
        return 0
    most = at_most_here(v, shape, INFINITE)
    for r in range(m):
        if v.demand[shape * m + r] > 0:
            most = min(most, v.capacity[n * m + r] // v.demand[shape * m + r])
    return most


cpdef bint could_ever_hold(View v, i64 shape, i64 count) noexcept nogil:
    """Return True if the nodes, all empty, could hold `count` tasks of a shape at once."""
    for n in range(v.counts[NODES]):
        count -= min(count, capacity_for(v, n, shape))
        if count <= 0:
            return True
    return False


cpdef void mark_hopeless(View v) noexcept nogil:
    """Note for each group whether even empty nodes could not hold its task or gang."""
    for b in range(v.counts[GROUPS]):
        v.group_cache[b].hopeless = not could_ever_hold(v, v.groups[b].shape_row, max(1, v.groups[b].gang))


cpdef i64 room_for(View v, i64 n, i64 shape, i64 count) noexcept nogil:
    """Return how many tasks of a shape a node has room for now, at most `count`."""
    cdef i64 m = v.len_total
    if not holds_task(v, n, shape):
        return 0
    most = at_most_here(v, shape, count)
    for r in range(m):
        if v.demand[shape * m + r] > 0:
            most = min(most, floor_div(v.free[n * m + r] - v.held[n * m + r], v.demand[shape * m + r]))
    return most

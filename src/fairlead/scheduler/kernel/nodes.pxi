"""First fit: the nodes with room for a task, the least wasted first, skipping full blocks; and the choice among them (`fit`).

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


cdef bint _block_may_hold(View v, i64 *bound, i64 shape) noexcept nogil:
    cdef i64 m = v.len_total
    for r in range(m):
        if v.demand[shape * m + r] > 0 and v.demand[shape * m + r] > bound[r]:
            return False
    return True


cdef i64 _wasted(View v, i64 shape, i64 kind) noexcept nogil:
    """Return how much of scarce things a task would strand on a node of a kind; INFINITE if the kind lacks what it needs.

    It is the sum, over the resources that the task does not need and the node has, of 1 / number of nodes that have it.
    """
    cdef i64 m = v.len_total
    wasted = 0
    for r in range(m):
        if v.demand[shape * m + r] == 0:
            wasted += v.kinds[kind * m + r]
        elif v.kinds[kind * m + r] == 0:
            return INFINITE
    return wasted


cdef i64 _next_kind(View v, i64 shape, i64 before) noexcept nogil:
    """Return the kind of nodes that a shape tries after another (NONE: before all), the least wasted first; NONE at the end."""
    cdef i64 found = NONE, least = INFINITE, after = -1
    if before != NONE:
        after = _wasted(v, shape, before)
    for kind in range(v.len_kinds):
        wasted = _wasted(v, shape, kind)
        if wasted < least and (wasted > after or (wasted == after and kind > before)):
            found, least = kind, wasted
    return found


cdef i64 at_cursor(View v, i64 shape) noexcept nogil:
    """Return the node of a shape's cursor; the number of nodes if no node has room."""
    cursor, count = v.shape_cache[shape].cursor, v.counts[NODES]
    return cursor % count if cursor < v.len_kinds * count else count


cdef i64 first_fit(View v, i64 shape) noexcept nogil:
    """Return the first node with room for a task of a shape, or the number of nodes if there is none.

    The kinds of nodes go by what the task would waste there, those of a kind in the order in which they joined. Within a
    cycle room only shrinks, so the search continues from the shape's cursor.
    """
    cdef i64 m = v.len_total, n = 0, count = v.counts[NODES], kind = NONE, bit
    if v.shape_cache[shape].cycle != v.counts[CYCLE]:
        kind = _next_kind(v, shape, NONE)
    elif at_cursor(v, shape) < count:
        kind, n = v.shape_cache[shape].cursor // count, v.shape_cache[shape].cursor % count
    v.shape_cache[shape].cycle = v.counts[CYCLE]
    while kind != NONE:
        bit = (<i64>1) << kind
        whole = -1  # the block that was searched from its first node on
        while n < count:
            block, large = n // BLOCK, n // (BLOCK * BLOCK)
            if n % (BLOCK * BLOCK) == 0 and not (
                v.large_kinds_in[large] & bit and _block_may_hold(v, &v.large_bounds[large * m], shape)
            ):
                n += BLOCK * BLOCK
                continue
            if n % BLOCK == 0:
                if not (v.kinds_in[block] & bit and _block_may_hold(v, &v.bounds[block * m], shape)):
                    n += BLOCK
                    continue
                whole = block
            if v.node_cache[n].kind == kind and holds_task(v, n, shape):
                v.shape_cache[shape].cursor = kind * count + n
                return n
            n += 1
            if n % BLOCK == 0 and whole == n // BLOCK - 1:
                _lower(v, whole)
        kind, n = _next_kind(v, shape, kind), 0
    v.shape_cache[shape].cursor = v.len_kinds * count
    return count


cdef i64 by_fit(View v, i64 shape, i64 first) noexcept nogil:
    """Return the node for a task of a shape, by the shape's `fit`, of the kind of `first`, the first node with room.

    PACK takes the smallest, SPREAD the largest free part of the task's dominant resource.
    """
    cdef i64 m = v.len_total
    fit, r = v.shapes[shape].fit, _dominant(v, shape)
    if fit == FIRST or r == NONE:
        return first
    n, best, least = first, first, _open_part(v, first, r)
    while n < v.counts[NODES]:
        if n % BLOCK == 0 and not _block_may_hold(v, &v.bounds[(n // BLOCK) * m], shape):
            n += BLOCK
            continue
        part = _open_part(v, n, r)
        if ((fit == PACK and part < least) or (fit == SPREAD and part > least)) and (
            v.node_cache[n].kind == v.node_cache[first].kind and holds_task(v, n, shape)
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


cdef i64 capacity_for(View v, i64 n, i64 shape) noexcept nogil:
    """Return how many tasks of a shape a node could hold if empty; 0 if it accepts none."""
    cdef i64 m = v.len_total
    if not v.nodes[n].up or v.nodes[n].draining or not v.masks[v.shapes[shape].mask * v.cols_masks + n]:
        return 0
    most = INFINITE
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
    most = count
    for r in range(m):
        if v.demand[shape * m + r] > 0:
            most = min(most, floor_div(v.free[n * m + r] - v.held[n * m + r], v.demand[shape * m + r]))
    return most

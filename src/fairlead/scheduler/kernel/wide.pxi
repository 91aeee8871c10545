"""Products of whole numbers that are wider than 64 bits."""


cdef struct Wide:
    u64 first
    u64 middle
    u64 last


cdef Wide product(i64 a, i64 b, i64 c, i64 d) noexcept nogil:
    """The product of four numbers in 192 bits, most significant first: a and b below 2**63, c and d below 2**30."""
    cdef Wide found
    cdef u128 both = <u128><u64>a * <u64>b
    cdef u64 factor = <u64>c * <u64>d
    cdef u128 lower = <u128><u64>both * factor
    cdef u128 upper = (both >> 64) * factor + (lower >> 64)
    found.first, found.middle, found.last = <u64>(upper >> 64), <u64>upper, <u64>lower
    return found


cdef i64 compare_wide(Wide a, Wide b) noexcept nogil:
    """-1, 0 or 1."""
    if a.first != b.first:
        return 1 if a.first > b.first else -1
    if a.middle != b.middle:
        return 1 if a.middle > b.middle else -1
    return (a.last > b.last) - (a.last < b.last)

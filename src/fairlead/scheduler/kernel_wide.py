"""Products of whole numbers that are wider than 64 bits."""

import numpy as np

from fairlead.kernel_cache import compiled

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@compiled
def high(a: np.uint64, b: np.uint64) -> np.uint64:
    """The upper 64 bits of a product."""
    a0, a1, b0, b1 = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    middle = a1 * b0 + ((a0 * b0) >> _HALF)
    other = a0 * b1 + (middle & _LOW)
    return a1 * b1 + (middle >> _HALF) + (other >> _HALF)


@compiled
def product(a: int, b: int, c: int, d: int) -> tuple[np.uint64, np.uint64, np.uint64]:
    """The product of four numbers in 192 bits, most significant first: a and b below 2**63, c and d below 2**30."""
    x, y, m = np.uint64(a), np.uint64(b), np.uint64(c) * np.uint64(d)
    upper, lower = high(x, y), x * y
    last = lower * m
    middle = upper * m
    carry = high(lower, m)
    middle += carry
    first = high(upper, m)
    if middle < carry:
        first += np.uint64(1)
    return first, middle, last

"""The scheduler's kernels: all that is included here is one module.

A kernel is a C function without the interpreter's lock, over a view of the state. No index is checked in it, and a negative one
does not count from the end: `make check-memory` runs the tests over kernels built with AddressSanitizer, which reports an access
outside an array. A division of whole numbers rounds towards zero; where the dividend may be negative, `floor_div` rounds down.

Arrays that a kernel works in are scratch: they belong to the view, last until whoever took them releases them, and are zeros.
"""

from cpython.buffer cimport PyBUF_ANY_CONTIGUOUS, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport INFINITY, NAN, floor, frexp, isfinite, isnan, nextafter, pow
from libc.stdint cimport int32_t
from libc.stdio cimport fputs, stderr
from libc.stdlib cimport abort, calloc, free, qsort
from libc.string cimport memcpy
from scheduler_constants cimport *

import numpy as np

from fairlead.scheduler.kernel.arrays import PREEMPTION_PLAN, TREE
from fairlead.scheduler.kernel.view import ARRAYS as VIEW

cdef extern from *:
    ctypedef unsigned long long u128 "unsigned __int128"

cdef enum:
    TAIL = 129  # a histogram's bins, and one
    TAILS = 3 * 129


cdef class Arrays:
    """Arrays by the names in `ARRAYS`, all of them in the order of memory that C has, handed to kernels as one thing.

    They are attributes, by the same names; to be made anew when an array is replaced by another.
    """

    def __init__(self, **arrays):
        for name, (kind, dimensions) in self.ARRAYS.items():
            array = arrays[name]
            if array.dtype != np.dtype(kind) or array.ndim != dimensions or not array.flags.c_contiguous:
                raise TypeError(f"{name} is {array.dtype} in {array.ndim} dimensions, not {kind} in {dimensions}")
        self.arrays = arrays
        for name in arrays:
            setattr(self, name, arrays[name])
        self.point(arrays)

    cdef void point(self, dict arrays):
        pass

    def __dealloc__(self):
        release(self, 0)


cdef void *address_of(array) except *:
    """Where an array's numbers lie; whoever asks keeps the array."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(array, &buffer, PyBUF_ANY_CONTIGUOUS)
    PyBuffer_Release(&buffer)
    return buffer.buf


include "scheduling_types.pxi"


cdef void *scratch(Arrays v, size_t size) noexcept nogil:
    """So many bytes of zeros, until they are released."""
    cdef void *block = calloc(1, max(size, <size_t>1))
    if block == NULL or v.scratches == 64:
        fputs("fairlead: a kernel found no memory to work in\n", stderr)
        abort()
    v.blocks[v.scratches] = block
    v.scratches += 1
    return block


cdef i64 *integers(Arrays v, i64 count) noexcept nogil:
    return <i64 *>scratch(v, count * sizeof(i64))


cdef double *floats(Arrays v, i64 count) noexcept nogil:
    return <double *>scratch(v, count * sizeof(double))


cdef flag *flags(Arrays v, i64 count) noexcept nogil:
    return <flag *>scratch(v, count * sizeof(flag))


cdef void release(Arrays v, int mark) noexcept nogil:
    """Give up the scratch that was taken since there were `mark` blocks of it."""
    while v.scratches > mark:
        v.scratches -= 1
        free(v.blocks[v.scratches])


cdef i64 floor_div(i64 a, i64 b) noexcept nogil:
    """a / b for a positive b, rounded down."""
    return a // b - (a % b < 0)


cdef int compare_ranked(const void *a, const void *b) noexcept nogil:
    """For qsort: by key, then by place."""
    x, y = <const Ranked *>a, <const Ranked *>b
    if x.key != y.key:
        return -1 if x.key < y.key else 1
    return -1 if x.place < y.place else x.place > y.place


include "durations.pxi"
include "history.pxi"
include "keys.pxi"
include "order.pxi"
include "nodes.pxi"
include "holds.pxi"
include "claims.pxi"
include "limits.pxi"
include "offers.pxi"
include "placement.pxi"
include "search.pxi"
include "backfill.pxi"
include "cycle.pxi"
include "keep_holds.pxi"
include "accounting.pxi"
include "preemption.pxi"
include "victims.pxi"
include "filling.pxi"

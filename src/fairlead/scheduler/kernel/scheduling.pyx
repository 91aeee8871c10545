"""The scheduler's kernels: one module made of the `.pxi` files included below.

A kernel is a C function over a view of the state that runs without the GIL.

- **Indices** are unchecked, and a negative one does not count from the end. `make check-memory` runs the tests over
  kernels built with AddressSanitizer.
- **Integer division** rounds towards zero; `floor_div` rounds down where the dividend may be negative.
- **Scratch** arrays belong to the view, last until the function that took them releases them, and start as zeros.
"""

from cpython.buffer cimport PyBUF_ANY_CONTIGUOUS, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport INFINITY, NAN, floor, fmod, frexp, isfinite, isnan, nextafter, pow
from libc.stdint cimport int32_t
from libc.stdio cimport fputs, stderr
from libc.stdlib cimport abort, free, malloc, qsort
from libc.string cimport memcmp, memcpy, memset
from scheduler_constants cimport *

import numpy as np

from fairlead.scheduler.kernel.arrays import PREEMPTION_PLAN, TREE
from fairlead.scheduler.kernel.view import ARRAYS as VIEW

cdef extern from *:
    ctypedef unsigned long long u128 "unsigned __int128"

cdef enum:
    TAIL = 129  # the bins of a histogram, plus one


cdef class Arrays:
    """The arrays named in `ARRAYS`, C-contiguous, passed to kernels as one object.

    They are attributes of the same names. If an array is replaced, make a new object.
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
    """Return the address of an array's data; the caller keeps the array alive."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(array, &buffer, PyBUF_ANY_CONTIGUOUS)
    PyBuffer_Release(&buffer)
    return buffer.buf


include "scheduling_types.pxi"


cdef void *scratch(Arrays v, size_t size) noexcept nogil:
    """Return `size` bytes of zeros that last until they are released."""
    cdef void *block = malloc(max(size, <size_t>1))  # glibc's calloc does not use its fast lists
    if block == NULL or v.scratches == 64:
        fputs("fairlead: a kernel found no memory to work in\n", stderr)
        abort()
    memset(block, 0, size)
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
    """Release all scratch blocks after the first `mark`."""
    while v.scratches > mark:
        v.scratches -= 1
        free(v.blocks[v.scratches])


cdef i64 floor_div(i64 a, i64 b) noexcept nogil:
    """Return a / b for a positive b, rounded down."""
    return a // b - (a % b < 0)


cdef int compare_ranked(const void *a, const void *b) noexcept nogil:
    """Compare by key, then by place, for qsort."""
    x, y = <const Ranked *>a, <const Ranked *>b
    if x.key != y.key:
        return -1 if x.key < y.key else 1
    return -1 if x.place < y.place else x.place > y.place


include "durations.pxi"
include "history.pxi"
include "keys.pxi"
include "order.pxi"
include "nodes.pxi"
include "debts.pxi"
include "holds.pxi"
include "budget.pxi"
include "claims.pxi"
include "limits.pxi"
include "offers.pxi"
include "placement.pxi"
include "search.pxi"
include "guarantees.pxi"
include "backfill.pxi"
include "easy.pxi"
include "cycle.pxi"
include "keep_holds.pxi"
include "accounting.pxi"
include "preemption.pxi"
include "victims.pxi"
include "filling.pxi"

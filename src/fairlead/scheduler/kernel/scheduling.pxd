"""What other modules of kernels may use of the scheduler's."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint64_t

ctypedef int64_t i64
ctypedef uint64_t u64

cdef extern from "stdbool.h":
    ctypedef bint flag "_Bool"


cdef class Arrays:
    cdef dict __dict__
    cdef void *blocks[64]
    cdef int scratches

    cdef void point(self, dict arrays)


include "scheduling.pxi"

cdef struct Events:
    i64 count
    double *times
    i64 *nodes
    i64 *tasks

cdef struct Ranked:
    double key
    i64 place
    i64 row

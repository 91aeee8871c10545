"""The running tasks of a simulated cluster, for other kernels."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t

from fairlead.scheduler.kernel.scheduling cimport Arrays, flag, i64

include "simulated.pxi"

cpdef void submit(Truth truth, i64 job, i64 tasks, double now) noexcept nogil
cpdef void hold_back(Truth truth, i64 job, i64 tasks) noexcept nogil
cpdef double next_end(Truth truth, Runs runs) noexcept nogil
cdef void start(Truth truth, Runs runs, i64 count, i64 *job, i64 *index, i64 *attempt, i64 *node, double now) noexcept nogil
cdef i64 end_into(Truth truth, Runs runs, double now, i64 *ends, i64 room) noexcept nogil

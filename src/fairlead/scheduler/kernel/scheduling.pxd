"""What other kernel modules may use of the scheduler's."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint64_t

ctypedef int64_t i64
ctypedef uint64_t u64

cdef extern from "stdbool.h":
    ctypedef bint flag "_Bool"


cdef class Arrays:
    cdef dict __dict__
    cdef void *blocks[64]
    cdef readonly int scratches

    cdef void point(self, dict arrays)


include "scheduling.pxi"

cdef struct Plan:  # see plan_cycle
    i64 what
    i64 count
    i64 about
    bint more
    double start
    i64 slips
    i64 number
    i64 passed

cdef struct Ranked:
    double key
    i64 place
    i64 row

cdef void *address_of(array) except *
cdef void *scratch(Arrays v, size_t size) noexcept nogil
cdef i64 *integers(Arrays v, i64 count) noexcept nogil
cdef double *floats(Arrays v, i64 count) noexcept nogil
cdef void release(Arrays v, int mark) noexcept nogil
cdef double censor_tails(View v, i64 j, double *tails, const int *running, double longest) noexcept nogil
cdef double set_tails(View v, i64 j, double *tails) noexcept nogil
cdef double longest_known(View v, i64 j) noexcept nogil
cdef double duration(double *tails, double longest, double age, double part, double far) noexcept nogil
cpdef void fade(View v, double at) noexcept nogil
cpdef void note_arrival(View v, i64 group, double at) noexcept nogil
cpdef void begin_moment(View v, double at) noexcept nogil
cpdef void enter_group(View v, i64 job, i64 group, double at) noexcept nogil
cpdef void leave_group(View v, i64 job, double at) noexcept nogil
cpdef void end_job(View v, i64 j, double at) noexcept nogil
cdef i64 apply_placed(View v, i64 count, i64 *job, i64 *index, i64 *attempt, i64 *node, bint more, double at) noexcept nogil
cdef i64 apply_started(View v, i64 count, i64 *job, i64 *index, i64 *attempt, double at) noexcept nogil
cdef void put_off(View v, i64 b, double at) noexcept nogil
cdef i64 startable(View v, i64 job) noexcept nogil
cdef bint are_due(View v, double now) noexcept nogil
cpdef bint may_await_room(View v) noexcept nogil
cpdef bint drop_holds(View v, i64 group, i64 number, double at) noexcept nogil
cpdef (double, double) next_step(View v, double event, bint claims, double now, double happened) noexcept nogil
cpdef void settle(View v, bint more) noexcept nogil
cdef (i64, bint) plan_last_cycle(View v, i64 most, double now, bint beyond) noexcept nogil
cdef i64 apply_finished(
    View v, i64 count, i64 *job, i64 *index, i64 *attempt, i64 *outcome, i64 *code, double at, i64 max_losses, i64 *touched
) noexcept nogil
cdef void keep_room(
    View v, i64 group, i64 job, i64 count, i64 *nodes, i64 *tasks, i64 kind, double start, i64 slips, i64 number, i64 aparts,
    i64 *apart, double at,
) noexcept nogil
cdef Plan plan_cycle(View v, bint thorough, i64 most, double now) noexcept nogil

"""All jobs in one line."""

from libc.stdint cimport int64_t

from fairlead.scheduler.kernel.scheduling cimport Arrays, flag, i64

include "in_line.pxi"

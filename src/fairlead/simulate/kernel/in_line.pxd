"""The extension type of a single line of jobs."""

from libc.stdint cimport int64_t

from fairlead.scheduler.kernel.scheduling cimport Arrays, flag, i64

include "in_line.pxi"

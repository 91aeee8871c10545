"""What the simulator has before it."""

from libc.stdint cimport int64_t

from fairlead.scheduler.kernel.scheduling cimport Arrays, flag, i64

include "advance.pxi"

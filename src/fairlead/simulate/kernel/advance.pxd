"""The extension type of a simulation's tape."""

from libc.stdint cimport int64_t

from fairlead.scheduler.kernel.scheduling cimport Arrays, flag, i64

include "advance.pxi"

"""How policies are written in the scheduler's arrays. Only numbers here: kernels compile them in."""

DRF, FIFO, PRIORITY, ASSET, HDRF = range(5)
DIVIDED = 5
"""Any other policy: queues are served so that they come near to their parts of its division."""
SDRF = 6
YARN_DRF = 7
MESOS = 8
MAXMIN, YARN_FAIR, FAIRTREE, HTCONDOR = 16, 2**19, 2**20, 2**21
"""Max-min on a resource is written as this plus the resource's column; so are others that look at one."""

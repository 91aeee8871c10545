"""Policies as numbers, for the scheduler's arrays. Numbers only: the kernels compile them in."""

DRF, FIFO, PRIORITY, ASSET, HDRF = range(5)
DIVIDED = 5
"""Any other policy: queues are served towards their parts of its division."""
SDRF = 6
YARN_DRF = 7
MESOS = 8
MAXMIN, YARN_FAIR, FAIRTREE, HTCONDOR = 16, 2**19, 2**20, 2**21
"""Policies that compare one resource: the code is this number plus the resource's column."""

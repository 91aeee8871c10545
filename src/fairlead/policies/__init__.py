"""Who goes next. One file a policy.

Each gives an order among the children of an inner queue: the child with the smallest key is served first. A key function
is plain arithmetic over one row, in the part of Python that numba compiles: the scheduler's kernel calls it as it stands.
"""

from fairlead.model.specs import Policy

CODES: dict[Policy, int] = {"drf": 0, "fifo": 1, "priority": 2}
"""How a policy is written in the scheduler's arrays."""

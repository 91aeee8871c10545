"""Task share fairness: equal parts of the tasks that each user could run alone on all machines, without constraints.

Wang, Li, Liang and Li, "Multi-Resource Fair Sharing for Datacenter Jobs with Placement Constraints", SC 2016. On equal machines
without constraints it equals DRF. With constraints it alone keeps DRF's properties.
"""

import numpy as np

from fairlead.model.arrays import Numbers
from fairlead.model.problems import Problem, tasks_with
from fairlead.policies.filling import ByFilling


def speed(problem: Problem) -> Numbers:
    """Return the tasks that each user could run alone, times its weight (one number per user)."""
    kinds = problem.machines
    capacity = [problem.capacity] if kinds is None else [c * k for c, k in zip(kinds.capacity, kinds.count, strict=True)]
    alone = problem.tasks * 0
    for room in capacity:
        alone = alone + tasks_with(room, problem.demand)
    alone = alone * problem.weight[:, 0]
    return np.where(alone > 0, alone, alone * 0 + 1)


POLICY = ByFilling("tsf", "equal parts of what each could run alone on all machines", speed)
"""Task share fairness, divisible."""

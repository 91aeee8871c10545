"""What the scheduler's kernels know of Python; see `declarations`."""

from fairlead.outcomes import Outcome
from fairlead.policies import codes
from fairlead.scheduler import statuses, tables
from fairlead.scheduler.kernel import arrays, view
from fairlead.scheduler.kernel import constants as own
from fairlead.scheduler.kernel.declarations import constants_of

_POLICIES = {"BY_PRIORITY" if name == "PRIORITY" else name: code for name, code in constants_of(codes).items()}

CONSTANTS = {
    "scheduler_constants": {
        **constants_of(tables, view, statuses, own), **_POLICIES, **{outcome.name: int(outcome) for outcome in Outcome},
    },
}  # fmt: skip
TYPES = {"scheduling": {"View": view.ARRAYS, "PreemptionPlan": arrays.PREEMPTION_PLAN, "Tree": arrays.TREE}}

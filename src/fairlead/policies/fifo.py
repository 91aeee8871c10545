"""First in, first out: the child whose next task was submitted first goes next, whatever its priority.

Divided, everybody in turn takes all that it can use.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the scheduler's kernel needs the arithmetic alone
    from fairlead.policies.in_turn import InTurn


def policy() -> "InTurn":
    """First come, first served, in the order in which users are listed."""
    from fairlead.policies.in_turn import InTurn

    return InTurn("fifo", "each takes what it can, in the order of listing", by_priority=False)

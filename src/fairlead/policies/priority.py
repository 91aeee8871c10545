"""Strict priority: the child whose next task has the highest priority goes next; then who was submitted first.

Within a leaf queue this is the order of its jobs. Divided, everybody in turn takes all that it can use, highest priority first.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the scheduler's kernel needs the arithmetic alone
    from fairlead.policies.in_turn import InTurn


def policy() -> "InTurn":
    """Strict priority; equals in the order in which users are listed."""
    from fairlead.policies.in_turn import InTurn

    return InTurn("priority", "each takes what it can, highest priority first", by_priority=True)

"""The eight properties of a fair allocation, checked on a case, and searched for counterexamples.

All checks use fractions, or proved bounds in fractions (:mod:`fairlead.audit.given`, :mod:`fairlead.audit.proved_bounds`). A
violation holds for every number within the bounds.

Public names are imported on first use, so that :mod:`fairlead.audit.over_time` is cheap.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlead.audit.audits import PROPERTIES, Finding, Verdict, audit_allocation, audit_policy, search

__all__ = ["PROPERTIES", "Finding", "Verdict", "audit_allocation", "audit_policy", "search"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fairlead.audit' has no attribute {name!r}")
    from fairlead.audit import audits

    return getattr(audits, name)

"""The result of a check: does a property hold, and if not, who is wronged, compared with what, and by how much."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

PROPERTIES = (
    "sharing-incentive", "strategy-proofness", "envy-freeness", "pareto-efficiency", "single-resource", "bottleneck",
    "population-monotonicity", "resource-monotonicity",
)  # fmt: skip
"""In the order of the DRF paper (Ghodsi et al., NSDI 2011, section 3)."""


@dataclass(frozen=True)
class Finding:
    """One property of one allocation, or of one policy on one case.

    holds : None if the property does not apply to this case, or cannot be checked; `text` says why.
    text : the result as a sentence.
    user, other : the wronged user, and the user to compare with.
    wronged : all wronged users, of whom `user` is the worst; empty if only that one is known.
    has, against : the user's tasks, and the tasks to compare with.
    margin : shortfall of the user as a fraction of `has` (or of a task); 0 or less if nobody is wronged.
    before, after : the compared allocations, for a picture.
    tried : number of comparisons: lies, departures, additions.
    """

    property: str
    holds: bool | None
    text: str
    user: str | None = None
    other: str | None = None
    has: Any = None
    against: Any = None
    margin: float = float("-inf")
    before: Any = None
    after: Any = None
    tried: int = 0
    wronged: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; fractions are strings such as "63/25"."""
        found: dict[str, Any] = {"property": self.property, "holds": self.holds, "text": self.text}
        found |= {name: who for name, who in (("user", self.user), ("other", self.other)) if who is not None}
        if self.has is not None:
            found |= {"tasks": plain(self.has), "against": plain(self.against), "percent": percent(self.has, self.against)}
        if self.tried:
            found["tried"] = self.tried
        return found


def plain(value: Any) -> float | str:
    """Return a number for JSON: a short fraction as "63/25", any other as a float."""
    return str(value) if isinstance(value, Fraction) and len(str(value)) <= 24 else float(value)


def percent(has: Any, against: Any) -> float | None:
    """Return by how many percent `against` exceeds `has`; None if `has` is almost 0."""
    return float((against - has) / has * 100) if has > 1e-5 else None


def format_number(value: Any) -> str:
    """Format a number of tasks: a readable fraction in full, else rounded."""
    if isinstance(value, Fraction | int) and (value.denominator == 1 or (value.denominator < 1000 and value.numerator < 100_000)):
        return str(value)
    return f"{float(value):.4f}".rstrip("0").rstrip(".")


def format_tasks(value: Any) -> str:
    return f"{format_number(value)} task" + ("" if format_number(value) == "1" else "s")


def more(has: Any, against: Any) -> str:
    """Format by how much `against` exceeds `has`, after a comma; nothing if `has` is 0, since that is all of it."""
    by = percent(has, against)
    return "" if not has else f", {format_tasks(against - has)}{f', {by:.3g}%,' if by is not None else ''} more"

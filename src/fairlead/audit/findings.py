"""What a check found: whether a property holds, and if not, who is wronged, compared with what, by how much."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

PROPERTIES = (
    "sharing-incentive",
    "strategy-proofness",
    "envy-freeness",
    "pareto-efficiency",
    "single-resource",
    "bottleneck",
    "population-monotonicity",
    "resource-monotonicity",
)
"""As the DRF paper lists them (Ghodsi et al., NSDI 2011, section 3)."""


@dataclass(frozen=True)
class Finding:
    """One property of one allocation, or of one policy on one case.

    Attributes
    ----------
    property : str
    holds : bool or None
        None where the property says nothing about this case, or cannot be checked; `text` says why.
    text : str
        In a sentence.
    user, other : str, optional
        Who is wronged, and compared with whom.
    has, against : number, optional
        Tasks that the user has, and that it has to be compared with.
    margin : float
        By which part of `has` (or of a task) the comparison goes against the user: 0 or less where nobody is wronged.
    before, after : Given, optional
        The allocations that are compared, for a picture.
    tried : int
        Comparisons made: lies, departures, additions.
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

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON; fractions are strings such as "63/25"."""
        found: dict[str, Any] = {"property": self.property, "holds": self.holds, "text": self.text}
        if self.user is not None:
            found["user"] = self.user
        if self.other is not None:
            found["other"] = self.other
        if self.has is not None:
            found |= {
                "tasks": plain(self.has),
                "against": plain(self.against),
                "percent": percent(self.has, self.against),
            }
        if self.tried:
            found["tried"] = self.tried
        return found


def plain(value: Any) -> float | str:
    """A number for JSON: a short fraction as "63/25", any other as a float."""
    return str(value) if isinstance(value, Fraction) and len(str(value)) <= 24 else float(value)


def percent(has: Any, against: Any) -> float | None:
    """How much more the other is, in percent; None of next to nothing."""
    return float((against - has) / has * 100) if has > 1e-5 else None


def said(value: Any) -> str:
    """A number of tasks, for a sentence: a fraction as it is where that can be read."""
    if isinstance(value, Fraction | int) and (
        value.denominator == 1 or (value.denominator < 1000 and value.numerator < 100_000)
    ):
        return str(value)
    return f"{float(value):.4f}".rstrip("0").rstrip(".")


def tasks_said(value: Any) -> str:
    """So many tasks, for a sentence."""
    return f"{said(value)} task" + ("" if said(value) == "1" else "s")


def more(has: Any, against: Any) -> str:
    """By how much one is more than the other, for a sentence."""
    by = percent(has, against)
    return tasks_said(against - has) + (f", {by:.3g}%," if by is not None else "") + " more"

"""Quantities of a resource, written as Kubernetes writes them and kept as whole numbers.

Memory and disk are counted in bytes, everything else in thousandths (milli-cpu, milli-gpu), always as an integer
below 2**62: a million allocations and releases add up to exactly zero.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction

from fairlead.model.faults import shortened

LARGEST = 2**62
"""No quantity reaches this, so that two of them add up inside an int64."""

BYTE_RESOURCES = frozenset({"memory", "disk"})
"""The resources whose base unit is the byte; any other is counted in thousandths."""

_FACTORS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
}
_QUANTITY = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?)\s*(?P<suffix>[mkMGT]|[KMGT]i)?B?")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|min|h|d)?")
_RESOURCE_NAME = re.compile(r"[a-z][a-z0-9._/-]{0,62}")


def parse_quantity(resource: str, value: object) -> int:
    """Read one quantity.

    Parameters
    ----------
    resource : str
        Its name; decides the base unit.
    value : int, float or str
        A number, or text such as ``"500m"``, ``"4Gi"``, ``"1.5GiB"``.

    Returns
    -------
    int
        Base units: bytes for memory and disk, thousandths for the rest.

    Raises
    ------
    ValueError
        Not a quantity, negative, finer than one base unit, or not below 2**62 base units.
    """
    if not re.fullmatch(_RESOURCE_NAME, resource):
        raise ValueError(f"{resource!r} is no resource name: use lower-case letters, digits and . _ / -, at most 63")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{resource}: {value!r} is no quantity: write a number or text such as '500m' or '4Gi'")
    text = value.strip() if isinstance(value, str) else repr(value)
    if text.startswith("-"):
        raise ValueError(f"{resource}: {text} is negative: a quantity is zero or more")
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{resource}: {text!r} is no quantity: write a number, then one of m k M G T Ki Mi Gi Ti or nothing"
        )
    try:
        base = _base_units(resource, match)
    except ValueError:
        raise ValueError(f"{resource}: a number has more digits than can be read") from None
    unit = "byte" if resource in BYTE_RESOURCES else "thousandth"
    if base >= LARGEST:
        raise ValueError(
            f"{resource}: {text} is too large: at most {_plain(_largest_written(resource))} can be counted"
        )
    if base != int(base):
        hint = f" (did you mean {match['number']}M?)" if match["suffix"] == "m" and unit == "byte" else ""
        raise ValueError(f"{resource}: {text} is finer than one {unit}{hint}")
    return int(base)


def is_written_exactly(resource: str, base: Fraction, written: str) -> bool:
    """Whether text that :func:`round_quantity` made of base units says them to the last digit."""
    match = _QUANTITY.fullmatch(written.removeprefix("-"))
    return match is not None and _base_units(resource, match) * (-1 if written.startswith("-") else 1) == base


def _base_units(resource: str, match: re.Match[str]) -> Fraction:
    exact = Fraction(match["number"]) * Fraction(_FACTORS[match["suffix"] or ""])
    return exact if resource in BYTE_RESOURCES else exact * 1000


def parse_quantities(values: Mapping[str, object]) -> dict[str, int]:
    """Read a demand, a capacity or a limit: each name with its quantity, in base units."""
    return {name: parse_quantity(name, value) for name, value in values.items()}


def read_number(
    text: str, kind: type[int] | type[float] = float, least: float | None = None, most: float | None = None
) -> float:
    """Read what a row or an option has for a number.

    Raises ValueError in the words in which documents are refused, where it is none, or not from `least` to `most`.
    """
    said = shortened(repr(text))
    try:
        found = kind(plain_number(text))
    except ValueError:
        whole, digits = "whole " * (kind is int), ", in the digits 0 to 9" * ("_" in text or not text.isascii())
        raise ValueError(f"write a {whole}number{digits}, not {said}") from None
    if not math.isfinite(found):
        raise ValueError(f"write a finite number, not {said}")
    if least is not None and found < least:
        raise ValueError(f"use {least:.12g} or more, not {said}")
    if most is not None and found > most:
        raise ValueError(f"use {most:.12g} or less, not {said}")
    return found


def plain_number(text: str) -> str:
    """Text for `int`, `float` or `Fraction`, which take ``1_000`` and digits of other scripts as well: ValueError for these."""
    if "_" in text or not text.isascii():
        raise ValueError(f"{text!r} is no number: write it in the digits 0 to 9")
    return text


class Percent(float):
    """So many hundredths of what the cluster has."""


def parse_amount(resource: str, value: object) -> int | Percent:
    """Read a quantity in base units, or ``"25%"``; raises ValueError as :func:`parse_quantity` does, and for more than 100%."""
    return parse_percent(value) if isinstance(value, str) and "%" in value else parse_quantity(resource, value)


def parse_percent(value: str) -> Percent:
    """Read ``"25%"``; raises ValueError for anything else, and for what is not from 0 to 100."""
    match = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)\s*%", value.strip())
    if match is None or float(match[1]) > 100:
        raise ValueError(f'{value!r} is no part of the cluster: write one from "0%" to "100%"')
    return Percent(match[1])


def check_total(capacities: Iterable[Mapping[str, int]]) -> None:
    """Raise ValueError where nodes with these capacities have more of a resource together than can be counted."""
    total: Counter[str] = Counter()
    for capacity in capacities:
        total.update(capacity)
    for resource, amount in total.items():
        if amount >= LARGEST:
            most = _plain(_largest_written(resource))
            raise ValueError(f"the nodes have more {resource} together than can be counted: at most {most}")


def parse_seconds(value: object) -> float:
    """Read a duration, a number of seconds or text such as ``"30s"``, ``"5min"``, ``"2h"``, ``"1d"``.

    Raises ValueError for anything else.
    """
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    match = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f'{value!r} is no duration: write seconds, or "30s", "5min", "2h", "1d"')
    return float(match[1]) * {"": 1, "s": 1, "min": 60, "h": 3600, "d": 86400}[match[2] or ""]


def format_quantity(resource: str, base: int) -> str:
    """Write base units the short way that :func:`parse_quantity` reads back: ``4Gi``, ``500m``, ``9``."""
    if resource not in BYTE_RESOURCES:
        return str(base // 1000) if base % 1000 == 0 else f"{base}m"
    for suffix in ("Ti", "Gi", "Mi", "Ki"):
        factor = int(_FACTORS[suffix])
        if base and base % factor == 0:
            return f"{base // factor}{suffix}"
    return str(base)


def round_quantity(resource: str, base: int) -> str:
    """Write base units for reading, to three digits or so: ``23.4Gi``, ``1.5``. Not for reading back."""
    if resource not in BYTE_RESOURCES:
        return f"{base / 1000:.3f}".rstrip("0").rstrip(".")
    for suffix in ("Ti", "Gi", "Mi", "Ki"):
        factor = int(_FACTORS[suffix])
        if abs(base) >= factor:
            return f"{base / factor:.1f}".removesuffix(".0") + suffix
    return str(base)


def format_share(share: float) -> str:
    """Write a share in percent, with as many digits as it takes to see one that is small: ``12.3%``, ``0.04%``."""
    digits = 1 if share <= 0 or share >= 0.0005 else math.ceil(-math.log10(100 * share))
    return f"{share:.{digits}%}"


def format_quantities(values: Mapping[str, int]) -> str:
    """Write a vector for people: ``cpu=1 memory=4Gi``; ``nothing`` where it is empty."""
    return " ".join(f"{name}={format_quantity(name, base)}" for name, base in values.items()) or "nothing"


def _largest_written(resource: str) -> Decimal:
    return Decimal(LARGEST - 1) / (1 if resource in BYTE_RESOURCES else 1000)


def _plain(number: Decimal) -> str:
    return f"{number:.3g}"

"""Quantities of a resource: written as in Kubernetes, kept as integers.

Memory and disk are in bytes, all other resources in thousandths (milli-cpu, milli-gpu), below 2**62. So a million allocations and
releases add up to exactly zero.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction

from fairlead.model.faults import shortened

LEAST_MEMORY = 2**20
"""Bytes below which no program runs: less probably lacks its unit."""
LARGEST = 2**62
"""Exclusive upper bound of a quantity in base units; the sum of two fits an int64."""
BYTE_RESOURCES = frozenset({"memory", "disk"})
"""Resources whose base unit is the byte. All others are in thousandths."""
_FACTORS: dict[str, int | Fraction] = {
    "": 1, "m": Fraction(1, 1000), "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30,
    "Ti": 2**40,
}  # fmt: skip
_QUANTITY = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?)\s*(?P<suffix>[mkMGT]|[KMGT]i)?B?")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|min|h|d|w|(?:second|minute|hour|day|week)s?)?")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_CLOCK = re.compile(r"(?:(?=.*-|.*:.*:)(?:([0-9]{1,5})-)?([0-9]{1,5})(?::([0-5][0-9]))?(?::([0-5][0-9]))?)")
_RESOURCE_NAME = re.compile(r"[a-z][a-z0-9._/-]{0,62}")


def parse_quantity(resource: str, value: object) -> int:
    """Read one quantity: a number, or text such as ``"500m"``, ``"4Gi"``, ``"1.5GiB"``.

    The resource's name decides the base unit: bytes for memory and disk, thousandths for the rest. Raises ValueError for what is
    not a quantity, negative, finer than one base unit, or 2**62 base units or more.
    """
    if not re.fullmatch(_RESOURCE_NAME, resource):
        raise ValueError(f"{resource!r} is not a resource name: use lower-case letters, digits and . _ / -, at most 63")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{resource}: {value!r} is not a quantity: write a number or text such as '500m' or '4Gi'")
    text = value.strip() if isinstance(value, str) else repr(value)
    if text.startswith("-"):
        raise ValueError(f"{resource}: {text} is negative: a quantity is zero or more")
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{resource}: {text!r} is not a quantity: write a number, then one of m k M G T Ki Mi Gi Ti or nothing")
    try:
        base = _base_units(resource, match)
    except ValueError:
        raise ValueError(f"{resource}: a number has more digits than can be read") from None
    unit = "byte" if resource in BYTE_RESOURCES else "thousandth"
    if base >= LARGEST:
        raise ValueError(f"{resource}: {text} is too large: write {_largest(resource)} or less")
    if base != int(base):
        hint = f" (did you mean {match['number']}M?)" if match["suffix"] == "m" and unit == "byte" else ""
        raise ValueError(f"{resource}: {text} is finer than one {unit}{hint}")
    return int(base)


def is_written_exactly(resource: str, base: Fraction, written: str) -> bool:
    """Return True if the text that :func:`round_quantity` made of `base` is exact."""
    match = _QUANTITY.fullmatch(written.removeprefix("-"))
    return match is not None and _base_units(resource, match) * (-1 if written.startswith("-") else 1) == base


def _base_units(resource: str, match: re.Match[str]) -> int | Fraction:
    number = match["number"]
    exact = (int(number) if number.isdigit() else Fraction(number)) * _FACTORS[match["suffix"] or ""]
    return exact if resource in BYTE_RESOURCES else exact * 1000


def parse_quantities(values: Mapping[str, object]) -> dict[str, int]:
    """Read a demand, a capacity or a limit: resource name to base units."""
    return {name: parse_quantity(name, value) for name, value in values.items()}


def read_number(text: str, kind: type[int] | type[float] = float, least: float | None = None, most: float | None = None) -> float:
    """Read the number in a row or an option. Raises ValueError, worded as for documents, also if it is out of bounds."""
    given = shortened(repr(text))
    try:
        found = kind(plain_number(text))
    except ValueError:
        whole, digits = "whole " * (kind is int), ", in the digits 0 to 9" * ("_" in text or not text.isascii())
        raise ValueError(f"write a {whole}number{digits}, not {given}") from None
    if not math.isfinite(found):
        raise ValueError(f"write a finite number, not {given}")
    if least is not None and found < least:
        raise ValueError(f"use {least:.12g} or more, not {given}")
    if most is not None and found > most:
        raise ValueError(f"use {most:.12g} or less, not {given}")
    return found


def plain_number(text: str) -> str:
    """Return text for `int` or `Fraction`. Raises ValueError for ``1_000`` and non-ASCII digits, which they would accept."""
    if "_" in text or not text.isascii():
        raise ValueError(f"{text!r} is not a number: write it in the digits 0 to 9")
    return text


class Percent(float):
    """Percent of the cluster's capacity."""


def parse_amount(resource: str, value: object) -> int | Percent:
    """Read a quantity in base units, or ``"25%"``. Raises ValueError as :func:`parse_quantity` does, and for more than 100%."""
    return parse_percent(value) if isinstance(value, str) and "%" in value else parse_quantity(resource, value)


def parse_percent(value: str) -> Percent:
    """Read ``"25%"``. Raises ValueError for anything else, or if it is not from 0 to 100."""
    match = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)\s*%", value.strip())
    if match is None or float(match[1]) > 100:
        raise ValueError(f'{value!r} is not a percentage: write one from "0%" to "100%"')
    return Percent(match[1])


def total_of(quantities: Iterable[Mapping[str, int]]) -> Counter[str]:
    """Return the sum of several vectors of quantities."""
    total: Counter[str] = Counter()
    for each in quantities:
        total.update(each)
    return total


def check_total(capacities: Iterable[Mapping[str, int]]) -> None:
    """Raise ValueError if the sum of nodes' capacities reaches LARGEST."""
    for resource, amount in total_of(capacities).items():
        if amount >= LARGEST:
            raise ValueError(f"the nodes have too much {resource} together: at most {_largest(resource)}")


def parse_seconds(value: object) -> float:
    """Read a duration in seconds: a number, or text such as ``"30s"``, ``"5min"``, ``"2h"``, ``"1d"``, ``"1:00:00"``, ``"2-12"``.

    The last two are hours:minutes:seconds and days-hours[:minutes[:seconds]], as Slurm writes them.

    Raises ValueError for anything else.
    """
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    if isinstance(text, str) and (clock := _CLOCK.fullmatch(text.strip())):
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    match = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f'{value!r} is not a duration: write seconds, or "30s", "5min", "2h", "1d", "1:30:00"')
    return float(match[1]) * _UNITS[(match[2] or "s")[:1]]


def format_quantity(resource: str, base: int) -> str:
    """Format base units briefly, as :func:`parse_quantity` reads them back: ``4Gi``, ``500m``, ``9``."""
    if resource not in BYTE_RESOURCES:
        return str(base // 1000) if base % 1000 == 0 else f"{base}m"
    fits = [(suffix, int(_FACTORS[suffix])) for suffix in ("Ti", "Gi", "Mi", "Ki", "T", "G", "M", "k")]
    written = (f"{base // factor}{suffix}" for suffix, factor in fits if base and base % factor == 0)
    return min(written, key=len, default=str(base))


def round_quantity(resource: str, base: int) -> str:
    """Format base units for people, to about three digits: ``23.4Gi``, ``1.5``. Not for parsing."""
    if resource not in BYTE_RESOURCES:
        return f"{base / 1000:.3f}".rstrip("0").rstrip(".")
    for suffix in ("Ti", "Gi", "Mi", "Ki"):
        factor = int(_FACTORS[suffix])
        if abs(base) >= factor:
            return f"{base / factor:.1f}".removesuffix(".0") + suffix
    return str(base)


def format_share(share: float) -> str:
    """Format a share in percent; a small one does not read as 0: ``12.3%``, ``0.04%``, ``<0.0001%``."""
    if 0 < share < 0.000001:
        return "<0.0001%"
    digits = 1 if share <= 0 or share >= 0.0005 else math.ceil(-math.log10(100 * share))
    return f"{share:.{digits}%}"


def format_quantities(values: Mapping[str, int]) -> str:
    """Format a vector for people: ``cpu=1 memory=4Gi``, or ``nothing``."""
    return " ".join(f"{name}={format_quantity(name, base)}" for name, base in values.items()) or "nothing"


def _largest(resource: str) -> str:
    return f"{Decimal(LARGEST - 1) / (1 if resource in BYTE_RESOURCES else 1000):.3g}"

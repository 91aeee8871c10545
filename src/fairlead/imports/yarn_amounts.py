"""Readers of YARN's amounts and lists of people."""

import re

from fairlead.imports.imported import toml_key
from fairlead.model.documents import check_who
from fairlead.model.quantity import Percent, format_quantity, parse_amount, parse_percent, parse_quantity
from fairlead.model.specs import ALL

NAMES = {"memory-mb": "memory", "memory": "memory", "vcores": "cpu", "cpu": "cpu", "yarn.io/gpu": "gpu"}
"""YARN's resource names to fairlead's; all others are the same."""
_NUMBER = r"([0-9]+(?:\.[0-9]*)?)"

Amounts = dict[str, int | Percent]
"""Resource name to base units, or to a percentage of the cluster."""


def read_amounts(text: str) -> Amounts:
    """Read ``1024 mb, 4 vcores``, ``50%``, ``50% cpu, 20% memory`` or ``vcores=4, memory-mb=1024, other=2``, all in % or none.

    In the first form YARN drops fractions (:func:`drops_fractions`); in the last it accepts only whole numbers. Raises
    ValueError for what YARN refuses.
    """
    text = text.strip()
    if "=" in text:
        found = dict(_assigned(part) for part in text.split(","))
    elif "%" in text and "cpu" not in text.lower() and "memory" not in text.lower():
        return {ALL: parse_percent(_without_point(text))}
    else:
        found = _old_style(text)
    if len({isinstance(amount, Percent) for amount in found.values()}) > 1:
        raise ValueError(f"{text!r} is partly in %, which YARN refuses: write all of it in %, or none")
    return found


def drops_fractions(text: str) -> bool:
    """Return True if YARN drops a fraction, as of ``2.5 vcores, 1024 mb``."""
    return "=" not in text and "%" not in text and re.search(r"[0-9]\.0*[1-9]", text) is not None


def _old_style(text: str) -> Amounts:
    """Read amounts of memory and cores, each with its unit, in any order."""
    found: Amounts = {}
    for part in filter(None, re.split(r"\s*,\s*", re.sub(rf"({_NUMBER}\s*(?:%\s*)?[a-z]+)\s+(?=\d)", r"\1,", text.lower()))):
        match = re.fullmatch(rf"{_NUMBER}\s*(%?)\s*(mb|vcores|memory|cpu)", part.strip())
        if match is None or bool(match[2]) != (match[3] in ("memory", "cpu")):
            raise ValueError(f"{text!r} is not an amount: write '1024 mb, 4 vcores', '50%', or 'memory-mb=1024, vcores=4'")
        resource = "memory" if match[3] in ("mb", "memory") else "cpu"
        if resource in found:
            raise ValueError(f"{text!r} names {resource} twice: write '1024 mb, 4 vcores'")
        whole = match[1].partition(".")[0]
        found[resource] = parse_percent(_without_point(f"{match[1]}%")) if match[2] else _absolute(resource, whole)
    if set(found) != {"memory", "cpu"}:
        raise ValueError(f"{text!r} does not name both memory and cores: write '1024 mb, 4 vcores'")
    return found


def _assigned(part: str) -> tuple[str, int | Percent]:
    name, _, value = (word.strip() for word in part.partition("="))
    resource = NAMES.get(name, name)
    parse_quantity(resource, 0)  # raises for an invalid name
    if "%" in value:
        return resource, parse_amount(resource, _without_point(value))
    if re.fullmatch(r"[0-9]+\.[0-9]*", value):
        raise ValueError(f"{name}={value}: YARN accepts only whole numbers here: write {name}={value.partition('.')[0]}")
    return resource, _absolute(resource, value)


def _without_point(percent: str) -> str:
    """Remove a trailing point from a percentage, as in ``50.%``."""
    return re.sub(r"\.(?=\s*%)", "", percent)


def _absolute(resource: str, number: str) -> int:
    """Read YARN's number: megabytes (MiB) of memory, units of all else."""
    if not re.fullmatch(r"[0-9]{1,15}", number):
        raise ValueError(f"{resource}: {number!r} is not a number of 0 or more")
    return parse_quantity(resource, f"{number}Mi" if resource == "memory" else number)


def written(amounts: Amounts) -> str:
    """Format amounts as a TOML value."""
    if set(amounts) == {ALL}:
        return f'"{float(amounts[ALL]):g}%"'
    parts = [f"{toml_key(name)} = {_value(name, amount)}" for name, amount in amounts.items()]
    return "{ " + ", ".join(parts) + " }" if parts else "{}"


def _value(name: str, amount: int | Percent) -> str:
    if isinstance(amount, Percent):
        return f'"{float(amount):g}%"'
    text = format_quantity(name, amount)
    return text if text.isdigit() else f'"{text}"'


def no_more_than(least: Amounts, most: Amounts) -> Amounts:
    """Cap minimums by their maximums, if both are amounts or both percentages."""

    def kept(name: str, amount: int | Percent) -> int | Percent:
        bound = most.get(name, most.get(ALL))
        return min(amount, bound) if bound is not None and isinstance(bound, Percent) == isinstance(amount, Percent) else amount

    return {name: kept(name, amount) for name, amount in least.items()}


def read_people(text: str) -> tuple[list[str], list[str]]:
    """Read ``alice,bob admins``: return people and @groups, and the names that are invalid here.

    ``*`` is everybody, white space nobody. People come before the first space, groups after it.
    """
    if text.strip() == "*":
        return ["*"], []
    users, _, groups = text.partition(" ")
    names = [name.strip() for name in users.split(",")] + [f"@{name.strip()}" for name in groups.split(",") if name.strip()]
    good, bad = [], []
    for name in filter(None, names):
        try:
            good.append(check_who(name))
        except ValueError:
            bad.append(name)
    return good, bad

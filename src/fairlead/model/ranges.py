"""Numbers as ranges, as Slurm writes the indices of a job array: ``1-10,15,20-30:2``."""

import re
from collections.abc import Iterable

Range = tuple[int, int, int]
"""First, last, step."""
MOST = 1_000_000
"""Numbers, at most: as tasks of a job."""
_RANGE = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15})(?::([0-9]{1,15}))?)?", re.ASCII)


def read_ranges(text: str) -> list[int]:
    """Read numbers, in order and each once. Raises ValueError, also for more than `MOST` numbers."""
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{part!r} is not a range: write numbers and ranges, such as 1-10,15,20-30:2")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first:
            raise ValueError(f"{part!r} ends before it begins: write FIRST-LAST")
        if step < 1:
            raise ValueError(f"{part!r} has steps of 0: write FIRST-LAST:STEP")
        if (last - first) // step >= MOST - len(found):
            raise ValueError(f"{text!r} has more than {MOST:,} numbers")
        found.update(range(first, last + 1, step))
    return sorted(found)


def read_array(text: str) -> list[int]:
    """Read the indices of a job array such as ``1-100%5``, where at most 5 tasks run at once. Raises ValueError."""
    ranges, percent, at_most = text.partition("%")
    if percent and not re.fullmatch("[0-9]{1,9}", at_most):
        raise ValueError(f"{text!r}: write how many tasks run at once at most after %, such as 1-100%5")
    return read_ranges(ranges)


def ranges_of(numbers: Iterable[int]) -> list[Range]:
    """Return rising numbers as ranges."""
    found: list[Range] = []
    for number in numbers:
        if found:
            first, last, step = found[-1]
            if first == last or number == last + step:
                found[-1] = first, number, number - last
                continue
            if last == first + step and step > 1:  # two that are no range
                found[-1:] = [(first, first, 1), (last, number, number - last)]
                continue
        found.append((number, number, 1))
    return found


def number_at(ranges: Iterable[Range], place: int) -> int:
    """Return the number at a place, from 0 on. Raises IndexError."""
    for first, last, step in ranges:
        count = (last - first) // step + 1
        if place < count:
            return first + place * step
        place -= count
    raise IndexError(place)


def written_ranges(ranges: Iterable[Range], most: int | None = None) -> str:
    """Write ranges as :func:`read_ranges` reads them; after `most` of them ``...``."""
    words: list[str] = []
    for number, (first, last, step) in enumerate(ranges):
        if number == most:
            return ",".join([*words, "..."])
        pair = f"{first},{last}" if last == first + step and step > 1 else f"{first}-{last}"
        words.append(str(first) if first == last else pair + f":{step}" * (step > 1 and last > first + step))
    return ",".join(words)

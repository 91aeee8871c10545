"""Texts for people: escapes what is untrusted, and writes lists and moments.

Control characters in names, commands and labels could move the cursor, change colours and titles, or overwrite other output. So
all commands escape them, except those that print the output of tasks.
"""

import re
import time
from collections.abc import Sequence

_STEERING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""C0 and C1 controls, direction marks, invisible characters and surrogates."""


def plain(text: str) -> str:
    r"""Escape control characters, as ``\x1b``."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def plain_lines(text: str) -> str:
    """Escape control characters, except newlines."""
    return "\n".join(map(plain, text.split("\n")))


def listed(names: Sequence[str], most: int = 3) -> str:
    """Join names for a sentence: ``a, b and c``, or ``a, b, c and 7 more``."""
    shown = [*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])]
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def moment(at: float) -> str:
    """Format a moment in local time, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def span(seconds: float) -> str:
    """Format a duration in its largest unit: ``12s``, ``3min``, ``5h``, ``2d``."""
    seconds = max(0.0, seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"

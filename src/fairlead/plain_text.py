"""Other people's text, made harmless for a terminal.

Control characters in names, commands and labels would move the cursor, recolour, retitle, or write over what others said; so
none is printed as it is, by any command but those that print what a task wrote.
"""

import re
from collections.abc import Sequence

_STEERING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""What is not seen but acted upon: C0 and C1 controls, marks of direction, invisible characters, halves of characters."""


def plain(text: str) -> str:
    r"""Text with what steers a terminal written out, as ``\x1b``."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def plain_lines(text: str) -> str:
    """The same for text of several lines."""
    return "\n".join(map(plain, text.split("\n")))


def listed(names: Sequence[str], most: int = 3) -> str:
    """Names for a sentence: ``a, b and c``, or ``a, b, c and 7 more``."""
    shown = [*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])]
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))

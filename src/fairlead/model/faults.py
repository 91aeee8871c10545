"""What is wrong with something that came from outside, in the same words wherever it came from: a document, a request, a row."""

import re
from collections.abc import Sequence
from typing import Any

from fairlead.plain_text import plain

LONGEST = 300
"""Characters of a message: what is longer is cut in its middle, for it is somebody's value."""
MOST_DIGITS = 4000

_WORDS = {
    "extra_forbidden": "no such key here",
    "missing": "is missing",
    "list_type": "write a list",
    "dict_type": "write a table",
    "model_type": "write a table",
    "model_attributes_type": "write a table",
    "string_type": "write text",
    "string_unicode": "is not UTF-8 text",
    "bool_type": "write true or false",
    "bool_parsing": "write true or false",
    "int_type": "write a whole number",
    "int_parsing": "write a whole number",
    "int_from_float": "write a whole number",
    "int_parsing_size": "has more digits than can be counted",
    "float_type": "write a number",
    "float_parsing": "write a number",
    "finite_number": "write a finite number",
}


def reason(kind: str, message: str) -> str:
    """A fault that pydantic found, as people read it: `kind` and `message` are its own."""
    return shortened(_WORDS.get(kind, message.removeprefix("Value error, ").removeprefix("Input ")))


def shortened(text: str) -> str:
    """One line, of plain text, and no longer than anybody reads."""
    line = plain(text.replace("\n", " "))
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 3 :]}"


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, each of whose keys is there once: for `json.loads`, as `object_pairs_hook`. Raises ValueError."""
    found = dict(pairs)
    if len(found) < len(pairs):
        name = repeated([name for name, _ in pairs])
        raise ValueError(f"{shortened(str(name))}: is there twice: keep one of them")
    return found


def repeated(names: Sequence[str]) -> str | None:
    """The first of some names that is there more than once; None where each is there once."""
    seen = set[str]()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def check_digits(text: str) -> int | None:
    """The line of a number that has more digits than can be read; None where there is none."""
    found = re.search(rf"[0-9][0-9_]{{{MOST_DIGITS},}}", text)
    return None if found is None else text.count("\n", 0, found.start()) + 1

"""Error messages for outside input, with the same words for documents, requests and rows."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from fairlead.plain_text import plain

LONGEST = 300
"""Longest message, in characters. A longer one quotes a long value and is cut in the middle."""
MOST_DIGITS = 4000

_WORDS = {
    "extra_forbidden": "no such key here",
    "missing": "is missing",
    "list_type": "write a list",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "write a table"),
    "string_type": "write text",
    "string_unicode": "is not UTF-8 text",
    **dict.fromkeys(("bool_type", "bool_parsing"), "write true or false"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "write a whole number"),
    "int_parsing_size": "has more digits than can be counted",
    **dict.fromkeys(("float_type", "float_parsing"), "write a number"),
    "finite_number": "write a finite number",
}

_PATTERNS = [
    (re.compile(pattern), words)
    for pattern, words in (
        (r"Input should be greater than or equal to (\S+)", r"use \1 or more"),
        (r"Input should be greater than (\S+)", r"use more than \1"),
        (r"Input should be less than or equal to (\S+)", r"use \1 or less"),
        (r"Input should be less than (\S+)", r"use less than \1"),
        (r"Input should be ('.*)", r"write \1"),
        (r"String should match pattern (.*)", r"is not written as \1 says"),
        (r"String should have at most (\d+) characters?", r"is longer than \1 characters"),
        (r"String should have at least (\d+) characters?", r"is shorter than \1 characters"),
        (r"\w+ should have at most (\d+) items?.*", r"has more than \1 entries"),
        (r"\w+ should have at least 1 item .*", r"is empty: name one"),
        (r"\w+ should have at least (\d+) items?.*", r"has fewer than \1 entries"),
    )
]
"""pydantic's messages about bounds, and ours."""
_NO_JSON = (
    ("Expecting value", "a value is missing here"),
    ("Expecting property name", "write a key in double quotes here"),
    ("Expecting ',' delimiter", "a comma or a closing bracket is missing here"),
    ("Expecting ':' delimiter", "a colon is missing here"),
    ("Extra data", "the value ends before this: remove what follows"),
    ("Unterminated string", "the text that begins here has no closing quote"),
    ("Invalid control character", "write line ends and other control characters as \\n or \\u0000"),
    ("Invalid \\", "write a backslash as two"),
    ("Illegal trailing comma", "remove the comma before the closing bracket"),
    ("Unexpected UTF-8 BOM", "remove the byte order mark"),
)


def reason(kind: str, message: str) -> str:
    """Translate an error of pydantic; `kind` and `message` are pydantic's."""
    if kind in _WORDS:
        return _WORDS[kind]
    for pattern, words in _PATTERNS:
        if kind != "value_error" and pattern.fullmatch(message):
            return shortened(pattern.sub(words, message))
    return shortened(message.removeprefix("Value error, ").removeprefix("Input "))


def no_json(error: json.JSONDecodeError) -> str:
    """Return why and at which column a text is not JSON, and the remedy."""
    why = next((words for begins, words in _NO_JSON if error.msg.startswith(begins)), error.msg.lower())
    return f"not JSON: column {error.colno}: {why}"


def shortened(text: str) -> str:
    """Return a text as one plain line of at most about LONGEST characters."""
    line = plain(text.replace("\n", " "))
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 3 :]}"


class Repeated(ValueError):
    """A repeated key in a JSON object. `place` is its path: keys and indices from the root."""

    reason = "is given twice: keep one of them"

    def __init__(self, place: tuple[str | int, ...]) -> None:
        super().__init__(f"{shortened('.'.join(map(str, place)))}: {self.reason}")
        self.place = place


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as written, with repeated keys."""


def parse_json(text: str | bytes) -> Any:
    """Read JSON; no object may repeat a key.

    Raises Repeated, JSONDecodeError, RecursionError, and ValueError for invalid UTF-8 or a number with too many digits.
    """
    whole = True

    def read(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal whole
        found = dict(pairs)
        whole &= len(found) == len(pairs)
        return found

    try:
        value = json.loads(text, object_pairs_hook=read)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:  # Python's limit on digits
        raise ValueError("a number has more digits than can be read") from None
    if not whole:
        raise Repeated(_place_of_repeated(json.loads(text, object_pairs_hook=_Pairs)) or ())
    return value


def _place_of_repeated(value: Any) -> tuple[str | int, ...] | None:
    """Return the path of the first repeated key; None without one."""
    if not isinstance(value, list):
        return None
    inside: Iterable[tuple[str | int, Any]] = enumerate(value)
    if isinstance(value, _Pairs):
        twice = repeated([name for name, _ in value])
        if twice is not None:
            return (twice,)
        inside = value
    found = ((key, _place_of_repeated(each)) for key, each in inside)
    return next(((key, *place) for key, place in found if place is not None), None)


def repeated(names: Sequence[str]) -> str | None:
    """Return the first name that occurs more than once; None if there is none."""
    seen = set[str]()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def check_digits(path: object, text: str, error: type[Exception]) -> None:
    """Raise an error with the line of a number with too many digits to read."""
    if found := re.search(rf"[0-9][0-9_]{{{MOST_DIGITS},}}", text):
        raise error(f"{path}:{text.count(chr(10), 0, found.start()) + 1}: a number has more digits than can be read")

"""A fairlead.toml that was made from what another system was configured by."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass
class Imported:
    """The document, and what it leaves out, each with where that is said."""

    text: str
    left_out: list[str]


def document(source: str, notes: Mapping[str, Sequence[str]], blocks: Sequence[str]) -> str:
    """The text: what it was made from, what is to be noted under each head, and its tables."""
    lines = [f"# Made from {source}."]
    for head, told in notes.items():
        if told:
            lines += ["#", f"# {head}:", *(f"#   {each}" for each in told)]
    return "\n\n".join(["\n".join(lines), *blocks]) + "\n"


def toml_key(name: str) -> str:
    """A name as a key in TOML, quoted where it must be."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_text(name)


def toml_text(text: str) -> str:
    """A text as a string in TOML, which has no halves of characters, and takes no DEL as it stands."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

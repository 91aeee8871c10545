"""A fairlead.toml made from another system's configuration."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass
class Imported:
    """The document, and the settings that it leaves out, each with its place in the source."""

    text: str
    left_out: list[str]


def document(source: str, notes: Mapping[str, Sequence[str]], blocks: Sequence[str]) -> str:
    """Write the text: the source, the notes under each head, and the tables."""
    lines = [f"# Made from {source}."]
    for head, under in notes.items():
        if under:
            lines += ["#", f"# {head}:", *(f"#   {each}" for each in under)]
    return "\n\n".join(["\n".join(lines), *blocks]) + "\n"


def toml_key(name: str) -> str:
    """Format a TOML key, quoted if necessary; TOML has no surrogate escapes, and allows no bare DEL."""
    quoted = json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quoted

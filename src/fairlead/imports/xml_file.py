"""An XML file as a tree of elements with line numbers. Document types, entities and external content are refused."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler

from defusedxml.common import DefusedXmlException
from defusedxml.sax import parseString

from fairlead.model.documents import LARGEST_FILE, DocumentError

DEEPEST = 100
"""Most levels of nested elements."""


@dataclass
class Element:
    """An element: its raw text, and its children in order."""

    name: str
    line: int
    attributes: dict[str, str]
    text: str = ""
    children: list["Element"] = field(default_factory=list)

    def named(self, *names: str) -> list["Element"]:
        """Return the children with one of these names."""
        return [child for child in self.children if child.name in names]


class _Builder(ContentHandler):
    def __init__(self) -> None:
        super().__init__()
        self.path: list[Element] = []
        self.top: Element | None = None

    def startElement(self, name: str, attrs: Any) -> None:
        if len(self.path) == DEEPEST:
            raise SAXParseException(f"more than {DEEPEST} nested elements", None, self._locator)  # type: ignore[attr-defined]
        found = Element(name, self._locator.getLineNumber(), dict(attrs.items()))  # type: ignore[attr-defined]
        if self.path:
            self.path[-1].children.append(found)
        else:
            self.top = found
        self.path.append(found)

    def characters(self, content: str) -> None:
        self.path[-1].text += content

    def endElement(self, name: str) -> None:
        self.path.pop()


def read_xml(path: Path) -> Element:
    """Read a file; return its outermost element.

    Raises
    ------
    DocumentError
        With the line: the file cannot be read, is too large, is not XML, or has a document type.
    """
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise DocumentError(f"{path}: larger than {LARGEST_FILE >> 20} MiB: not a configuration")
        body = path.read_bytes()
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read: {error.strerror}") from None
    builder = _Builder()
    try:
        parseString(body, builder, forbid_dtd=True)
    except SAXParseException as error:
        raise DocumentError(f"{path}:{error.getLineNumber()}: not XML: {error.getMessage()}") from None
    except DefusedXmlException:
        raise DocumentError(f"{path}: has a document type or entities, which are not read: remove them") from None
    assert builder.top is not None, "the parser raises if it finds no element"
    return builder.top

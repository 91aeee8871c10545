"""YARN's fair-scheduler.xml and yarn-site.xml as plain data with line numbers; `yarn.py` interprets them.

Apache Hadoop, AllocationFileParser, AllocationFileQueueParser, QueuePlacementPolicy, FairSchedulerConfiguration. A file that YARN
refuses is refused; what YARN ignores with a warning is reported as unknown.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler

from defusedxml.common import DefusedXmlException
from defusedxml.sax import parseString

from fairlead.failure import failing
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
        self.path = [Element("", 0, {})]

    def startElement(self, name: str, attrs: Any) -> None:
        if len(self.path) > DEEPEST:
            raise SAXParseException(f"more than {DEEPEST} nested elements", None, self._locator)  # type: ignore[attr-defined]
        found = Element(name, self._locator.getLineNumber(), dict(attrs.items()))  # type: ignore[attr-defined]
        self.path[-1].children.append(found)
        self.path.append(found)

    def characters(self, content: str) -> None:
        self.path[-1].text += content

    def endElement(self, name: str) -> None:
        self.path.pop()


def read_xml(path: Path) -> Element:
    """Return the outermost element of a file. Raises DocumentError, with the line, if it is not XML that can be read."""
    with failing(f"{path}: cannot be read: ", OSError, to=DocumentError):
        if path.stat().st_size > LARGEST_FILE:
            raise DocumentError(f"{path}: larger than {LARGEST_FILE >> 20} MiB: not a configuration")
        body = path.read_bytes()
    builder = _Builder()
    try:
        parseString(body, builder, forbid_dtd=True)
    except SAXParseException as error:
        raise DocumentError(f"{path}:{error.getLineNumber()}: not XML: {error.getMessage()}") from None
    except DefusedXmlException:
        raise DocumentError(f"{path}: has a document type or entities, which are not read: remove them") from None
    return builder.path[0].children[0]  # the parser raises if it finds no element


QUEUE_SETTINGS = {
    "minResources", "maxResources", "maxContainerAllocation", "maxChildResources", "maxRunningApps", "maxAMShare", "weight",
    "schedulingPolicy", "aclSubmitApps", "aclAdministerApps", "aclAdministerReservations", "aclListReservations",
    "aclSubmitReservations", "minSharePreemptionTimeout", "fairSharePreemptionTimeout", "fairSharePreemptionThreshold",
    "allowPreemptionFrom", "reservation",
}  # fmt: skip
TOP_SETTINGS = {
    "userMaxAppsDefault", "queueMaxAppsDefault", "queueMaxResourcesDefault", "queueMaxAMShareDefault",
    "defaultMinSharePreemptionTimeout", "defaultFairSharePreemptionTimeout", "defaultFairSharePreemptionThreshold",
    "defaultQueueSchedulingPolicy", "reservation-agent", "reservation-policy", "reservation-planner",
}  # fmt: skip
ALIASES = {
    "schedulingMode": "schedulingPolicy",
    "defaultQueueSchedulingMode": "defaultQueueSchedulingPolicy",
    "fairSharePreemptionTimeout": "defaultFairSharePreemptionTimeout",
}
"""Older words; the last only at the top of the file."""
QUEUE_NAMES = ("queue", "pool")
MOST_REPORTED = 50
"""Most errors reported at once."""
QUEUE_NAME = r"[A-Za-z0-9_][A-Za-z0-9_@+-]{0,127}"
RULES = ("specified", "user", "primaryGroup", "secondaryGroupExistingQueue", "nestedUserQueue", "default", "reject")
POLICIES = {
    "fair": "fair", "FairSharePolicy": "fair", "drf": "drf", "DominantResourceFairnessPolicy": "drf", "fifo": "fifo",
    "FifoPolicy": "fifo",
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """A value, its line, and its key (`word`); `raw` is the value with surrounding white space."""

    text: str
    line: int
    word: str
    raw: str = ""


@dataclass
class YarnQueue:
    """A queue by its path below the root; `settings` are its settings by YARN's keys."""

    path: str
    line: int
    is_parent: bool = False
    settings: dict[str, Setting] = field(default_factory=dict)
    children: list["YarnQueue"] = field(default_factory=list)


@dataclass(frozen=True)
class Rule:
    """A placement rule; `queue` is the path that a `default` names, `inner` the rule in a nestedUserQueue."""

    name: str
    line: int
    create: bool
    queue: str = "default"
    inner: "Rule | None" = None

    @property
    def is_terminal(self) -> bool:
        """True if it finds a queue for everybody, or refuses everybody."""
        if self.name == "nestedUserQueue":
            return self.create and self.inner is not None and self.inner.is_terminal
        return self.name == "reject" or (self.create and self.name in ("user", "primaryGroup", "default"))


@dataclass
class Allocations:
    """The content of a fair-scheduler.xml; `rules` is None without a queuePlacementPolicy.

    `faults` are the errors, YARN's or ours: file, line and message.
    """

    path: Path
    root: YarnQueue
    defaults: dict[str, Setting] = field(default_factory=dict)
    users: dict[str, Setting] = field(default_factory=dict)
    rules: list[Rule] | None = None
    unknown: list[Setting] = field(default_factory=list)
    faults: list[tuple[Path, int, str]] = field(default_factory=list)

    def wrong(self, line: int, message: str) -> None:
        """Record an error of this file; :meth:`check` raises all of them together."""
        self.faults.append((self.path, line, message))

    def check(self) -> None:
        """Raise DocumentError with the errors, at most MOST_REPORTED, in the order of their lines."""
        lines = [f"{path}:{line}: {message}" for path, line, message in sorted(dict.fromkeys(self.faults))]
        if lines:
            more = [f"(and {len(lines) - MOST_REPORTED} more)"] if len(lines) > MOST_REPORTED else []
            raise DocumentError("\n".join([*lines[:MOST_REPORTED], *more]))


def read_allocations(path: Path) -> Allocations:
    """Read a fair-scheduler.xml; `faults` has what YARN refuses. Raises DocumentError for any other file."""
    top = read_xml(path)
    found = Allocations(path, YarnQueue("", top.line))
    if top.name != "allocations":
        raise DocumentError(f"{path}:{top.line}: <{top.name}> is not an allocation file: its outermost element is <allocations>")
    queues = top.named(*QUEUE_NAMES)
    roots = [each for each in queues if each.attributes.get("name", "").strip() == "root"]
    if roots and len(queues) > 1:
        line = next(each.line for each in queues if each is not roots[0])
        found.wrong(line, "a root queue contains all others: move this one into it")
    found.root = _queue(found, roots[0] if roots else Element("queue", top.line, {}, children=queues), "")
    for child in top.children:
        word = ALIASES.get(child.name, child.name)
        if word in TOP_SETTINGS:
            found.defaults[word] = _setting(child)
        elif child.name == "user":
            _read_user(found, child)
        elif child.name == "queuePlacementPolicy":
            found.rules = _rules(found, child)
        elif child.name not in QUEUE_NAMES:
            found.unknown.append(_setting(child))
    return found


def _setting(element: Element) -> Setting:
    return Setting(element.text.strip(), element.line, element.name, element.text)


def policy_of(setting: Setting) -> str | None:
    """Return fair, drf or fifo for YARN's name or class of the policy; None for any other."""
    return POLICIES.get(setting.text.rpartition(".")[2]) or POLICIES.get(setting.text.lower())


def _queue(found: Allocations, element: Element, path: str) -> YarnQueue:
    queue = YarnQueue(path, element.line, element.attributes.get("type") == "parent")
    names = set()
    for child in element.children:
        word = ALIASES.get(child.name, child.name) if child.name == "schedulingMode" else child.name
        if child.name in QUEUE_NAMES:
            below = _path(found, child, path)
            if below in names:
                found.wrong(child.line, f"queue {below!r} is declared twice")
            names.add(below)
            queue.children.append(_queue(found, child, below))
        elif word in QUEUE_SETTINGS:
            queue.settings[word] = _setting(child)
        else:
            found.unknown.append(_setting(child))
    return queue


def _path(found: Allocations, element: Element, above: str) -> str:
    name = element.attributes.get("name", "").strip()
    if not name or "." in name:
        found.wrong(element.line, f"queue name {name!r}: YARN refuses empty names and names with a period")
    elif not re.fullmatch(QUEUE_NAME, name):
        found.wrong(element.line, f"queue name {name!r}: use letters, digits and _ @ + -")
    return f"{above}/{name}".lstrip("/")


def _read_user(found: Allocations, element: Element) -> None:
    name = element.attributes.get("name", "").strip()
    for child in element.children:
        if child.name == "maxRunningApps":
            found.users[name] = _setting(child)
        else:
            found.unknown.append(_setting(child))


def _rules(found: Allocations, element: Element) -> list[Rule]:
    read = [_rule(found, child) for child in element.named("rule")]
    rules = [rule for rule in read if rule is not None]
    for rule in rules[:-1]:
        if rule.is_terminal:
            found.wrong(rule.line, f"YARN refuses rules after one that decides for everybody, as {rule.name} does here")
    if not read or (read[-1] is not None and not read[-1].is_terminal):
        line = rules[-1].line if rules else element.line
        found.wrong(line, "YARN needs a last rule that decides for everybody, such as <rule name='default'/>")
    return rules


def _rule(found: Allocations, element: Element) -> Rule | None:
    """Read a rule; on an error, record it and return None."""
    name = element.attributes.get("name", "")
    if name not in RULES:
        found.wrong(element.line, f"{name!r} is not a rule: use one of {', '.join(RULES)}")
        return None
    create = element.attributes.get("create", "true").strip().lower() != "false"
    inner = [_rule(found, child) for child in element.named("rule")]
    if None in inner:
        return None
    if name == "nestedUserQueue" and (len(inner) != 1 or (inner[0] and inner[0].name in ("reject", "nestedUserQueue", "user"))):
        found.wrong(element.line, "nestedUserQueue holds one rule that finds the queue above")
        return None
    queue = element.attributes.get("queue", "root.default").strip().removeprefix("root.").replace(".", "/")
    if queue == "root" or not all(re.fullmatch(QUEUE_NAME, part) for part in queue.split("/")):
        found.wrong(element.line, f"queue {queue!r}: no job can go there: write one such as root.default")
        return None
    return Rule(name, element.line, create, queue, inner[0] if inner else None)


def read_site(path: Path) -> dict[str, Setting]:
    """Read the properties of a yarn-site.xml by name."""
    top = read_xml(path)
    if top.name != "configuration":
        raise DocumentError(f"{path}:{top.line}: <{top.name}> is not a yarn-site.xml: its outermost element is <configuration>")
    found = {}
    for element in top.named("property"):
        names, values = element.named("name"), element.named("value")
        if names and values:
            name = names[0].text.strip()
            found[name] = Setting(values[0].text.strip(), element.line, name, values[0].text)
    return found

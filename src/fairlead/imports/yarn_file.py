"""YARN's fair-scheduler.xml and yarn-site.xml as plain data: what is said, and on which line. What it means is next door.

Apache Hadoop, AllocationFileParser, AllocationFileQueueParser, QueuePlacementPolicy, FairSchedulerConfiguration. A file that YARN
refuses is refused; what YARN passes over with a warning is told as unknown.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.imports.xml_file import Element, read_xml
from fairlead.model.documents import DocumentError

SAID_OF_QUEUES = {
    "minResources", "maxResources", "maxContainerAllocation", "maxChildResources", "maxRunningApps", "maxAMShare", "weight",
    "schedulingPolicy", "aclSubmitApps", "aclAdministerApps", "aclAdministerReservations", "aclListReservations",
    "aclSubmitReservations", "minSharePreemptionTimeout", "fairSharePreemptionTimeout", "fairSharePreemptionThreshold",
    "allowPreemptionFrom", "reservation",
}  # fmt: skip
SAID_AT_TOP = {
    "userMaxAppsDefault", "queueMaxAppsDefault", "queueMaxResourcesDefault", "queueMaxAMShareDefault",
    "defaultMinSharePreemptionTimeout", "defaultFairSharePreemptionTimeout", "defaultFairSharePreemptionThreshold",
    "defaultQueueSchedulingPolicy", "reservation-agent", "reservation-policy", "reservation-planner",
}  # fmt: skip
ALIASES = {
    "schedulingMode": "schedulingPolicy",
    "defaultQueueSchedulingMode": "defaultQueueSchedulingPolicy",
    "fairSharePreemptionTimeout": "defaultFairSharePreemptionTimeout",
}
"""Older words; the last is one at the top of the file only."""
QUEUE_NAMES = ("queue", "pool")
MOST_TOLD = 50
"""Faults that are told of at once."""
QUEUE_NAME = r"[A-Za-z0-9_][A-Za-z0-9_@+-]{0,127}"
RULES = ("specified", "user", "primaryGroup", "secondaryGroupExistingQueue", "nestedUserQueue", "default", "reject")
POLICIES = {
    "fair": "fair", "FairSharePolicy": "fair", "drf": "drf", "DominantResourceFairnessPolicy": "drf", "fifo": "fifo",
    "FifoPolicy": "fifo",
}  # fmt: skip


@dataclass(frozen=True)
class Said:
    """A value, where it is, and the word that it is said with; `raw` is the value with the white space around it."""

    text: str
    line: int
    word: str
    raw: str = ""


@dataclass
class YarnQueue:
    """A queue by its path below the root; what is said of it by YARN's words."""

    path: str
    line: int
    is_parent: bool = False
    said: dict[str, Said] = field(default_factory=dict)
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
        """Whether it finds a queue for everybody, or refuses everybody."""
        if self.name == "nestedUserQueue":
            return self.create and self.inner is not None and self.inner.is_terminal
        return self.name == "reject" or (self.create and self.name in ("user", "primaryGroup", "default"))


@dataclass
class Allocations:
    """What a fair-scheduler.xml says; `rules` is None where it says nothing of them.

    `faults` are what YARN, or we, refuse: of which file, on which line, and what it is.
    """

    path: Path
    root: YarnQueue
    defaults: dict[str, Said] = field(default_factory=dict)
    users: dict[str, Said] = field(default_factory=dict)
    rules: list[Rule] | None = None
    unknown: list[Said] = field(default_factory=list)
    faults: list[tuple[Path, int, str]] = field(default_factory=list)

    def wrong(self, line: int, message: str) -> None:
        """Take note of a fault of this file, and go on: whoever reads it next is told of all."""
        self.faults.append((self.path, line, message))

    def check(self) -> None:
        """Raise DocumentError where there are faults: all of them in the order of their lines, or the first of very many."""
        lines = [f"{path}:{line}: {message}" for path, line, message in sorted(dict.fromkeys(self.faults))]
        if lines:
            more = [f"(and {len(lines) - MOST_TOLD} more)"] if len(lines) > MOST_TOLD else []
            raise DocumentError("\n".join([*lines[:MOST_TOLD], *more]))


def read_allocations(path: Path) -> Allocations:
    """Read a fair-scheduler.xml; what YARN refuses is among its faults. Raises DocumentError for what is no such file."""
    top = read_xml(path)
    found = Allocations(path, YarnQueue("", top.line))
    if top.name != "allocations":
        raise DocumentError(
            f"{path}:{top.line}: <{top.name}> is no allocation file: its outermost element is <allocations>"
        )
    queues = top.named(*QUEUE_NAMES)
    roots = [each for each in queues if each.attributes.get("name", "").strip() == "root"]
    if roots and len(queues) > 1:
        found.wrong(
            next(each.line for each in queues if each is not roots[0]),
            "a root queue is there, so all others are inside it: move this one there",
        )
    if roots:
        found.root = _queue(found, roots[0], "")
    else:
        found.root = _queue(found, Element("queue", top.line, {}, children=queues), "")
    for child in top.children:
        word = ALIASES.get(child.name, child.name)
        if word in SAID_AT_TOP:
            found.defaults[word] = _said(child)
        elif child.name == "user":
            _read_user(found, child)
        elif child.name == "queuePlacementPolicy":
            found.rules = _rules(found, child)
        elif child.name not in QUEUE_NAMES:
            found.unknown.append(_said(child))
    return found


def _said(element: Element) -> Said:
    return Said(element.text.strip(), element.line, element.name, element.text)


def policy_of(said: Said) -> str | None:
    """The scheduling policy that is named, by YARN's word for it or its class: fair, drf or fifo; None for another."""
    return POLICIES.get(said.text.rpartition(".")[2]) or POLICIES.get(said.text.lower())


def _queue(found: Allocations, element: Element, path: str) -> YarnQueue:
    queue = YarnQueue(path, element.line, element.attributes.get("type") == "parent")
    names = set()
    for child in element.children:
        word = ALIASES.get(child.name, child.name) if child.name == "schedulingMode" else child.name
        if child.name in QUEUE_NAMES:
            below = _path(found, child, path)
            if below in names:
                found.wrong(child.line, f"queue {below!r} is there twice")
            names.add(below)
            queue.children.append(_queue(found, child, below))
        elif word in SAID_OF_QUEUES:
            queue.said[word] = _said(child)
        else:
            found.unknown.append(_said(child))
    return queue


def _path(found: Allocations, element: Element, above: str) -> str:
    name = element.attributes.get("name", "").strip()
    if not name or "." in name:
        found.wrong(element.line, f"queue name {name!r}: YARN takes none that is empty or has a period")
    elif not re.fullmatch(QUEUE_NAME, name):
        found.wrong(element.line, f"queue name {name!r}: here it is of letters, digits and _ @ + -: name it otherwise")
    return f"{above}/{name}".lstrip("/")


def _read_user(found: Allocations, element: Element) -> None:
    name = element.attributes.get("name", "").strip()
    for child in element.children:
        if child.name == "maxRunningApps":
            found.users[name] = _said(child)
        else:
            found.unknown.append(_said(child))


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
    """A rule; None for one that is wrong, which is noted."""
    name = element.attributes.get("name", "")
    if name not in RULES:
        found.wrong(element.line, f"{name!r} is no rule: there is {', '.join(RULES)}")
        return None
    create = element.attributes.get("create", "true").strip().lower() != "false"
    inner = [_rule(found, child) for child in element.named("rule")]
    if None in inner:
        return None
    if name == "nestedUserQueue" and (
        len(inner) != 1 or (inner[0] and inner[0].name in ("reject", "nestedUserQueue", "user"))
    ):
        found.wrong(element.line, "nestedUserQueue holds one rule that finds the queue above")
        return None
    queue = element.attributes.get("queue", "root.default").strip().removeprefix("root.").replace(".", "/")
    if queue == "root" or not all(re.fullmatch(QUEUE_NAME, part) for part in queue.split("/")):
        found.wrong(element.line, f"queue {queue!r}: no job can go there: write one such as root.default")
        return None
    return Rule(name, element.line, create, queue, inner[0] if inner else None)


def read_site(path: Path) -> dict[str, Said]:
    """Read a yarn-site.xml: its properties by name."""
    top = read_xml(path)
    if top.name != "configuration":
        raise DocumentError(
            f"{path}:{top.line}: <{top.name}> is no yarn-site.xml: its outermost element is <configuration>"
        )
    found = {}
    for element in top.named("property"):
        names, values = element.named("name"), element.named("value")
        if names and values:
            name = names[0].text.strip()
            found[name] = Said(values[0].text.strip(), element.line, name, values[0].text)
    return found

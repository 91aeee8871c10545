"""fairlead.toml, read and validated whole: who shares, on what, and how the scheduler behaves.

An error names the file, the line, the key and what would be right, and nothing of a wrong file is used. The same document
as JSON is accepted wherever a file is.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from fairlead.model.quantity import check_total, format_quantity, parse_quantities, parse_seconds
from fairlead.model.specs import ROOT, USERS, Node, Policy, Quantities, Queue, Settings, ancestors

T = TypeVar("T", bound=BaseModel)

MOST_QUEUES = 100_000
MOST_NODES = 100_000
SHORTEST_HALF_LIFE, LONGEST_HALF_LIFE = 1.0, 3650 * 86400.0
LARGEST_FILE = 16 * 2**20


class DocumentError(ValueError):
    """A document that cannot be used: ``file:line: key: what is wrong and what would be right``."""


def read_quantities(value: object) -> dict[str, int]:
    """Read a table of quantities as it stands in a document; raises ValueError with the remedy."""
    if not isinstance(value, dict):
        raise ValueError('write a table such as { cpu = 2, memory = "4Gi" }')
    return parse_quantities(value)


def check_queue_name(name: str) -> str:
    if name == "/":
        return ROOT
    for part in name.split("/"):
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,127}|\*", part):
            raise ValueError(f'{name!r} is no queue path: write "org/team" with letters, digits and . _ @ + -')
    if USERS in name.split("/")[:-1]:
        raise ValueError(f'{name!r}: "*" stands for each user and can only come last')
    return name


def _check_policy(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z][\w-]*(:[\w./=-]+){0,16}", name, re.ASCII):
        raise ValueError(f"{name!r} is no policy: write one as `fairlead policies` lists them")
    return name


def _check_weight(value: float | dict[str, float]) -> float | dict[str, float]:
    for weight in value.values() if isinstance(value, dict) else [value]:
        if not 1e-9 <= weight <= 1e9:
            raise ValueError(f"{weight:g} is no weight: use a number from 1e-9 to 1e9")
    return value


def read_half_life(value: object) -> float:
    """Read a half-life in seconds, or "none" as 0; raises ValueError with the remedy."""
    if value == "none":
        return 0.0
    seconds = parse_seconds(value)
    if not SHORTEST_HALF_LIFE <= seconds <= LONGEST_HALF_LIFE:
        raise ValueError(
            f'{value!r} is no half-life: write "1d", or another from 1 s to 3650d; "none" has no history count'
        )
    return seconds


def _check_node_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,252}", name):
        raise ValueError(f"{name!r} is no node name: use letters, digits and . _ : -")
    return name


def _check_who(name: str) -> str:
    if name != "*" and not re.fullmatch(r"@?[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,127}\$?", name):
        raise ValueError(f'{name!r} is nobody: write an account "alice", a group "@vision", or "*" for everybody')
    return name


Amounts = Annotated[dict[str, int], BeforeValidator(read_quantities)]
Weight = Annotated[float | dict[str, float], AfterValidator(_check_weight)]
Who = Annotated[list[Annotated[str, AfterValidator(_check_who)]], Field(max_length=10_000)]
Count = Annotated[int, Field(ge=0, le=10**9, strict=True)]


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class QueueTable(Table):
    name: Annotated[str, AfterValidator(check_queue_name)]
    weight: Weight = 1.0
    guarantee: Amounts = Field(default_factory=dict)
    limit: Amounts = Field(default_factory=dict)
    max_jobs: Count | None = None
    max_tasks: Count | None = None
    policy: Annotated[Policy, AfterValidator(_check_policy)] | None = None
    history: Annotated[float | None, BeforeValidator(read_half_life)] = None
    draining: bool = False
    submit: Who | None = None
    admin: Who = Field(default_factory=list)
    private: bool = False


class NodeTable(Table):
    name: Annotated[str, AfterValidator(_check_node_name)]
    count: Annotated[int, Field(ge=1, le=MOST_NODES, strict=True)] = 1
    capacity: Amounts
    labels: dict[str, str] = Field(default_factory=dict)


class SchedulerTable(Table):
    reserve_after: Annotated[float, BeforeValidator(parse_seconds), Field(ge=0)] = Settings().reserve_after
    max_losses: Annotated[int, Field(ge=1, le=100, strict=True)] = Settings().max_losses
    keep_jobs: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = Settings().keep_jobs


class Document(Table):
    queue: list[QueueTable] = Field(default_factory=list, max_length=MOST_QUEUES)
    node: list[NodeTable] = Field(default_factory=list, max_length=MOST_NODES)
    scheduler: SchedulerTable = Field(default_factory=SchedulerTable)
    operators: Who = Field(default_factory=list)
    root_tasks: bool = False


class Configuration:
    """What a valid document says, as plain data.

    Attributes
    ----------
    queues : list of Queue
        Parents before children. Without any, everybody gets a leaf of their own under the root.
    nodes : list of Node
        Empty where the document leaves them to be found out.
    settings : Settings
    """

    def __init__(self, queues: Sequence[Queue], nodes: Sequence[Node], settings: Settings) -> None:
        self.queues = list(queues) or [Queue(USERS)]
        self.nodes = list(nodes)
        self.settings = settings


def validated(kind: type[T], path: Path, text: str, raw: dict[str, Any]) -> T:
    """Make a document of what was read; raises DocumentError with the first few of its faults."""
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        faults = [fault(path, text, e["loc"], e["msg"], e["type"]) for e in error.errors()]
        more = f"\n(and {len(faults) - 5} more)" if len(faults) > 5 else ""
        raise DocumentError("\n".join(faults[:5]) + more) from None


def read_configuration(path: Path, check_policy: Callable[[str], object]) -> Configuration:
    """Read and validate a fairlead.toml, or the same document as ``.json``.

    Parameters
    ----------
    path : Path
    check_policy : function
        Raises ValueError for what is no policy, with what would be right.

    Raises
    ------
    DocumentError
        With the file, the line (for TOML), the key and the remedy; the first few of several faults.
    """
    text, raw = read_table(path)
    document = validated(Document, path, text, raw)

    queues = [_queue(table) for table in document.queue]
    policies: dict[str, Any] = {}
    for number, queue in enumerate(queues):
        try:
            policies[queue.name] = check_policy(queue.policy) if queue.policy else None
        except ValueError as error:
            raise DocumentError(fault(path, text, ("queue", number, "policy"), str(error), "")) from None
    for number, key, message in [
        *_tree_faults(queues, document.queue),
        *_history_faults(queues, policies, document.node),
    ]:
        raise DocumentError(fault(path, text, ("queue", number, key), message, ""))
    nodes = []
    for number, table in enumerate(document.node):
        for k in range(table.count):
            name = table.name if table.count == 1 else f"{table.name}-{k}"
            nodes.append(Node(name, table.capacity, table.labels))
        if len({n.name for n in nodes}) < len(nodes):
            raise DocumentError(
                fault(
                    path,
                    text,
                    ("node", number, "name"),
                    f"a node {table.name!r} is there already: name it otherwise",
                    "",
                )
            )
        if not any(table.capacity.values()):
            raise DocumentError(
                fault(
                    path,
                    text,
                    ("node", number, "capacity"),
                    "a node with nothing to give: name a resource",
                    "",
                )
            )
        if len(nodes) > MOST_NODES:
            raise DocumentError(fault(path, text, ("node", number, "count"), f"more than {MOST_NODES} nodes", ""))
        try:
            check_total(node.capacity for node in nodes)
        except ValueError as error:
            raise DocumentError(fault(path, text, ("node", number, "capacity"), str(error), "")) from None
    queues.sort(key=lambda q: (q.name.count("/"), q.name))
    s = document.scheduler
    settings = Settings(s.reserve_after, s.max_losses, s.keep_jobs, document.operators, document.root_tasks)
    return Configuration(queues, nodes, settings)


def _queue(table: QueueTable) -> Queue:
    """A queue as a valid table says it."""
    return Queue(
        table.name,
        table.weight,
        table.guarantee,
        table.limit,
        table.max_jobs,
        table.max_tasks,
        table.policy or "",
        table.history,
        table.draining,
        table.submit,
        table.admin,
        table.private,
    )


def _history_faults(
    queues: list[Queue], policies: dict[str, Any], nodes: list[NodeTable]
) -> Iterator[tuple[int, str, str]]:
    """Where a policy that goes by what was used before would have nothing to go by: (number of the table, key, message)."""
    for number, queue in enumerate(queues):
        names = [name for name in [queue.name, *ancestors(queue.name)] if policies.get(name)]
        policy = policies[names[0]] if names else None
        for_trees = getattr(policy, "for_trees", None)  # None: it does not go by that
        if policy is None or for_trees is None or not (for_trees or names[0] == queue.name):
            continue
        if queue.history == 0.0:
            message = (
                f'{policy.name} goes by what was used before: leave history out, or write a half-life, such as "7d"'
            )
            yield number, "history", message
        if (
            names[0] == queue.name
            and policy.resource
            and nodes
            and not any(n.capacity.get(policy.resource) for n in nodes)
        ):
            message = f"{policy.name} goes by the use of {policy.resource}, and no node has any: name a resource that there is"
            yield number, "policy", message


def _tree_faults(queues: list[Queue], tables: list[QueueTable]) -> list[tuple[int, str, str]]:
    """What is wrong with the queues as a tree: (number of the table, key, message)."""
    by_name: dict[str, int] = {}
    for number, queue in enumerate(queues):
        if queue.name in by_name:
            return [(number, "name", f"a queue {queue.name!r} is there already: keep one of them")]
        by_name[queue.name] = number
    inner = {up for queue in queues for up in ancestors(queue.name)[:1]}
    for number, queue in enumerate(queues):
        for up in ancestors(queue.name):
            if up != ROOT and up not in by_name:
                return [
                    (
                        number,
                        "name",
                        f"{queue.name!r} hangs in the air: declare [[queue]] name = {up!r} as well",
                    )
                ]
        for resource, least in queue.guarantee.items():
            most = queue.limit.get(resource)
            if most is not None and least > most:
                message = f"guarantees {format_quantity(resource, least)} {resource}, over its limit of "
                return [(number, "guarantee", message + format_quantity(resource, most))]
        if queue.name == ROOT and (queue.guarantee or queue.limit or queue.weight != 1.0):
            return [
                (
                    number,
                    "name",
                    'the root "/" takes a policy, a history, max_jobs, max_tasks, submit, admin and private only',
                )
            ]
        if tables[number].policy is not None and queue.name not in inner:
            message = f"{queue.name!r} has no queues below it for a policy to choose among: remove it, or declare them"
            return [(number, "policy", message)]
        if queue.history is not None and queue.name not in inner:
            message = f"{queue.name!r} has no queues below it that used something before: name it for the queue above"
            return [(number, "history", message)]
    for number, queue in enumerate(queues):
        promised: Quantities = {}
        children = [c for c in queues if c.name != ROOT and ancestors(c.name)[:1] == [queue.name]]
        for child in children if queue.guarantee else []:
            for resource, amount in child.guarantee.items():
                promised[resource] = promised.get(resource, 0) + amount
        for resource, amount in promised.items():
            own = queue.guarantee.get(resource, 0)
            if amount > own:
                message = f"its children are guaranteed {format_quantity(resource, amount)} {resource}, itself only "
                return [(number, "guarantee", message + format_quantity(resource, own))]
    return []


def read_table(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise DocumentError(f"{path}: larger than {LARGEST_FILE >> 20} MiB: not a configuration")
        text = path.read_text("utf-8")
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DocumentError(f"{path}: not UTF-8 text (byte {error.start})") from None
    try:
        raw = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", str(error))
        where, why = (f"{path}:{place[2]}", place[1]) if place else (str(path), str(error))
        raise DocumentError(f"{where}: not TOML: {why}") from None
    except json.JSONDecodeError as error:
        raise DocumentError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise DocumentError(f"{path}: nested too deeply") from None
    if not isinstance(raw, dict):
        raise DocumentError(f"{path}: a table is needed, with [[queue]] and [[node]]")
    return text, raw


_PLAIN_WORDS = {
    "extra_forbidden": "no such key here",
    "missing": "is missing",
}


def fault(path: Path, text: str, location: Sequence[str | int], message: str, kind: str) -> str:
    location = [part for part in location if part not in ("float", "dict[str,float]")]
    line = _line_of(text, location)
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    reason = _PLAIN_WORDS.get(kind, message.removeprefix("Value error, "))
    return f"{path}:{line}: {key}: {reason}" if path.suffix != ".json" else f"{path}: {key}: {reason}"


def _line_of(text: str, location: Sequence[str | int]) -> int:
    """The line of a key in TOML, as near as can be told: the key's own, else its table's header, else the first.

    tomllib keeps no positions, and a parser that does is a large thing to carry for a line number.
    """
    table, number = str(location[0]) if location else "", location[1] if len(location) > 1 else None
    keys = [str(part) for part in location[1:] if isinstance(part, str)]
    header = re.compile(r"^\s*\[\[?\s*" + re.escape(table) + r"\s*\]\]?")
    seen, found = -1, 1
    inside = False
    for count, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*\[", line) and not re.match(r"\s*\[\[?\s*" + re.escape(table) + r"\.", line):
            inside = False
            if header.match(line):
                seen += 1
                if seen == (number if isinstance(number, int) else 0):
                    inside, found = True, count
        elif inside and keys and re.match(r"\s*[\"']?" + re.escape(keys[0]) + r"[\"']?\s*[.=]", line):
            return count
        elif re.match(r"\s*" + re.escape(table) + r"\s*=", line):
            found = count
    return found

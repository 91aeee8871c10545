"""fairlead.toml, read and validated as a whole: the queues, the nodes, and the scheduler's settings.

An error names the file, the line, the key and the remedy. A file with an error is not used at all. The same document as JSON is
accepted wherever a file is.
"""

import contextlib
import difflib
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from fairlead.failure import Failure
from fairlead.model import quantity, specs
from fairlead.model.faults import Repeated, check_digits, no_json, parse_json, reason, shortened

T = TypeVar("T", bound=BaseModel)

MOST_QUEUES = 100_000
MOST_NODES = 100_000
SHORTEST_HALF_LIFE, LONGEST_HALF_LIFE = 1.0, 3650 * 86400.0
MOST_LEVELS = 100
"""Most levels of the queue tree."""
LONGEST_TIMEOUT = LONGEST_PROTECTION = 365 * 86400.0
LONGEST_GRACE = 86400.0
LARGEST_FILE = 16 * 2**20
SEVERAL = ("queue", "node", "placement", "user")
"""Tables of which there may be several, of configurations and problems."""
KEPT = ("cpu", "memory", "gpu")
"""Resources of this machine that it can keep for itself."""
KEPT_BY_DEFAULT: dict[str, int | quantity.Percent] = {"cpu": 500, "memory": quantity.Percent(5)}


class DocumentError(Failure, ValueError):
    """An invalid document: ``file:line: key: error and remedy``."""


def read_quantities(value: object) -> dict[str, int]:
    """Read a document's table of quantities. Raises ValueError with the remedy."""
    if not isinstance(value, dict):
        raise ValueError('write a table such as { cpu = 2, memory = "4Gi" }')
    return quantity.parse_quantities(value)


def read_amounts(value: object) -> dict[str, int | quantity.Percent]:
    """Read a guarantee or limit: a table of quantities and percentages, or one percentage for all. Raises ValueError."""
    if isinstance(value, str):
        return {specs.ALL: quantity.parse_percent(value)}
    if not isinstance(value, dict):
        raise ValueError('write a table such as { cpu = 2, memory = "25%" }, or "25%" for all')
    return {name: quantity.parse_amount(name, amount) for name, amount in value.items()}


def _read_url(value: object) -> str:
    if not isinstance(value, str) or not re.match("[a-z][a-z0-9+.-]*://", value):
        raise ValueError('write a URL such as "s3://bucket/folder" or "file:///folder"')
    if ":" in value.partition("://")[2].partition("/")[0].rpartition("@")[0]:
        raise ValueError("leave out the password, because every user sees the URL: fsspec finds credentials by itself")
    return value


def _read_page(value: object) -> object:
    if not isinstance(value, int) or not (isinstance(value, bool) or 1 <= value <= 65535):
        raise ValueError("write true, false, or a port from 1 to 65535")
    return value


def read_kept(value: object) -> dict[str, int | quantity.Percent]:
    """Read what a machine keeps for itself: a table of quantities and percentages. Raises ValueError with the remedy."""
    if not isinstance(value, dict):
        raise ValueError('write a table such as { cpu = 0.5, memory = "5%" }, or {} to keep nothing')
    kept = {name: quantity.parse_amount(name, amount) for name, amount in value.items()}
    for name, amount in kept.items():
        if name not in KEPT:
            raise ValueError(f"this machine has no {name!r} to keep: use {', '.join(KEPT)}")
        if name == "gpu" and (isinstance(amount, quantity.Percent) or amount % 1000):
            raise ValueError("gpu: a part of a GPU cannot be kept: write a whole number")
    return kept


def check_queue_name(name: str) -> str:
    if name == "/":
        return specs.ROOT
    if name.count("/") >= MOST_LEVELS:
        raise ValueError(f"a queue path of {name.count('/') + 1} levels: use at most {MOST_LEVELS}")
    for part in name.split("/"):
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,127}|\*", part):
            raise ValueError(f'{name!r} is not a queue path: write "org/team" with letters, digits and . _ @ + -')
    if specs.USERS in name.split("/")[:-1]:
        raise ValueError(f'{name!r}: "*" stands for each user and can only come last')
    return name


def _check_policy(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z][\w-]*(:[\w./=-]+){0,16}", name, re.ASCII):
        raise ValueError(f"{name!r} is not a policy: write one as `fairlead policies` lists them")
    return name


def _check_weight(value: float | dict[str, float], zero: bool = False) -> float | dict[str, float]:
    """Check one weight, or one per resource. With `zero`, one weight may be 0."""
    for weight in value.values() if isinstance(value, dict) else [value]:
        if not (specs.LEAST_WEIGHT <= weight <= 1e9 or (zero and value == 0)):
            raise ValueError(f"{weight:g} is not a weight: use a number from 1e-9 to 1e9")
    return value


def read_half_life(value: object) -> float:
    """Read a half-life in seconds, or "none" as 0. Raises ValueError with the remedy."""
    if value == "none":
        return 0.0
    return _read_span(
        value, SHORTEST_HALF_LIFE, LONGEST_HALF_LIFE,
        'is not a half-life: write "1d", or another from 1 s to 3650d; with "none", past use does not count',
    )  # fmt: skip


def read_timeout(value: object) -> float:
    """Read seconds, or "never" as NEVER. Raises ValueError with the remedy."""
    if value == "never":
        return specs.NEVER
    return _read_span(value, 0, LONGEST_TIMEOUT, 'is not a timeout: write "30s", or another from 0 to 365d, or "never"')


def _read_history(value: object) -> float:
    return _read_span(value, 86400, LONGEST_HALF_LIFE, 'is not a history: write "90d", or another from 1d to 3650d')


def _read_span(value: object, least: float, most: float, otherwise: str) -> float:
    """Read a duration within bounds. Raises ValueError, which says what it is otherwise."""
    with contextlib.suppress(ValueError):
        if least <= (seconds := quantity.parse_seconds(value)) <= most:
            return seconds
    raise ValueError(f"{value!r} {otherwise}")


def _read_part(value: object) -> float:
    part = quantity.parse_percent(value) if isinstance(value, str) else 0.0
    if not 0 < part <= 100:
        raise ValueError(f'{value!r} is not a percentage: write "25%", or another above 0% and up to 100%')
    return part


def _read_ports(value: object) -> specs.Ranges:
    """Read ranges of ports, "31000-32000,33000"; "" for none."""
    text = value if isinstance(value, str) else "?"
    found: specs.Ranges = []
    for part in text.split(",") if text else []:
        ends = re.fullmatch(r" *(\d{1,5})(?:-(\d{1,5}))? *", part)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if not (found[-1][1] if found else 0) < first <= last < 2**16:
            message = f'{value!r} is not a list of ports: write "31000-32000", with commas between ranges, in order; "" for none'
            raise ValueError(message)
        found.append((first, last))
    return found


def check_node_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,252}", name):
        message = f"{name[:253]!r} is not a node name: use at most 253 letters, digits and . _ : -, first a letter, digit or _"
        raise ValueError(message)
    return name


def check_who(name: str) -> str:
    if name != "*" and not re.fullmatch(r"@?[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,127}\$?", name):
        raise ValueError(f'{name!r} is not a person: write an account "alice", a group "@vision", or "*" for everybody')
    return name


Amounts = Annotated[dict[str, int], BeforeValidator(read_quantities)]
AmountsOrPercent = Annotated[dict[str, Any], BeforeValidator(read_amounts)]
Strict = Annotated[float, Field(strict=True)]
"""A number, not text that looks like one."""
Switch = Annotated[bool, Field(strict=True)]
"""true or false, and nothing that converts to it."""
Weight = Annotated[Strict | dict[str, Strict], AfterValidator(partial(_check_weight, zero=True))]
PositiveWeight = Annotated[Strict | dict[str, Strict], AfterValidator(_check_weight)]
Who = Annotated[list[Annotated[str, AfterValidator(check_who)]], Field(max_length=10_000)]
Bytes = Annotated[int, BeforeValidator(partial(quantity.parse_quantity, "memory"))]
Count = Annotated[int, Field(ge=0, le=10**9, strict=True)]
Timeout = Annotated[float, BeforeValidator(read_timeout)]
Seconds = Annotated[float, BeforeValidator(quantity.parse_seconds)]


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class OfferTable(Table):
    """Most that one framework may be offered at once, in percent of the cluster."""

    most: Annotated[float, BeforeValidator(_read_part)]


class QueueTable(Table):
    name: Annotated[str, AfterValidator(check_queue_name)]
    weight: Weight = 1.0
    guarantee: AmountsOrPercent = Field(default_factory=dict)
    limit: AmountsOrPercent = Field(default_factory=dict)
    largest_task: Amounts | None = None
    max_jobs: Count | None = None
    max_tasks: Count | None = None
    policy: Annotated[specs.Policy, AfterValidator(_check_policy)] | None = None
    history: Annotated[float | None, BeforeValidator(read_half_life)] = None
    draining: Switch = False
    submit: Who | None = None
    admin: Who = Field(default_factory=list)
    private: Switch = False
    order: Literal["priority", "fair"] = "priority"
    strict: Switch = False
    guarantee_timeout: Timeout | None = None
    fair_share_timeout: Timeout | None = None
    fair_share_threshold: Annotated[Strict, Field(ge=0, le=1)] | None = None
    revocable: Switch = True
    min_runtime: Annotated[Seconds, Field(ge=0, le=LONGEST_PROTECTION)] | None = None
    grace: Annotated[Seconds, Field(ge=0, le=LONGEST_GRACE)] | None = None
    priority_revokes: Switch | None = None
    borrow: Amounts = Field(default_factory=dict)
    lend: Amounts = Field(default_factory=dict)
    offer: OfferTable | None = None


class NodeTable(Table):
    name: Annotated[str, AfterValidator(check_node_name)]
    count: Annotated[int, Field(ge=1, le=MOST_NODES, strict=True)] = 1
    capacity: Amounts
    labels: dict[str, str] = Field(default_factory=dict)


class SchedulerTable(Table):
    reserve_after: Annotated[float | None, BeforeValidator(quantity.parse_seconds), Field(ge=0)] = None
    idle_budget: Annotated[Strict, Field(ge=0, le=1)] = specs.Settings().idle_budget
    max_losses: Annotated[int, Field(ge=1, le=100, strict=True)] = specs.Settings().max_losses
    keep_jobs: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = specs.Settings().keep_jobs
    revoke: Switch = specs.Settings().revoke
    offer_timeout: Annotated[Seconds, Field(gt=0)] = specs.Settings().offer_timeout
    offer: OfferTable | None = None
    ports: Annotated[specs.Ranges, BeforeValidator(_read_ports)] = Field(default_factory=lambda: specs.Settings().ports)
    max_jobs_of: dict[Annotated[str, Field(min_length=1, max_length=100)], Count] = Field(default_factory=dict)
    history: Annotated[float, BeforeValidator(_read_history)] = specs.Settings().history


class BoundsTable(Table):
    requests: Annotated[Strict, Field(ge=1, le=1e6)] | None = None
    streams: Count | None = None
    programs: Count | None = None
    jobs: Count | None = None
    tasks: Count | None = None
    environment: Bytes | None = None
    output_limit: Bytes | None = None


class PlacementTable(Table):
    by: Literal["asked", "user", "group", "groups"] | None = None
    queue: Annotated[str, AfterValidator(check_queue_name)] | None = None
    create: Switch = True
    own: Switch = False
    create_own: Switch = True
    not_asked: list[Annotated[str, AfterValidator(check_queue_name)]] = Field(default_factory=list, max_length=100)
    dot: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.@+-]{0,20}$")] = "."


class Document(Table):
    queue: list[QueueTable] = Field(default_factory=list, max_length=MOST_QUEUES)
    node: list[NodeTable] = Field(default_factory=list, max_length=MOST_NODES)
    scheduler: SchedulerTable = Field(default_factory=SchedulerTable)
    operators: Who = Field(default_factory=list)
    root_tasks: Switch = False
    bounds: dict[str, BoundsTable] = Field(default_factory=dict)
    placement: list[PlacementTable] = Field(default_factory=list, max_length=1000)
    system: Annotated[dict[str, Any] | None, BeforeValidator(read_kept)] = None
    output: Annotated[str, BeforeValidator(_read_url)] = ""
    page: Annotated[bool | int, BeforeValidator(_read_page)] = True


@dataclass
class Configuration:
    """A valid document as plain data.

    queues : parents before children. Without any, each user gets a leaf under the root.
    nodes : empty if the document leaves nodes to be detected.
    system : what this machine keeps for itself, in base units or percent of its capacity; for detected nodes.
    output : URL where tasks' output is kept beyond their nodes; empty for none.
    page : False for no page in a browser, or its port on this machine; True for any free one.
    without_queues : the file's path if it declares no queue, as one that was emptied by accident.
    """

    queues: list[specs.Queue]
    nodes: list[specs.Node]
    settings: specs.Settings
    system: Mapping[str, int | quantity.Percent] = field(default_factory=lambda: KEPT_BY_DEFAULT)
    output: str = ""
    page: bool | int = True
    without_queues: str = ""

    def __post_init__(self) -> None:
        self.queues = self.queues or [specs.Queue(specs.USERS)]


def validated(kind: type[T], path: Path | str, text: str, raw: dict[str, Any]) -> T:
    """Validate what was read. Raises DocumentError with the first few errors."""
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        found: dict[tuple[str | int, ...], Any] = {}
        for each in error.errors():  # a union type gives one error per member
            place = _place(each["loc"])
            if place not in found or each["type"] in ("finite_number", "value_error", "float_type"):
                found[place] = each
        outer = {place[:length] for place in found for length in range(len(place))}  # report only the innermost error
        inner = [each for place, each in found.items() if place not in outer]
        hint = _hint if str(path).endswith(".json") else lambda kind, e: _header_hint(kind, e) or _hint(kind, e)
        faults = [fault(path, text, e["loc"], e["msg"], e["type"]) + hint(kind, e) for e in inner[:5]]  # each looks for its line
        more = f"\n(and {len(inner) - 5} more)" if len(inner) > 5 else ""
        raise DocumentError("\n".join(faults) + more) from None


def _hint(kind: type[BaseModel], error: Any) -> str:
    """Say where an unknown key belongs, or which one it resembles; empty for other errors."""
    if error["type"] != "extra_forbidden":
        return ""
    *above, key = error["loc"]
    if key in kind.model_fields:
        return f": it stands below {_header(kind, above[0])}: move it above the first table"
    if there := [_header(kind, name) for name, table in _tables(kind).items() if key in table.model_fields]:
        return f": it is a key of {' or '.join(there)}"
    for name in above:
        kind = _tables(kind).get(name, kind)
    close = difflib.get_close_matches(key, kind.model_fields, 1)
    return f": did you mean {close[0]}?" if close else ""


def _header_hint(kind: type[BaseModel], error: Any) -> str:
    """Say how a table begins in TOML if something else is there, such as one table for a list of them; empty for other errors."""
    if error["type"] not in ("list_type", "model_type", "dict_type"):
        return ""
    name, *below = error["loc"]
    header = _header(kind, name) if name in _tables(kind) else ""
    several = header.startswith("[[")
    if not header or len(below) > several:
        return ""
    not_so = (f", not [{name}]" if several else f", not [[{name}]]") if isinstance(error["input"], dict | list) else ""
    return f": begin {'each' if several else 'it'} with {header}{not_so}"


def _tables(kind: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Return the tables that a table may have, by key."""
    fields = kind.model_fields.items()
    types = ((name, each) for name, field in fields for each in (field.annotation, *get_args(field.annotation)))
    return {name: each for name, each in types if isinstance(each, type) and issubclass(each, BaseModel)}


def _header(kind: type[BaseModel], name: str) -> str:
    return f"[[{name}]]" if get_origin(kind.model_fields[name].annotation) is list else f"[{name}]"


def read_configuration(path: Path, check_policy: Callable[[str], object]) -> Configuration:
    """Read and validate a fairlead.toml, or the same document as ``.json``.

    `check_policy` raises ValueError with the remedy for an invalid policy. Raises DocumentError with the file, the line (for
    TOML), the key and the remedy of the first few errors.
    """
    text, raw = read_table(path)
    return configuration_of(raw, check_policy, path, text)


def configuration_of(
    raw: dict[str, Any], check_policy: Callable[[str], object], path: Path | str, text: str = ""
) -> Configuration:
    """Validate a document; errors name `path`, and the line if its text is given."""
    document = validated(Document, path, text, raw)

    document.queue += _of_users(document.queue)
    queues = [_queue(table) for table in document.queue]
    policies: dict[str, Any] = {}
    for number, queue in enumerate(queues):
        try:
            policies[queue.name] = check_policy(queue.policy) if queue.policy else None
        except ValueError as error:
            raise DocumentError(fault(path, text, ("queue", number, "policy"), str(error), "")) from None
    for kind, faults in (
        ("queue", _tree_faults(queues, document.queue)),
        ("queue", _guarantee_faults(queues, policies)),
        ("queue", _history_faults(queues, policies, document.node)),
        ("node", _node_faults(document.node)),
        ("placement", _placement_faults(document.placement, queues)),
    ):
        for number, key, message in faults:
            raise DocumentError(fault(path, text, (kind, number, key), message, ""))
    nodes = [specs.Node(name, table.capacity, table.labels) for table in document.node for name in names_of(table)]
    queues.sort(key=lambda q: (q.name.count("/"), q.name))
    if nodes and document.system is not None:
        message = "applies only to a detected machine: here [[node]] tables declare the nodes"
        raise DocumentError(fault(path, text, ("system",), message, ""))
    system = KEPT_BY_DEFAULT if document.system is None else document.system
    settings = _settings(path, text, document, queues)
    return Configuration(queues, nodes, settings, system, document.output, document.page, "" if document.queue else str(path))


def _settings(path: Path | str, text: str, document: Document, queues: list[specs.Queue]) -> specs.Settings:
    """Return the settings of a document. Raises DocumentError if they do not fit its queues."""
    bounds = {
        name.strip("/") if name != "/" else specs.ROOT: specs.Bounds(**dict(table)) for name, table in document.bounds.items()
    }
    for name, message in _bounds_faults(bounds, queues):
        raise DocumentError(fault(path, text, ("bounds", name), message, ""))
    placement = [
        specs.Placement(**{**dict(table), "by": table.by or "", "queue": table.queue or ""}) for table in document.placement
    ]
    return specs.Settings(
        **_with_offer_most(document.scheduler), operators=document.operators, root_tasks=document.root_tasks, bounds=bounds,
        placement=placement,
    )  # fmt: skip


def names_of(table: NodeTable) -> list[str]:
    return [table.name] if table.count == 1 else [f"{table.name}-{k}" for k in range(table.count)]


def name_faults(tables: list[NodeTable]) -> Iterator[tuple[int, str, str]]:
    """Yield which nodes are too many, or have a name that is taken: (number of the table, key, message)."""
    names: set[str] = set()
    for number, table in enumerate(tables):
        if len(names) + table.count > MOST_NODES:
            yield number, "count", f"more than {MOST_NODES} nodes"
            return
        new = names_of(table)
        if taken := next((name for name in new if name in names), None):
            by_count = f", made of {table.name!r} by count = {table.count}," if table.count > 1 else ""
            yield number, "name", f"a node {taken!r}{by_count} already exists: choose another name"
        names.update(new)


def _node_faults(tables: list[NodeTable]) -> Iterator[tuple[int, str, str]]:
    """Yield errors of the nodes together: (number of the table, key, message)."""
    yield from name_faults(tables)
    total: specs.Quantities = {}
    for number, table in enumerate(tables):
        if not any(table.capacity.values()):
            yield number, "capacity", "the node has no capacity: name a resource"
        for name, amount in table.capacity.items():
            total[name] = total.get(name, 0) + amount * table.count
        try:
            quantity.check_total([total])
        except ValueError as error:
            yield number, "capacity", str(error)


def _queue(table: QueueTable) -> specs.Queue:
    found = _with_offer_most(table)
    del found["order"]
    for name in ("guarantee", "limit"):
        found[name], found[f"{name}_percent"] = _by_kind(found[name])
    return specs.Queue(**found | {"policy": table.policy or "", "strict": table.strict and table.order != "fair"})


def _with_offer_most(table: QueueTable | SchedulerTable) -> dict[str, Any]:
    """Return the keys of a table, with `offer_most` for what its table `offer` says."""
    found = dict(table)
    offer = found.pop("offer")
    return {**found, "offer_most": offer.most if offer else None}


def _of_users(tables: list[QueueTable]) -> list[QueueTable]:
    """Return a ``*`` leaf for each queue with order = "fair", unless it is declared."""
    there, says = {table.name for table in tables}, {table.name for table in tables if table.submit is not None}
    found = [(f"{table.name}/{specs.USERS}".lstrip("/"), table) for table in tables if table.order == "fair"]
    return [
        QueueTable(name=name, strict=table.strict, submit=None if says.intersection(specs.path_to_root(table.name)) else [])
        for name, table in found
        if name not in there and name.count(specs.USERS) == 1
    ]


def _by_kind(amounts: dict[str, Any]) -> tuple[specs.Quantities, dict[str, float]]:
    """Split amounts into those in base units and those in percent."""
    percent = {name: float(amount) for name, amount in amounts.items() if isinstance(amount, quantity.Percent)}
    return {name: amount for name, amount in amounts.items() if name not in percent}, percent


def _history_faults(
    queues: list[specs.Queue], policies: dict[str, Any], nodes: list[NodeTable]
) -> Iterator[tuple[int, str, str]]:
    """Yield errors of policies that count past use, but would have none: (number of the table, key, message)."""
    for number, queue in enumerate(queues):
        names = [name for name in specs.path_to_root(queue.name) if policies.get(name)]
        policy = policies[names[0]] if names else None
        for_trees = getattr(policy, "for_trees", None)  # None: past use does not count
        if policy is None or for_trees is None or not (for_trees or names[0] == queue.name):
            continue
        if queue.history == 0.0:
            message = f'{policy.name} counts past use: leave history out, or write a half-life, such as "7d"'
            yield number, "history", message
        if names[0] == queue.name and policy.resource and nodes and not any(n.capacity.get(policy.resource) for n in nodes):
            message = f"{policy.name} counts the use of {policy.resource}, and no node has any: name another resource"
            yield number, "policy", message


def _bounds_faults(bounds: dict[str, specs.Bounds], queues: list[specs.Queue]) -> Iterator[tuple[str, str]]:
    """Yield errors of the bounds on people: (queue or ``@default``, message)."""
    there = {queue.name for queue in queues} or {specs.USERS}
    for name, own in bounds.items():
        if name != specs.EVERYWHERE and name not in there:
            yield (name, f'there is no queue {name!r} here: name a declared one, or "{specs.EVERYWHERE}" for all of them')
        for key in ("requests", "streams", "programs"):
            if name != specs.EVERYWHERE and getattr(own, key) is not None:
                yield name, f'{key} cannot be bounded per queue: write them under "{specs.EVERYWHERE}"'


def _placement_faults(rules: list[PlacementTable], queues: list[specs.Queue]) -> Iterator[tuple[int, str, str]]:
    """Yield errors of the placement rules: (number of the rule, key, message)."""
    declared = {queue.name: queue for queue in queues} or {specs.USERS: specs.Queue(specs.USERS)}
    decided: int | None = None
    for number, rule in enumerate(rules):
        if (rule.by is None) == (rule.queue is None):
            yield number, "by", 'write either by = "asked", "user", "group" or "groups", or a queue'
        if rule.queue is not None and (specs.USERS in rule.queue.split("/") or specs.settings_for(rule.queue, declared) is None):
            yield number, "queue", f"there is no queue {rule.queue!r} here: name a declared one"
        if rule.not_asked and rule.by != "asked":
            yield number, "not_asked", 'needs by = "asked"'
        if decided is not None:
            yield (number, "by", f"is never reached: rule {decided + 1} finds a queue for everybody; move it up, or remove it")
        if rule.create and (rule.create_own or not rule.own) and rule.by in (None, "user"):
            decided = number


def _tree_faults(queues: list[specs.Queue], tables: list[QueueTable]) -> Iterator[tuple[int, str, str]]:
    """Yield errors of the queues as a tree: (number of the table, key, message)."""
    there: set[str] = set()
    for number, queue in enumerate(queues):
        if queue.name in there:
            yield number, "name", f"a queue {queue.name!r} already exists: keep one of them"
        there.add(queue.name)
    inner = {up for queue in queues for up in specs.ancestors(queue.name)[:1]}
    for number, queue in enumerate(queues):
        for up in specs.ancestors(queue.name):
            if up != specs.ROOT and up not in there:
                yield number, "name", f"{queue.name!r} has no parent queue: declare [[queue]] name = {up!r} as well"
        own = (queue.guarantee, queue.guarantee_percent, queue.limit, queue.limit_percent)
        if queue.name == specs.ROOT and (any(own) or queue.weight != 1.0):
            message = 'the root "/" takes only policy, history, max_jobs, max_tasks, largest_task, submit, admin and private'
            yield number, "name", message
        if tables[number].policy is not None and queue.name not in inner:
            message = f"{queue.name!r} has no queues below it for a policy to choose among: remove it, or declare them"
            if queue.name == specs.ROOT:
                message = (
                    '"/" has no queues below it for a policy to choose among: declare them, or [[queue]] name = "*" for one per '
                    "user, which exists by default only if no queue is declared"
                )
            yield number, "policy", message
        if tables[number].order == "fair" and queue.name.rpartition("/")[2] == specs.USERS:
            yield number, "order", f"{queue.name!r} is a leaf of one user already: leave order out"
        if queue.strict and queue.name in inner:
            yield number, "strict", f"{queue.name!r} has queues below it: set strict in the leaves, which have the jobs"
        if queue.history is not None and queue.name not in inner:
            message = f"{queue.name!r} has no queues below it whose past use could count: set it in the queue above"
            yield number, "history", message


def _guarantee_faults(queues: list[specs.Queue], policies: dict[str, Any]) -> Iterator[tuple[int, str, str]]:
    """Yield errors of guarantees that cannot be kept, and of weights of 0: (number of the table, key, message).

    Amounts are compared only with amounts, and percent with percent, because percent depend on the nodes.
    """
    below = promised_below(queues)
    for number, queue in enumerate(queues):
        for resource, least, most, kind in [
            *((r, least, queue.limit.get(r), "") for r, least in queue.guarantee.items()),
            *((r, least, queue.limit_percent.get(r), "%") for r, least in queue.guarantee_percent.items()),
        ]:
            if most is not None and least > most:
                message = f"guarantees {_amount(resource, least, kind)}, above its limit of "
                yield number, "guarantee", message + _amount(resource, most, kind, named=False)
        guaranteed = {*queue.guarantee, *queue.guarantee_percent}
        for resource in sorted(queue.lend.keys() - guaranteed if specs.ALL not in guaranteed else ()):
            yield number, "lend", f"has no guarantee of {resource} to lend: add it to the guarantee"
        above = specs.ancestors(queue.name)[0] if queue.name else specs.ROOT
        if queue.weight == 0 and not getattr(policies.get(above), "has_floors", False):
            message = f"0 is not a weight under the policy of {specs.written(above)!r}: use more, or yarn-drf or yarn-fair there"
            yield number, "weight", message
        if not getattr(policies.get(queue.name), "has_floors", False):
            yield from ((number, "guarantee", message) for message in _over_promised(queue, below.get(queue.name, [])))


def promised_below(queues: Sequence[specs.Queue]) -> dict[str, list[specs.Queue]]:
    """Return the nearest queues below each queue that have a guarantee."""
    some = {queue.name for queue in queues if queue.name != specs.ROOT and (queue.guarantee or queue.guarantee_percent)}
    found: dict[str, list[specs.Queue]] = {}
    for queue in queues:
        for above in specs.ancestors(queue.name) if queue.name in some else []:
            found.setdefault(above, []).append(queue)
            if above in some:
                break
    return found


def _over_promised(queue: specs.Queue, children: list[specs.Queue]) -> Iterator[str]:
    """Yield a message for each resource of which the queues below a queue are guaranteed more than the queue itself."""
    kinds: list[tuple[Mapping[str, float], Mapping[str, float], list[Mapping[str, float]], str]] = [
        (queue.guarantee, queue.guarantee_percent, [c.guarantee for c in children], ""),
        (queue.guarantee_percent, queue.guarantee, [c.guarantee_percent for c in children], "%"),
    ]
    for own, other, theirs, kind in kinds:
        promised: dict[str, float] = {}
        for resource, amount in (pair for each in theirs if own for pair in each.items()):
            promised[resource] = promised.get(resource, 0) + amount
        for resource, amount in promised.items():
            if amount > own.get(resource, 0) and resource not in other and specs.ALL not in other:
                who = "its children" if all(specs.ancestors(c.name)[0] == queue.name for c in children) else "queues below it"
                message = f"{who} are guaranteed {_amount(resource, amount, kind)}, the queue itself only "
                yield message + _amount(resource, own.get(resource, 0), kind, named=False)


def _amount(resource: str, amount: float, kind: str, named: bool = True) -> str:
    text = f"{amount:g}%" if kind else quantity.format_quantity(resource, int(amount))
    return f"{text} {'of everything' if resource == specs.ALL else resource}" if named else text


def read_table(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        is_large = path.stat().st_size > LARGEST_FILE
        text = "" if is_large else path.read_text("utf-8-sig")
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DocumentError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except ValueError:  # a path with a NUL
        raise DocumentError(f"{shortened(repr(str(path)))}: is not a path of a file") from None
    if is_large:
        raise DocumentError(f"{path}: larger than {LARGEST_FILE >> 20} MiB: not a configuration")
    check_digits(path, text, DocumentError)
    try:
        raw = parse_json(text) if path.suffix == ".json" else tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", str(error))
        where, why = (f"{path}:{place[2]}", place[1]) if place else (str(path), str(error))
        header = re.match(rf"\s*\[\[?\s*({'|'.join(SEVERAL)})\s*\]", text.split("\n")[int(place[2]) - 1]) if place else None
        remedy = f": begin each with [[{header[1]}]], not [{header[1]}]" if header and why.startswith("Cannot ") else ""
        raise DocumentError(f"{where}: not TOML: {why}{remedy}") from None
    except json.JSONDecodeError as error:
        raise DocumentError(f"{path}:{error.lineno}: {no_json(error)}") from None
    except RecursionError:
        raise DocumentError(f"{path}: nested too deeply") from None
    except Repeated as error:
        raise DocumentError(fault(path, text, error.place, error.reason, "")) from None
    except ValueError as error:  # an invalid date
        raise DocumentError(f"{path}: {shortened(str(error))}") from None
    if not isinstance(raw, dict):
        raise DocumentError(f"{path}: is not a table: write its keys at the top level")
    return text, raw


def fault(path: Path | str, text: str, location: Sequence[str | int], message: str, kind: str) -> str:
    location = _place(location)
    line = _line_of(text, location)
    key = key_of(location)
    place = f"{path}:{line}" if text and not str(path).endswith(".json") else str(path)
    return f"{place}: {shortened(key)}: {reason(kind, message)}"


def key_of(location: Sequence[str | int]) -> str:
    """Format a place in a document: ``queue[0].weight``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")


def _place(location: Sequence[str | int]) -> tuple[str | int, ...]:
    """Return the place of an error without pydantic's names of union members."""
    return tuple(part for part in location if part not in ("float", "int", "dict[str,float]"))


def _line_of(text: str, location: Sequence[str | int]) -> int:
    """Guess the line of a key in TOML: the key's own, else its table's header, else 1.

    tomllib keeps no positions, and a parser that does is a large dependency for a line number.
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

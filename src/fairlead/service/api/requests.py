"""Request bodies and parameters of the API, validated and bounded before anything else sees them."""

import re
from math import prod
from signal import Signals
from typing import Annotated, Any, Literal, Self

from fastapi import Header, Query
from fastapi import Path as PathParameter
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from fairlead.failure import failing
from fairlead.model.documents import check_node_name, check_queue_name, read_quantities
from fairlead.model.ranges import read_array
from fairlead.model.specs import Call, Job, JobStatus, Quantities, Work
from fairlead.scheduler.admission import MOST_TASKS, Dependency, Invalid
from fairlead.service.clock import Clock

LARGEST_BODY = 16 * 2**20
LARGEST_ENVIRONMENT = 512 * 2**10
MOST_JOBS, MOST_NODES = 10_000, 1_000
"""Jobs per request, and nodes of one job."""
OF_JOB = ("demand", "on", "prefer", "priority", "retries", "retry_delay", "time_limit", "singleton", "name", "group")
OF_WORK = ("argv", "cwd", "env", "encoding", "input", "ray", "values", "port", "idle")
"""Fields of requests that jobs, and what they run, have too."""
OF_ITS_OWN = {*OF_WORK, "name", "group", "array", "after", "begin", "exported", "size", "sent", "lease"} - {"ray"}
"""Fields of requests in which jobs of a kind may differ."""
LONGEST_WAIT = 60.0

Number = Annotated[int, PathParameter(ge=0, le=2**53)]
NodeName = Annotated[str, PathParameter(max_length=253)]
Identity = Annotated[str, PathParameter(pattern=r"^[0-9a-f]{32}$")]
Wait = Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for its end; 0 answers at once.")]
Key = Annotated[
    str, Header(alias="Idempotency-Key", max_length=200, description="Repeating a key returns the same jobs instead of new ones.")
]


def _check_text(text: str) -> str:
    if "\0" in text:
        raise ValueError(f"{text!r} has a NUL byte")
    return text


def _check_job_name(name: str) -> str:
    if re.fullmatch(r"[0-9]+(\.[0-9]+(-[0-9]+)?)?", name):
        raise ValueError(f"{name} would be read as a job's number: add a letter, such as job-{name}")
    return _check_text(name)


def _check_environment(values: dict[str, str]) -> dict[str, str]:
    if sum(len(k) + len(v) + 2 for k, v in values.items()) > LARGEST_ENVIRONMENT:
        raise ValueError(f"the environment is larger than {LARGEST_ENVIRONMENT >> 10} KiB")
    for name in values:
        if not name or "=" in name:
            raise ValueError(f"{name!r} is not a valid name of an environment variable")
    return values


def _check_path(text: str) -> str:
    check_queue_name(text.strip("/") or "/")
    return text


def _check_signal(name: str) -> str:
    found = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    if found not in Signals.__members__ or found in ("SIGKILL", "SIGSTOP"):
        raise ValueError(f"{name!r} is not a signal that a program can handle: use one such as TERM, INT or USR1")
    return found


def _check_program(argv: list[str]) -> list[str]:
    if not argv[0]:
        raise ValueError("names no program: its first word is empty")
    return argv


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Text = Annotated[str, Field(max_length=4096), AfterValidator(_check_text)]
Argument = Annotated[str, Field(max_length=131_071), AfterValidator(_check_text)]
Side = Annotated[int, Field(ge=1, lt=2**16)]
Size = Annotated[list[Side], Field(min_length=2, max_length=2)]
Environment = Annotated[dict[Text, Argument], AfterValidator(_check_environment)]
QueuePath = Annotated[Text, AfterValidator(_check_path)]
Demand = Annotated[dict[str, int], BeforeValidator(read_quantities), Field(max_length=64)]
Id = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
JobNumber = Annotated[int, Field(ge=0, le=2**53)]
Encoding = Literal["utf-8", "latin-1"]


def check_gpus(demand: Quantities) -> None:
    """Raise Invalid for a fraction of a GPU."""
    if demand.get("gpu", 0) % 1000:
        raise Invalid("gpu: fractions of a GPU are not supported: ask for a whole number")


class Body(BaseModel):
    """A request body. Strict: no unknown fields, no conversion between types.

    The text below a field is its description in the API's documentation.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True)


class CardsRequest(Body):
    """Some cards of a node."""

    gpus: Annotated[list[Annotated[int, Field(ge=0, le=2**16)]], Field(max_length=64)] = []
    """Only these accelerator cards. Default: the whole node."""


class NodeTokenRequest(Body):
    """A token for a machine that joins."""

    name: Annotated[str, AfterValidator(check_node_name)] | None = None
    """The node's name. Default: any new one."""
    seconds: Annotated[float, Field(gt=0, le=7 * 86400)] = 3600.0
    """Its lifetime."""


class AfterRequest(Body):
    """A job that must end first; by a name: the submitter's unfinished jobs of that name, or the newest ended one.

    With `index`, each task waits for the success of the task of the same index.
    """

    job: JobNumber | Annotated[str, Field(min_length=1, max_length=256)]
    how: Literal["success", "failure", "end", "start", "index"] = "success"


Labels = Annotated[
    dict[Text, Annotated[list[Text], BeforeValidator(_as_list), Field(min_length=1, max_length=100)]], Field(max_length=100)
]
Nodes = Annotated[
    int | None, Field(ge=1, le=MOST_NODES, description="Instead of `tasks`: a gang with a task on each of this many nodes.")
]
Begin = Annotated[float | None, Field(ge=0, le=1e11, description="Not to start before; seconds since the epoch.")]


def begin_by(clock: Clock, begin: float | None) -> float | None:
    """Return when a job may begin, by the scheduler's clock."""
    return None if begin is None else begin - clock.wall(0.0)


class JobFields(Body):
    """The fields that all kinds of jobs share."""

    demand: Demand
    """Resources of one task. On a shared scheduler cpu defaults to 1 and memory to 1Gi."""
    queue: QueuePath | None = None
    user: Annotated[str | None, Field(max_length=128, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@+-]*$")] = None
    """The owner; the submitter, unless the scheduler is personal and another name is given."""
    name: Annotated[str, Field(max_length=256), AfterValidator(_check_job_name)] = ""
    group: Annotated[str, Field(max_length=256), AfterValidator(_check_text)] = ""
    """A name that several jobs share."""
    priority: int = 0
    retries: int = 0
    retry_delay: float = 0.0
    """Seconds before a failed task starts again; they double with each failure, up to an hour."""
    time_limit: float | None = None
    begin: Begin = None
    singleton: bool = False
    """To start once all earlier jobs of its name and owner have ended."""
    on: Labels = Field(default_factory=dict)
    prefer: Labels = Field(default_factory=dict)
    """Labels of nodes that it runs on if one of them has room."""
    after: Annotated[list[AfterRequest], Field(max_length=1000)] = Field(default_factory=list)
    strict: bool = False
    """Refuse a job that cannot start as things are: it fits no node, or exceeds a limit."""

    def to_job(self, leaf: str, tasks: int, gang: bool, work: Work, **more: Any) -> Job:
        check_gpus(self.demand)
        same = {name: getattr(self, name) for name in OF_JOB}
        return Job(queue=leaf, tasks=tasks, gang=gang, work=work, **same, **more)

    def comes_after(self) -> Dependency:
        return [(after.job, after.how) for after in self.after]


def _check_pattern(text: str) -> str:
    if text.startswith("/") or ".." in text.split("/"):
        raise ValueError(f"{text!r} leaves the folder: write a path below it, such as out/*")
    return text


class SentFolder(Body):
    """A folder that was put into a session as its packed code: each task runs in a copy of it."""

    session: Id
    payload: Id
    fetch: Annotated[list[Annotated[Text, AfterValidator(_check_pattern)]], Field(max_length=100)] = Field(default_factory=list)
    """Patterns of the files that come back from each task."""


class JobRequest(JobFields):
    """A command to run, in one or more tasks."""

    argv: Annotated[list[Argument], Field(min_length=1, max_length=100_000), AfterValidator(_check_program)]
    cwd: Text = "/"
    env: Environment = Field(default_factory=dict)
    exported: Environment = Field(default_factory=dict)
    """Further environment variables, stored outside the journal in a file that is deleted with the job's end."""
    encoding: Encoding = "utf-8"
    """How argv, cwd, env and exported encode bytes; latin-1 can represent any."""
    input: Literal["", "pipe", "terminal"] = ""
    """Standard input of each task: none, or what is sent to `.../input`, through a pipe or a terminal, which also carries all its
    output.
    """
    size: Size | None = None
    """Rows and columns of the terminal as the task begins."""
    port: Annotated[int | None, Field(ge=0, lt=2**16)] = None
    """The port that it would like, for `.../streams`. FAIRLEAD_PORT, and `{port}` in an argument, is this one if it is free on
    the node, else another.
    """
    idle: Annotated[float, Field(ge=0, le=10**9)] = 0.0
    """Seconds without a connection, CPU or GPU use after which a task ends; 0 for never."""
    sent: SentFolder | None = None
    tasks: int | None = None
    """Number of tasks; `{index}` in an argument becomes the task's index, and `{{index}}` becomes `{index}`."""
    array: Argument | None = None
    """Instead of `tasks`: the tasks' own indices, such as `1-10,15,20-30:2`; `%5` after them is `at_most`."""
    values: Annotated[list[Annotated[list[Argument], Field(min_length=1, max_length=MOST_TASKS)]], Field(max_length=100)] = Field(
        default_factory=list
    )
    """Instead of `tasks`: lists of words. There is a task for each choice of one word of each list, the last list varying
    fastest; `{1}` in an argument becomes the word of the first list, and so on; `{}` if there is one.
    """
    nodes: Nodes = None
    at_most: int | None = None
    """How many of its tasks may run at the same time."""
    hold: bool = False
    """Submit it held: it does not start until it is released."""
    gang: bool = False
    led: bool = False
    """A gang that ends with its first task: the others are stopped then and done."""
    exit_done: bool = False
    """A preempted task that exits 0 counts as done; otherwise it starts again."""
    grace: Annotated[float | None, Field(ge=0, le=86400)] = None
    """Seconds between the stop signal and the kill, as far as its queue allows."""
    signal: Annotated[str, AfterValidator(_check_signal)] = "SIGTERM"
    """The signal that stops a task, such as SIGUSR1."""
    revocable: bool = False
    """It may exceed the limits of its queues on idle resources, and is preempted before others."""
    fit: Literal["", "pack", "spread"] = ""
    """Node choice: the first that fits; `pack`: the fullest; `spread`: the emptiest."""
    ray: bool = False
    """A Ray program, in a placement group with one bundle per task; all start together."""
    note: bool = False
    """A notification job: cancelling its queue spares it; it is cancelled by number only."""

    @model_validator(mode="after")
    def _check_note(self) -> Self:
        if self.note and not self.after:
            raise ValueError("note: needs after: it reports how other jobs ended")
        return self

    @model_validator(mode="after")
    def _check_bytes(self) -> Self:
        if self.encoding == "latin-1":
            exported = self.exported
            words = (word for each in self.values for word in each)
            for text in (*self.argv, self.cwd, *self.env, *self.env.values(), *exported, *exported.values(), *words):
                if any(ord(character) > 255 for character in text):
                    raise ValueError(f"{text!r} is not latin-1, as its encoding says")
        return self

    def to_job(self, leaf: str, tasks: int, gang: bool, work: Work, **more: Any) -> Job:
        at_most = (self.array or "").partition("%")[2]
        apart = self.nodes is not None
        return super().to_job(
            leaf, tasks, gang or apart, work, **more, fit="apart" if apart else self.fit, exit_done=self.exit_done,
            grace=self.grace, held=self.hold, at_most=int(at_most) if at_most and self.at_most is None else self.at_most,
            signal=Signals[self.signal].value, revocable=self.revocable, led=self.ray or self.led, note=self.note,
        )  # fmt: skip

    def work(self) -> tuple[int, Work]:
        """Return the number of tasks, and what they run. Raises Invalid."""
        given = [self.tasks is not None, self.array is not None, bool(self.values), self.nodes is not None]
        if sum(given) > 1 or (self.ray and any(given[1:])):
            raise Invalid("tasks: give one of tasks, array, values and nodes; a Ray program has only tasks")
        if self.nodes is not None and self.fit:
            raise Invalid("fit: tasks go to different nodes, those that have room: leave out fit, or nodes")
        sent = None if self.sent is None else Call(self.sent.session, self.sent.payload, self.sent.fetch)
        same = {name: getattr(self, name) for name in OF_WORK}
        work = Work(numbered=any(given) and not self.ray, call=sent, size=self.size or [], **same)
        if self.array is None:
            return prod(map(len, self.values)) if self.values else self.nodes or (1 if self.tasks is None else self.tasks), work
        with failing("array: ", ValueError, to=Invalid):
            indices = read_array(self.array)
        return len(indices), work.with_indices(indices)


class StreamRequest(Body):
    """A program to attach, with more environment variables, and the size of its terminal, if it gets one: rows and columns."""

    stream: Id
    """A name for it, so that a repeated request is harmless."""
    argv: Annotated[list[Argument], Field(max_length=100_000)] = Field(default_factory=list)
    env: Environment = Field(default_factory=dict)
    size: Size | None = None


class WhenRequest(JobFields):
    """A job that is not submitted: its number of tasks, and whether they start together or not at all."""

    tasks: int = 1
    gang: bool = False
    nodes: Nodes = None
    revocable: bool = False
    hold: bool = False
    """It would be held: its start is predicted from its release on."""

    def to_job(self, leaf: str, tasks: int, gang: bool, work: Work, **more: Any) -> Job:
        apart: dict[str, Any] = {} if self.nodes is None else {"fit": "apart"}
        return super().to_job(
            leaf, self.nodes or tasks, gang or bool(apart), work, **more, **apart, revocable=self.revocable, held=self.hold
        )


class JobsRequest(Body):
    """Jobs to submit together: all, or none."""

    jobs: Annotated[list[JobRequest], Field(min_length=1, max_length=MOST_JOBS)]


class EditRequest(Body):
    """Fields to change; others stay. A resource of 0 is removed; 0 removes a limit."""

    queue: QueuePath | None = None
    demand: Demand | None = None
    on: Labels | None = None
    priority: int | None = None
    retries: int | None = None
    time_limit: Annotated[float, Field(ge=0)] | None = None
    at_most: Annotated[int, Field(ge=0)] | None = None
    begin: Begin = None


class RerunRequest(Body):
    """Whether only failed tasks run again, with their old indices."""

    failed: bool = False


class CancelRequest(Body):
    """Which tasks; all by default. With `only_waiting`, started tasks continue."""

    indices: Annotated[list[Annotated[int, Field(ge=0, lt=MOST_TASKS)]], Field(max_length=MOST_TASKS)] | None = None
    only_waiting: bool = False


class Selection(Body):
    """Jobs of a queue and those below it, of a user, a name, a group (or patterns such as `fold-*`), and statuses; submitted
    since a time, in seconds since the epoch.
    """

    queue: Text | None = None
    user: Text | None = None
    name: Text | None = None
    group: Text | None = None
    status: list[JobStatus] = Field(default_factory=list)
    since: Annotated[float, Field(allow_inf_nan=False)] | None = None

    def is_empty(self) -> bool:
        return not any((self.queue, self.user, self.name, self.group, self.status, self.since))


class CancelManyRequest(Selection):
    """Which jobs: by number, and the unfinished ones of a selection; without queue and user of that, only the caller's own. With
    `only_waiting`, started tasks continue.
    """

    jobs: Annotated[list[JobNumber], Field(max_length=100_000)] = Field(default_factory=list)
    only_waiting: bool = False

    @model_validator(mode="after")
    def _check_any(self) -> Self:
        if not self.jobs and self.is_empty():
            raise ValueError("name jobs or a queue")
        return self


class DownRequest(Body):
    """Whether running tasks are stopped."""

    now: bool = False


class TokenRequest(Body):
    """A token for a person: lifetime in seconds, queues it covers, and whether it is read-only."""

    user: Text | None = None
    seconds: Annotated[float, Field(gt=0, le=10**10)] | None = None
    queues: Annotated[list[Annotated[str, AfterValidator(check_queue_name)]], Field(min_length=1, max_length=100)] | None = None
    read_only: bool = False


class SessionRequest(Body):
    """How a program's functions are called: interpreter, folder, environment and import path."""

    argv: Annotated[list[Argument], Field(min_length=1, max_length=100)]
    cwd: Text = "/"
    env: Environment = Field(default_factory=dict)
    encoding: Encoding = "utf-8"
    path: Annotated[list[Text], Field(max_length=10_000)] = Field(default_factory=list)
    python: Annotated[str, Field(max_length=20)] = ""
    """Its version, as in 3.12."""
    code: Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")] = ""
    """The payload with its packed code, which contains the relative paths; put it before the first call."""
    inside: Text = ""
    """The folder in the code where functions are called."""
    preload: Annotated[list[Text], Field(max_length=100)] = Field(default_factory=list)
    """Modules that workers import before calls."""
    address: Annotated[str, Field(pattern=r"^[0-9a-z-]{0,60}$")] = ""
    """Where it listens on its own machine."""
    secret: Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")] = ""
    """What relays of its workers are known by."""


class LeaseJob(JobFields):
    """A worker for calls of functions, by the program's number for it."""

    lease: Annotated[int, Field(ge=1, lt=2**53)]


class LeasesRequest(Body):
    """Leases, requested together."""

    jobs: Annotated[list[LeaseJob], Field(min_length=1, max_length=MOST_JOBS)]

"""What may be asked of the API: bodies, checked and bounded before anything else sees them."""

from signal import Signals
from typing import Annotated, Any, Literal, Self

from msgspec.structs import replace
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from fairlead.model.documents import check_queue_name, read_quantities
from fairlead.model.specs import After, Job, Quantities, Work
from fairlead.scheduler.admission import MOST_TASKS, Refused

LARGEST_ENVIRONMENT = 512 * 2**10
MOST_JOBS = 10_000
"""Jobs in one request."""


def _check_text(text: str) -> str:
    if "\0" in text:
        raise ValueError(f"{text!r} has a NUL byte")
    return text


def _check_environment(values: dict[str, str]) -> dict[str, str]:
    if sum(len(k) + len(v) + 2 for k, v in values.items()) > LARGEST_ENVIRONMENT:
        raise ValueError(f"the environment is larger than {LARGEST_ENVIRONMENT >> 10} KiB")
    for name in values:
        if not name or "=" in name:
            raise ValueError(f"{name!r} is no name of an environment variable")
    return values


def _check_path(text: str) -> str:
    check_queue_name(text.strip("/") or "/")
    return text


def _check_signal(name: str) -> str:
    found = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    if found not in Signals.__members__ or found in ("SIGKILL", "SIGSTOP"):
        raise ValueError(f"{name!r} is no signal that a program can hear: write one such as TERM, INT or USR1")
    return found


def _check_program(argv: list[str]) -> list[str]:
    if not argv[0]:
        raise ValueError("names no program: its first word is empty")
    return argv


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Text = Annotated[str, Field(max_length=4096), AfterValidator(_check_text)]
Argument = Annotated[str, Field(max_length=131_071), AfterValidator(_check_text)]
Environment = Annotated[dict[Text, Argument], AfterValidator(_check_environment)]
QueuePath = Annotated[Text, AfterValidator(_check_path)]
JobNumber = Annotated[int, Field(ge=0, le=2**53)]
Encoding = Literal["utf-8", "latin-1"]


def check_gpus(demand: Quantities) -> None:
    """Raises Refused for parts of GPUs."""
    if demand.get("gpu", 0) % 1000:
        raise Refused("gpu: a part of a GPU cannot be given here: ask for a whole number")


class Body(BaseModel):
    """What is asked for: as it is in documents, a number is written as one, and nothing is taken for another kind."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class AfterRequest(Body):
    """A job that must have ended before."""

    job: JobNumber
    how: Literal["success", "failure", "end"] = "success"


class JobAsked(Body):
    """What can be asked for of any job."""

    demand: Annotated[
        dict[str, int],
        BeforeValidator(read_quantities),
        Field(
            max_length=64,
            description="What one task takes. Where tasks run as people, cpu is 1 and memory 1Gi unless some of it is asked for.",
        ),
    ]
    queue: QueuePath | None = None
    user: Annotated[
        str | None,
        Field(
            max_length=128,
            pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@+-]*$",
            description="Whose it is; who submits it, unless the scheduler is their own and they say otherwise.",
        ),
    ] = None
    name: Annotated[str, Field(max_length=256), AfterValidator(_check_text)] = ""
    priority: int = 0
    retries: int = 0
    time_limit: float | None = None
    on: Annotated[
        dict[Text, Annotated[list[Text], BeforeValidator(_as_list), Field(min_length=1, max_length=100)]],
        Field(max_length=100),
    ] = Field(default_factory=dict)
    after: Annotated[list[AfterRequest], Field(max_length=1000)] = Field(default_factory=list)
    strict: Annotated[
        bool, Field(description="Refuse what can never start, as things are: on no node, or by no limit.")
    ] = False

    def to_job(self, leaf: str, tasks: int, gang: bool, work: Work) -> Job:
        """Make it a job of a leaf queue."""
        check_gpus(self.demand)
        return Job(
            queue=leaf,
            demand=self.demand,
            tasks=tasks,
            on=self.on,
            priority=self.priority,
            gang=gang,
            retries=self.retries,
            time_limit=self.time_limit,
            after=[After(after.job, after.how) for after in self.after],
            name=self.name,
            work=work,
        )


class JobRequest(JobAsked):
    """A command to run, in one task or many."""

    argv: Annotated[list[Argument], Field(min_length=1, max_length=100_000), AfterValidator(_check_program)]
    cwd: Text = "/"
    env: Environment = Field(default_factory=dict)
    exported: Annotated[
        Environment,
        Field(
            description="More of the environment: kept apart from the journal, in a file that goes when the job has ended."
        ),
    ] = Field(default_factory=dict)
    encoding: Annotated[
        Encoding,
        Field(
            description="What the characters of argv, cwd, env and exported stand for; latin-1 can stand for any bytes."
        ),
    ] = "utf-8"
    input: Annotated[
        Literal["", "pipe", "terminal"],
        Field(
            description="What each task reads as its standard input: nothing; or what is put to `.../input`, through a pipe, or "
            "a terminal, which is all its output as well."
        ),
    ] = ""
    tasks: Annotated[
        int | None,
        Field(
            description="So many tasks; `{index}` in an argument then stands for the task's index, and `{{index}}` for itself."
        ),
    ] = None
    at_most: Annotated[int | None, Field(description="So many of its tasks run at once, at most.")] = None
    hold: Annotated[bool, Field(description="Submit it held: it waits to be released.")] = False
    gang: bool = False
    exit_done: Annotated[
        bool, Field(description="A task that is stopped to make room and then exits 0 is done; else it starts again.")
    ] = False
    grace: Annotated[
        float | None,
        Field(ge=0, le=86400, description="Seconds to end in when it is told to stop, if its queue gives as many."),
    ] = None
    signal: Annotated[
        str,
        AfterValidator(_check_signal),
        Field(description="What a task gets when it is told to stop, such as SIGUSR1."),
    ] = "SIGTERM"
    revocable: Annotated[
        bool,
        Field(description="It may go above the limits of its queues into what is idle, and is revoked before others."),
    ] = False
    fit: Annotated[
        Literal["", "pack", "spread"],
        Field(description="Of the nodes with room, its tasks go to the first; or to the fullest, or the emptiest."),
    ] = ""
    ray: Annotated[
        bool,
        Field(
            description="A program of Ray, in a placement group of so many bundles as it has tasks, which start at once."
        ),
    ] = False

    note: Annotated[
        bool,
        Field(
            description="It tells how the jobs that it comes after ended: it is cancelled by its number, not with its queue."
        ),
    ] = False

    @model_validator(mode="after")
    def _check_note(self) -> Self:
        if self.note and not self.after:
            raise ValueError("note: goes with after: it tells how other jobs ended")
        return self

    @model_validator(mode="after")
    def _check_bytes(self) -> Self:
        if self.encoding == "latin-1":
            exported = self.exported
            for text in (*self.argv, self.cwd, *self.env, *self.env.values(), *exported, *exported.values()):
                if any(ord(character) > 255 for character in text):
                    raise ValueError(f"{text!r} is not latin-1, as its encoding says")
        return self

    def to_job(self, leaf: str, tasks: int, gang: bool, work: Work) -> Job:
        more: dict[str, Any] = {"exit_done": self.exit_done, "grace": self.grace, "at_most": self.at_most}
        more |= {"held": self.hold}
        more |= {"signal": Signals[self.signal].value, "revocable": self.revocable, "fit": self.fit}
        return replace(super().to_job(leaf, tasks, gang, work), **more, led=self.ray, note=self.note)

    def work(self) -> Work:
        numbered = self.tasks is not None and not self.ray
        return Work(self.argv, self.cwd, self.env, self.encoding, numbered, input=self.input, ray=self.ray)


class WhenRequest(JobAsked):
    """A job that is not submitted: how many tasks it would have, and whether they start at once or not at all."""

    tasks: int = 1
    gang: bool = False
    revocable: bool = False
    hold: Annotated[bool, Field(description="It would be held: when it starts is said from its release on.")] = False

    def to_job(self, leaf: str, tasks: int, gang: bool, work: Work) -> Job:
        return replace(super().to_job(leaf, tasks, gang, work), revocable=self.revocable, held=self.hold)


class JobsRequest(Body):
    """Jobs to submit together: all, or none."""

    jobs: Annotated[list[JobRequest], Field(min_length=1, max_length=MOST_JOBS)]


class EditRequest(Body):
    """What is to be asked for instead; the rest stays. A resource of 0 is asked for no more; 0 is no limit."""

    queue: QueuePath | None = None
    demand: Annotated[dict[str, int], BeforeValidator(read_quantities), Field(max_length=64)] | None = None
    on: (
        Annotated[
            dict[Text, Annotated[list[Text], BeforeValidator(_as_list), Field(min_length=1, max_length=100)]],
            Field(max_length=100),
        ]
        | None
    ) = None
    priority: int | None = None
    retries: int | None = None
    time_limit: Annotated[float, Field(ge=0)] | None = None
    at_most: Annotated[int, Field(ge=0)] | None = None


class RerunRequest(Body):
    """Whether only the tasks that failed run again, with the indices that they had."""

    failed: bool = False


class CancelRequest(Body):
    """Which tasks; all where none are named. With `only_waiting`, those that were started already go on."""

    indices: Annotated[list[Annotated[int, Field(ge=0, lt=MOST_TASKS)]], Field(max_length=MOST_TASKS)] | None = None
    only_waiting: bool = False


class CancelManyRequest(Body):
    """Which jobs: those with these numbers, or all that have not ended of a queue, and of one user if named."""

    jobs: Annotated[list[JobNumber], Field(max_length=100_000)] = Field(default_factory=list)
    queue: Text | None = None
    user: Text | None = None

    @model_validator(mode="after")
    def _check_any(self) -> Self:
        if not self.jobs and self.queue is None:
            raise ValueError("name jobs or a queue")
        return self


class DownRequest(Body):
    """Whether what runs is stopped."""

    now: bool = False


class TokenRequest(Body):
    """A token for a person, for so many seconds; what it is for, and whether it is to look only."""

    user: Text | None = None
    seconds: Annotated[float, Field(gt=0, le=10**10)] | None = None
    queues: (
        Annotated[list[Annotated[str, AfterValidator(check_queue_name)]], Field(min_length=1, max_length=100)] | None
    ) = None
    read_only: bool = False


class SessionRequest(Body):
    """How the functions of a program are called: by which interpreter, where, with which environment and import path."""

    argv: Annotated[list[Argument], Field(min_length=1, max_length=100)]
    cwd: Text = "/"
    env: Environment = Field(default_factory=dict)
    encoding: Encoding = "utf-8"
    path: Annotated[list[Text], Field(max_length=10_000)] = Field(default_factory=list)
    python: Annotated[str, Field(max_length=20, description="Its version, as in 3.12.")] = ""
    code: Annotated[
        str,
        Field(
            pattern=r"^([0-9a-f]{32})?$",
            description="The payload with its code, packed, in which relative paths are; put it before the first call.",
        ),
    ] = ""
    inside: Annotated[Text, Field(description="Where in the code functions are called.")] = ""


PayloadName = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class CallsJob(JobAsked):
    """Calls of functions, one a task: pickled together in a payload, which is here in base64 or was put there before."""

    payload: PayloadName
    data: Annotated[str, Field(description="The payload in base64.")] | None = None


class CallsRequest(Body):
    """Jobs of calls to submit together."""

    jobs: Annotated[list[CallsJob], Field(min_length=1, max_length=MOST_JOBS)]

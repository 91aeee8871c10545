"""The options that select jobs: those of `jobs`, `cancel`, `logs`, `wait`, `rerun`, `hold` and `release`."""

import functools
import inspect
import re
import shlex
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple

from fairlead.cli import option_values as values
from fairlead.cli.commands.options import option, queue_option
from fairlead.cli.job_options import moment
from fairlead.cli.parsing import USAGE
from fairlead.client.connection import Connection
from fairlead.failure import Failure, WrongUsage
from fairlead.plain_text import plain

PAGE = 1000
"""Jobs per request."""
TASK = r"[0-9]{1,15}(\.[0-9]{1,15})?"
"""A task as people write it: JOB or JOB.INDEX."""
PART = r"[0-9]{1,15}\.[0-9]{1,15}@[0-9]{1,15}-[0-9]{1,15},[0-9]{1,15}-[0-9]{1,15}"
"""A part of a task's output: bytes of its standard output and of its standard error."""
UNFINISHED = ["waiting", "held", "running"]
"""Statuses of jobs that have not ended."""
MOST_NAMED = 10
"""Changed jobs that get a line of their own, at most."""
OPTIONS: dict[str, Any] = {
    "queue": Annotated[str | None, queue_option("Jobs of this queue and those below.")],
    "user": Annotated[str | None, option("Jobs of this user.", "--user", "-u")],
    "name": Annotated[str | None, option("Jobs of this name, or such as 'fold-*'.")],
    "group": Annotated[str | None, option("Jobs of this group: see `fairlead submit --group`.")],
    "status": Annotated[
        list[str],
        option(
            "Jobs with this status: waiting, held, running, succeeded, failed or cancelled. Repeatable, or with commas.",
            autocompletion=values.some_of(values.statuses_of_jobs),
        ),
    ],
    "since": Annotated[str | None, option("Jobs submitted since: 2h, 16:00, 2026-05-01.")],
}


class Selection(NamedTuple):
    """What the options say: as a request, and as it was written."""

    asked: dict[str, Any]
    text: str

    def __bool__(self) -> bool:
        return bool(self.text)


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that select jobs; it gets them as `selection`."""

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        selection = _read({name: given.pop(name) for name in OPTIONS})
        command(**given, selection=selection)

    own = inspect.signature(command).parameters
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=[] if name == "status" else None, annotation=hint)
        for name, hint in OPTIONS.items()
    ]
    left = [each.replace(kind=each.KEYWORD_ONLY) for name, each in own.items() if name != "selection"]
    with_options.__signature__ = inspect.Signature([*left, *options])  # type: ignore[attr-defined]
    with_options.__annotations__ = {**{each.name: each.annotation for each in left}, **OPTIONS}
    return with_options


def _read(options: dict[str, Any]) -> Selection:
    asked = {name: value for name, value in options.items() if value}
    text = " ".join(f"--{name} {','.join(value) if name == 'status' else value}" for name, value in asked.items())
    if "status" in asked:
        asked["status"], known = [word for each in asked["status"] for word in each.split(",")], values.statuses_of_jobs()
        if wrong := [word for word in asked["status"] if word not in known]:
            raise WrongUsage(f"--status {plain(wrong[0])!r}: write one of {', '.join(known)}")
    if "since" in asked:
        asked["since"] = moment("--since", asked["since"], past=True)
    return Selection(asked, plain(text))


def selected_jobs(
    connection: Connection, selection: Selection, most: int | None = None, mine: bool = False
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the newest selected jobs, at most `most`, and the last page; if `mine`, only what the caller may change."""
    jobs: list[dict[str, Any]] = []
    query = {**selection.asked, **({"mine": "true"} if mine else {})}
    query |= {"status": ",".join(query["status"])} if "status" in query else {}
    page: dict[str, Any] = {"next": None}
    while True:  # a page of long commands is short
        limit = PAGE if most is None else min(PAGE, most - len(jobs))
        page = connection.get("/v1/jobs", **query, before=page["next"], limit=limit)
        jobs += page["jobs"]
        if page["next"] is None or len(jobs) == most:
            return jobs, page


def chosen_jobs(
    connection: Connection, verb: str, words: Iterable[str], selection: Selection, unfinished: bool = False
) -> list[int]:
    """Return the numbers of the jobs named by `words`, as :func:`place_of`, or else of the caller's selected jobs.

    Raises Failure for none.
    """
    words = list(words)
    if words and selection:
        raise USAGE(f"{verb} what? Name jobs, or select them with {selection.text}, not both")
    if words:
        return list(dict.fromkeys(whole_job(connection, word, "a job is named", "", unfinished) for word in words))
    if not selection:
        raise USAGE(f"{verb} what? Name jobs, such as 12, or select them, such as --name NAME")
    jobs, _ = selected_jobs(connection, selection, mine=True)
    if not jobs:
        raise Failure(f"no jobs of yours with {selection.text}")
    return [job["id"] for job in reversed(jobs)]


def print_changed(numbers: list[int], one: str, many: str) -> None:
    """Print what happened to jobs: a line each, or one line for more than a few."""
    from fairlead.model.ranges import ranges_of, written_ranges

    if len(numbers) <= MOST_NAMED:
        for number in numbers:
            print(f"job {number} {one}")
    else:
        print(f"{len(numbers)} jobs {many}: {written_ranges(ranges_of(sorted(numbers)), MOST_NAMED)}")


def task_places(connection: Connection, job: int, ranges: Iterable[tuple[int, int]]) -> list[int]:
    """Return the places of a job's tasks, from 0 on, by ranges of the indices that they know themselves by. Raises Failure."""
    info = connection.get(f"/v1/jobs/{job}")
    if not info["indices"]:
        return [index for first, last in ranges for index in range(first, last + 1)]
    from fairlead.client.jobs import SubmittedJob  # few commands need it

    tasks, found = SubmittedJob(connection, job).tasks(), []
    for first, last in ranges:
        there = [task["index"] for task in tasks if first <= task["known_as"] <= last]
        if not there:
            raise Failure(f"job {job} has no task {first}: its tasks are {info['indices']}")
        found += there
    return found


def place_of(connection: Connection, task: str, more: str = "", unfinished: bool = False) -> tuple[int, int]:
    """Read JOB or JOB.INDEX: the job's number, and the place of that task, else of its first. JOB may be a name.

    Of jobs with the same name it is the caller's newest; if `unfinished`, the newest that has not ended, if any.
    Raises Failure, with `more` at the end of its message.
    """
    if re.fullmatch(TASK, task):
        number, _, index = task.partition(".")
        return int(number), task_places(connection, int(number), [(int(index), int(index))])[0] if index else 0
    asked = {"name": re.sub(r"([*?[])", r"[\1]", task)}  # no pattern
    for status in ({"status": UNFINISHED}, {}) if unfinished else ({},):
        jobs, _ = selected_jobs(connection, Selection({**asked, **status}, task), most=1, mine=True) if task else ([], {})
        if jobs:
            return int(jobs[0]["id"]), 0
    if task != asked["name"]:
        quoted = shlex.quote(plain(task))
        raise Failure(f"{quoted} is not a job's name: `fairlead jobs --name {quoted}` lists the jobs like it")
    raise Failure(f"{plain(task)!r} is not a job: write a number or name as listed by `fairlead jobs`, or 12.3 for a task{more}")


def index_of(task: str) -> str:
    return task.partition(".")[2] if re.fullmatch(TASK, task) else ""


def whole_job(connection: Connection, job: str, verb: str, more: str = "", unfinished: bool = False) -> int:
    """Read the number or name of a whole job, as :func:`place_of`. Raises Failure for a task."""
    if index_of(job):
        raise WrongUsage(f"{job}: {verb} as a whole: write {job.partition('.')[0]}")
    return place_of(connection, job, more, unfinished)[0]

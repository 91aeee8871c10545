"""The commands about jobs: to submit, run, see, await and cancel them."""

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli import option_values as values
from fairlead.cli.commands.options import Json
from fairlead.cli.failure import Failure
from fairlead.cli.scheduler import change, connect, print_json
from fairlead.plain_text import plain

JobId = Annotated[
    str,
    typer.Argument(help="The job's number, as `fairlead jobs` shows it.", metavar="JOB", autocompletion=values.jobs),
]
Command = Annotated[
    list[str], typer.Argument(help="The command and its arguments, after `--`.", metavar="-- COMMAND [ARG]")
]
QueueName = Annotated[
    str | None,
    typer.Option(
        "--queue", "-q", help="The queue, such as lab/vision. Default: your own.", autocompletion=values.queues
    ),
]
Cpu = Annotated[str, typer.Option(help="CPUs of each task: 1, 0.5, 500m.")]
Memory = Annotated[str, typer.Option(help="Memory of each task: 512Mi, 4Gi. A task that uses more is killed.")]
Gpu = Annotated[str, typer.Option(help="GPUs of each task; given by index, as CUDA_VISIBLE_DEVICES.")]
Resource = Annotated[
    list[str], typer.Option(help="Any other resource, as NAME=QUANTITY; repeat for more.", metavar="NAME=QUANTITY")
]
Name = Annotated[str, typer.Option(help="A name for the job, to find it again.")]
Tasks = Annotated[
    int | None,
    typer.Option(
        "--tasks",
        "-n",
        help="So many tasks; each has its index in FAIRLEAD_INDEX, and in place of {index}; {{index}} is {index} itself.",
    ),
]
JobsFile = Annotated[
    str | None,
    typer.Option(
        help="Submit what stands in a file, a job a line, as JSON or CSV: all or none. - is standard input.",
        metavar="FILE",
    ),
]
Priority = Annotated[int, typer.Option(help="Higher goes first, within its queue.")]
On = Annotated[
    list[str],
    typer.Option(
        help="Only on nodes with this label; several values: zone=a|b; repeat for more.", metavar="LABEL=VALUE"
    ),
]
TimeLimit = Annotated[str | None, typer.Option(help="Stop a task that runs for longer: 90, 30s, 5min, 2h.")]
Grace = Annotated[
    str | None,
    typer.Option(help="Time to end in when a task is told to stop, if its queue gives as much: 30s, 2min."),
]
Signal = Annotated[
    str | None,
    typer.Option(
        help="What a task gets when it is told to stop: TERM, INT, USR1. Default: TERM.",
        metavar="NAME",
        autocompletion=values.one_of("TERM", "INT", "HUP", "USR1", "USR2"),
    ),
]
Revocable = Annotated[
    bool,
    typer.Option(
        "--revocable", help="It may go above the limits of its queues into what is idle, and is revoked before others."
    ),
]
Pack = Annotated[
    bool, typer.Option("--pack", help="Of the nodes with room its tasks go to the fullest, so that others stay empty.")
]
Spread = Annotated[bool, typer.Option("--spread", help="Of the nodes with room its tasks go to the emptiest.")]
Ray = Annotated[
    bool,
    typer.Option(
        "--ray", help="A program of Ray: it runs when the placement group of its bundles is made, on nodes chosen here."
    ),
]
Bundle = Annotated[
    str,
    typer.Option(help="With --ray, what each bundle is; else as --cpu, --memory and --gpu say.", metavar="cpu=4,gpu=1"),
]
Bundles = Annotated[int | None, typer.Option(help="With --ray, so many of them. Default: 1.", min=1)]
ExitDone = Annotated[
    bool,
    typer.Option(
        "--exit-done", help="A task that is stopped to make room and then exits 0 is done: it does not start again."
    ),
]
Retries = Annotated[int, typer.Option(help="Start a task that fails again, so many times.")]
AfterJob = Annotated[
    list[str],
    typer.Option(
        help="Only after this job has succeeded; JOB:failure or JOB:end for other ends; repeat for more.",
        metavar="JOB[:END]",
        autocompletion=values.jobs,
    ),
]
Env = Annotated[
    list[str],
    typer.Option(
        help="Set a variable, or with its name alone send that of this terminal; repeat for more.",
        metavar="NAME[=VALUE]",
    ),
]
ExportAll = Annotated[
    bool,
    typer.Option("--export-all", help="Send this terminal's whole environment, kept apart until the job has ended."),
]
Cwd = Annotated[Path | None, typer.Option(help="The folder to run in. Default: this one.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse what can never start, as things are: on no node, or by no limit.")
]


def submit(
    ctx: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="The command and its arguments, after `--`; or a script.", metavar="-- COMMAND [ARG]"),
    ] = None,
    queue: QueueName = None,
    cpu: Cpu = "1",
    memory: Memory = "1Gi",
    gpu: Gpu = "0",
    resource: Resource = [],  # noqa: B006
    tasks: Tasks = None,
    at_most: Annotated[int | None, typer.Option(help="So many of its tasks run at once, at most.")] = None,
    name: Name = "",
    priority: Priority = 0,
    on: On = [],  # noqa: B006
    gang: Annotated[bool, typer.Option("--gang", help="Start all the tasks at once, or none.")] = False,
    pack: Pack = False,
    spread: Spread = False,
    ray: Ray = False,
    bundle: Bundle = "",
    bundles: Bundles = None,
    time_limit: TimeLimit = None,
    retries: Retries = 0,
    exit_done: ExitDone = False,
    grace: Grace = None,
    signal: Signal = None,
    revocable: Revocable = False,
    after: AfterJob = [],  # noqa: B006
    hold: Annotated[bool, typer.Option("--hold", help="Submit it held: `fairlead release` lets it go.")] = False,
    env: Env = [],  # noqa: B006
    export_all: ExportAll = False,
    cwd: Cwd = None,
    strict: Strict = False,
    jobs: JobsFile = None,
    notify: Annotated[
        list[str],
        typer.Option(
            help="Tell when it has ended: an https:// or mail address, or a command that reads JSON; repeat for more.",
            metavar="TO",
        ),
    ] = [],  # noqa: B006
    when: Annotated[
        bool, typer.Option("--when", help="Submit nothing: say when it would be expected to start.")
    ] = False,
) -> None:
    """Submit a job, and print its number.

    Lines of a script that begin with #FAIRLEAD are options, too.

    Example: fairlead submit --queue lab/vision --cpu 2 --memory 4Gi --tasks 10 -- python train.py --fold {index}
    """
    from fairlead.cli.submitting import all_asked, ask_when, requests, submit_all

    asked = all_asked(ctx, command or [], jobs)
    wanted, where = requests(asked), [each["where"] for each in asked if "where" in each]
    with connect() as connection:
        if when:
            ask_when(connection, wanted, where)
        else:
            submit_all(connection, wanted, [each["notify"] for each in asked], where)


def run(
    ctx: typer.Context,
    command: Command,
    queue: QueueName = None,
    cpu: Cpu = "1",
    memory: Memory = "1Gi",
    gpu: Gpu = "0",
    resource: Resource = [],  # noqa: B006
    name: Name = "",
    priority: Priority = 0,
    on: On = [],  # noqa: B006
    time_limit: TimeLimit = None,
    env: Env = [],  # noqa: B006
    export_all: ExportAll = False,
    cwd: Cwd = None,
    strict: Strict = False,
    pty: Annotated[
        bool, typer.Option("--pty", help="In a terminal of its own, of this one's size: `fairlead run --pty -- bash`.")
    ] = False,
) -> None:
    """Run a command here, when it is its turn.

    It reads what this reads, writes where this writes, and this exits as it did. Ctrl-C, SIGTERM and SIGHUP cancel it, and its
    reader's end.

    Example: fairlead run --cpu 2 --memory 4Gi -- make -j2
    """
    from fairlead.cli.asked import job_request
    from fairlead.cli.run import follow, guarded, heard_signals
    from fairlead.client.standard_input import is_terminal, kind_of_input

    if pty and not is_terminal():
        raise Failure("--pty: standard input is no terminal: leave it away, and what is read here is handed on")
    kind = "terminal" if pty else kind_of_input()
    with connect() as connection:
        body = job_request(ctx.params)
        with guarded() as guard, heard_signals() as signals:
            answer = connection.submit("/v1/jobs", {**body, "input": kind})
            job = answer["id"]
            guard(job)
            if answer["warning"]:
                print(f"fairlead: {plain(answer['warning'])}", file=sys.stderr)
            task = follow(connection, job, kind, signals)
    if task["status"] != "succeeded" and task["reason"] not in (None, "exited", "stopped", "not started"):
        print(f"fairlead: job {job}: {_reason(task)}", file=sys.stderr)
    raise typer.Exit(task["exit"] if task["exit"] is not None else 130)


def jobs(
    queue: Annotated[
        str | None,
        typer.Option("--queue", "-q", help="Of this queue and those below it.", autocompletion=values.queues),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Of this user.")] = None,
    status: Annotated[
        str | None,
        typer.Option(
            help="waiting, held, running, succeeded, failed or cancelled.",
            autocompletion=values.job_statuses,
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="So many at most.", min=1, max=10_000)] = 30,
    long: Annotated[
        bool, typer.Option("--long", "-l", help="Also whose they are, and what they used of what they asked for.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the newest jobs, newest first."""
    from fairlead.cli.tables import job_table, show

    with connect() as connection:
        asked: dict[str, Any] = {"queue": queue, "user": user, "status": status}
        found = connection.get("/v1/jobs", **asked, limit=limit)
        while found["next"] is not None and len(found["jobs"]) < limit:  # a page ends early where commands are long
            more = connection.get("/v1/jobs", **asked, before=found["next"], limit=limit - len(found["jobs"]))
            found = {**more, "jobs": found["jobs"] + more["jobs"]}
    if found["stalled"]:
        print(f"fairlead: {plain(found['stalled'])}", file=sys.stderr)
    if as_json:
        print_json(found)
        return
    named = " ".join(f"--{option} {value}" for option, value in asked.items() if value is not None)
    nothing = f"no jobs with {plain(named)}" if named else "no jobs yet: submit one with `fairlead submit`"
    show(job_table(found["jobs"], long), nothing)


def logs(
    job: Annotated[
        str,
        typer.Argument(
            help="The job's number; with .INDEX for another task than the first.",
            metavar="JOB[.INDEX]",
            autocompletion=values.jobs,
        ),
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the task ends.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", help="Only the last so many lines of each stream.", min=0)
    ] = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="Of all its tasks, one after another, each line with the task's index before it."),
    ] = False,
) -> None:
    """Print what a task wrote. Its output goes to standard output, its errors to standard error."""
    from fairlead.cli.output import TaskOutput, print_all

    number, _, index = job.partition(".")
    if not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{0,7})?", job):
        raise Failure(f"{job!r} is no task: write JOB or JOB.INDEX, such as 12 or 12.3")
    if every and index:
        raise Failure(f"--all is of whole jobs: leave .{index} away")
    if every and follow:
        raise Failure("--all prints one task after another: leave --follow away, or name one task as JOB.INDEX")
    with connect() as connection:
        if every:
            print_all(connection, int(number), tail)
            return
        output = TaskOutput(connection, int(number), int(index or 0))
        if tail is not None:
            output.print_tail(tail)
        if tail is None or follow:
            output.copy(follow)


def cancel(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            help="Jobs, tasks of jobs, or ranges of them: 12, 12.3, 12.0-9.",
            metavar="JOB[.INDEX[-INDEX]]",
            autocompletion=values.jobs,
        ),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", "-q", help="All jobs of this queue and those below it.", autocompletion=values.queues),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="With --queue: only those of this user.")] = None,
) -> None:
    """Cancel jobs, some tasks of a job, or a whole queue.

    What runs gets SIGTERM, and SIGKILL after five seconds; what waits never starts.

    Example: fairlead cancel 12 13.0-9
    """
    whole, parts = _tasks(jobs or [])
    if not whole and not parts and queue is None:
        raise Failure("name jobs, such as 12 or 12.3, or a queue with --queue")
    with connect() as connection:
        cancelled: list[int] = []
        if whole or queue is not None:
            cancelled = connection.post("/v1/cancel", {"jobs": whole, "queue": queue, "user": user})["cancelled"]
        for job in [job for job in whole if job not in cancelled]:
            print(f"job {job} had ended already")
        for job in cancelled:
            print(f"job {job} is cancelled")
        if queue is not None and not cancelled:
            print(f"queue {plain(queue)} has no jobs of yours that have not ended")
        for job, indices in parts.items():
            changed = connection.post(f"/v1/jobs/{job}/cancel", {"indices": indices})["changed"]
            named = f"task {job}.{indices[0]}" if len(indices) == 1 else f"{len(indices)} tasks of job {job}"
            is_are, had = ("is", "had") if len(indices) == 1 else ("are", "had all")
            print(f"{named} {is_are} cancelled" if changed else f"{named} {had} ended already")


def job(
    job: JobId,
    status: Annotated[
        str | None,
        typer.Option(
            help="Only tasks with this status, such as failed.", metavar="STATUS", autocompletion=values.task_statuses
        ),
    ] = None,
    tasks: Annotated[
        str | None, typer.Option("--tasks", help="Only these tasks, by index.", metavar="INDEX[-INDEX]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show one job and its tasks. What it asked for, what it used, and what its tasks do, those first that did not do well."""
    from fairlead.cli.job import find_tasks, show_job

    with connect() as connection:
        found = connection.get(f"/v1/jobs/{number_of(job)}")
        chosen, left = find_tasks(connection, found, status, tasks, 1000 if as_json else 30)
    print_json({**found, "task": chosen}) if as_json else show_job(found, chosen, left)


def wait(
    jobs: Annotated[list[str], typer.Argument(help="The jobs' numbers.", metavar="JOB", autocompletion=values.jobs)],
    timeout: Annotated[
        str | None, typer.Option(help="Give up after so long, with exit status 124: 90, 30s, 5min, 2h.")
    ] = None,
) -> None:
    """Wait until jobs have ended. Exit status 0 if all their tasks succeeded, else 1."""
    from fairlead.cli.asked import seconds
    from fairlead.cli.output import wait_with_progress

    with connect() as connection:
        ended = wait_with_progress(connection, [*map(number_of, jobs)], seconds("--timeout", timeout))
    if ended is None:
        raise typer.Exit(124)
    raise typer.Exit(0 if all(job["status"] == "succeeded" for job in ended) else 1)


def why(job: JobId, as_json: Json = False) -> None:
    """Say what a job waits for, and when it is expected to start."""
    from fairlead.cli.tables import kept_for_it, kept_until
    from fairlead.cli.terminal import say

    number = number_of(job, "; `fairlead frameworks` says what each framework waits for")
    with connect() as connection:
        found = connection.get(f"/v1/jobs/{number}/why")
        found["when"] = connection.get(f"/v1/jobs/{number}/when")
    if as_json:
        print_json(found)
        return
    say(f"job {job}: {found['text']}")
    for key in ("claim", "safety", "output"):
        if key in found:
            say(found[key])
    if "reserved" in found:
        say(kept_for_it(found["reserved"]))
    for kept in found.get("kept", [])[:3]:
        say(kept_until(kept))
    if found["when"]["reason"] not in ("over", "running"):
        say(f"expected: {found['when']['text']}")


def when(
    ctx: typer.Context,
    queue: QueueName = None,
    cpu: Cpu = "1",
    memory: Memory = "1Gi",
    gpu: Gpu = "0",
    resource: Resource = [],  # noqa: B006
    tasks: Annotated[int, typer.Option("--tasks", "-n", help="So many tasks.")] = 1,
    name: Annotated[
        str, typer.Option(help="Its name: those before it with the same say most of how long it takes.")
    ] = "",
    priority: Priority = 0,
    on: On = [],  # noqa: B006
    gang: Annotated[bool, typer.Option("--gang", help="Start all the tasks at once, or none.")] = False,
    time_limit: TimeLimit = None,
    after: AfterJob = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Say when a job would start, were it submitted now.

    Of its tasks the first counts, of a gang all. Nothing is submitted. In eight of ten cases it starts within the interval.

    Example: fairlead when --cpu 4 --memory 8Gi --tasks 10 -q lab/vision
    """
    from fairlead.cli.asked import demand
    from fairlead.cli.terminal import say

    with connect() as connection:
        found = connection.post("/v1/when", {**demand(ctx.params), "gang": gang})
    where = "" if queue else f"in queue {found['queue']}: "
    print_json(found) if as_json else say(where + found["text"])


def hold(job: JobId) -> None:
    """Keep the tasks of a job that wait from starting. Those that run go on."""
    change(f"/v1/jobs/{number_of(job)}/hold", f"job {job} is held", f"job {job} was held already")


def release(job: JobId) -> None:
    """Let a job go that was held."""
    change(f"/v1/jobs/{number_of(job)}/release", f"job {job} is released", f"job {job} was not held")


def edit(
    ctx: typer.Context,
    job: JobId,
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", help="Another queue.", autocompletion=values.queues)
    ] = None,
    cpu: Annotated[str | None, typer.Option(help="CPUs of each task.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory of each task.")] = None,
    gpu: Annotated[str | None, typer.Option(help="GPUs of each task.")] = None,
    resource: Resource = [],  # noqa: B006
    on: Annotated[
        list[str], typer.Option(help="Only on nodes with this label, and no other condition.", metavar="LABEL=VALUE")
    ] = [],  # noqa: B006
    anywhere: Annotated[bool, typer.Option("--anywhere", help="On any node: without a condition.")] = False,
    priority: Annotated[int | None, typer.Option(help="Higher goes first, within its queue.")] = None,
    time_limit: Annotated[
        str | None, typer.Option(help="Stop a task that runs for longer: 90, 30s, 5min, 2h; 0: no limit.")
    ] = None,
    retries: Annotated[int | None, typer.Option(help="Start a task that fails again, so many times.")] = None,
    at_most: Annotated[
        int | None, typer.Option(help="So many of its tasks run at once, at most; 0: any number.")
    ] = None,
) -> None:
    """Have a job ask for something else. What it takes, where, and for how long can be changed while all of it waits.

    Example: fairlead edit 12 --memory 8Gi --priority 3
    """
    from fairlead.cli.asked import labels, pairs, seconds

    demand = {name: asked for name, asked in (("cpu", cpu), ("memory", memory), ("gpu", gpu)) if asked is not None}
    demand |= pairs("--resource", resource)
    body: dict[str, Any] = {"queue": queue, "priority": priority, "retries": retries, "at_most": at_most}
    if on and anywhere:
        raise Failure("--on and --anywhere: on some nodes or on any: say one of them")
    body |= {
        "demand": demand or None,
        "on": {} if anywhere else labels(on) or None,
        "time_limit": seconds("--time-limit", time_limit),
    }
    if all(asked is None for asked in body.values()):
        raise Failure("edit what? Name what it is to ask for instead, such as --memory 8Gi")
    with connect() as connection:
        answer = connection.post(f"/v1/jobs/{number_of(job)}/edit", body)
    if answer["warning"]:
        print(f"fairlead: {plain(answer['warning'])}", file=sys.stderr)
    print(f"job {job} is changed" if answer["changed"] else f"job {job} asked for that already")


def rerun(
    job: JobId,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only its tasks that failed, with the indices that they had.")
    ] = False,
) -> None:
    """Submit a job once more, and print the new one's number."""
    with connect() as connection:
        answer = connection.submit(f"/v1/jobs/{number_of(job)}/rerun", {"failed": failed})
    if answer["warning"]:
        print(f"fairlead: {plain(answer['warning'])}", file=sys.stderr)
    print(answer["id"])


def checkpointed() -> None:
    """In a task: say that it has kept what it did so far.

    Less is lost then if it is revoked. It touches the file that FAIRLEAD_CHECKPOINT names, which a program may do itself.
    """
    from fairlead.client.checkpoint import checkpointed as say

    say()


def number_of(job: str, more: str = "") -> int:
    """The number of a job, as it is written; a Failure where it is none, which says more."""
    if not re.fullmatch(r"[0-9]{1,15}", job):
        raise Failure(f"{job!r} is no job: write its number, such as 12, as `fairlead jobs` shows it{more}")
    return int(job)


def _tasks(words: list[str]) -> tuple[list[int], dict[int, list[int]]]:
    """Whole jobs, and indices by job: ``12``, ``12.3``, ``12.0-9``."""
    whole: list[int] = []
    parts: dict[int, list[int]] = {}
    for word in words:
        match = re.fullmatch(r"([0-9]{1,15})(?:\.([0-9]{1,7})(?:-([0-9]{1,7}))?)?", word)
        if match is None or (match[3] and int(match[3]) < int(match[2])):
            raise Failure(f"{word!r} is no job: write JOB, JOB.INDEX or JOB.FIRST-LAST, such as 12, 12.3 or 12.0-9")
        if match[2] is None:
            whole.append(int(match[1]))
        else:
            parts.setdefault(int(match[1]), []).extend(range(int(match[2]), int(match[3] or match[2]) + 1))
    return whole, parts


def _reason(task: dict[str, Any]) -> str:
    if task["reason"] == "out of memory":
        return "killed for using more memory than it asked for: ask for more with --memory"
    if task["reason"] == "signalled":
        return f"ended by signal {task['exit'] - 128}"
    if task["reason"] == "output limit":
        return "stopped: it wrote more output than it may: have it write to a file of its own"
    if task["reason"] == "time limit":
        return "stopped at its time limit"
    return str(task["reason"])

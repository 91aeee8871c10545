"""Commands about a job: submit, run, show, explain and change it."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli import option_values as values
from fairlead.cli.commands.options import Json
from fairlead.cli.failure import Failure
from fairlead.cli.scheduler import connect, print_json
from fairlead.cli.selection import number_of
from fairlead.plain_text import plain

JobId = Annotated[
    str, typer.Argument(help="The job's number, as listed by `fairlead jobs`.", metavar="JOB", autocompletion=values.jobs)
]
Command = Annotated[list[str], typer.Argument(help="The command and its arguments, after `--`.", metavar="-- COMMAND [ARG]")]
QueueName = Annotated[
    str | None,
    typer.Option("--queue", "-q", help="The queue, such as lab/vision. Default: your own queue.", autocompletion=values.queues),
]
Cpu = Annotated[str, typer.Option(help="CPUs per task: 1, 0.5, 500m.")]
Memory = Annotated[str, typer.Option(help="Memory per task: 512Mi, 4Gi. A task that uses more is killed.")]
Gpu = Annotated[str, typer.Option(help="GPUs per task; CUDA_VISIBLE_DEVICES lists them.")]
Resource = Annotated[list[str], typer.Option(help="Any other resource; repeatable.", metavar="NAME=QUANTITY")]
Name = Annotated[str, typer.Option(help="A name for the job.")]
Group = Annotated[str, typer.Option(help="A name that several jobs share, to list, wait for and cancel them by.")]
Array = Annotated[
    str | None, typer.Option(help="Tasks with these indices: 1-10,15,20-30:2. 1-100%5: at most 5 at once.", metavar="INDICES")
]
Tasks = Annotated[
    int | None,
    typer.Option(
        "--tasks",
        "-n",
        help="Number of tasks. FAIRLEAD_INDEX and {index} in the command are the task's index; {{index}} is a literal {index}.",
    ),
]
JobsFile = Annotated[
    str | None,
    typer.Option(
        help="Submit the jobs of a JSON-lines or CSV file, one per line: all or none. - is standard input.", metavar="FILE"
    ),
]
Priority = Annotated[int, typer.Option(help="Higher runs first within the queue.")]
On = Annotated[
    list[str], typer.Option(help="Only on nodes with this label; alternatives: zone=a|b. Repeatable.", metavar="LABEL=VALUE")
]
TimeLimit = Annotated[str | None, typer.Option(help="Stop a task that runs longer: 90, 30s, 5min, 2h.")]
Grace = Annotated[
    str | None, typer.Option(help="Time between the stop signal and SIGKILL, up to the queue's maximum: 30s, 2min.")
]
Signal = Annotated[
    str | None,
    typer.Option(
        help="Stop signal: TERM, INT, USR1. Default: TERM.",
        metavar="NAME",
        autocompletion=values.one_of("TERM", "INT", "HUP", "USR1", "USR2"),
    ),
]
Revocable = Annotated[
    bool, typer.Option("--revocable", help="Run on idle resources beyond the queue's limits, and be preempted before other jobs.")
]
Pack = Annotated[bool, typer.Option("--pack", help="Place tasks on the fullest nodes with room, which keeps others empty.")]
Spread = Annotated[bool, typer.Option("--spread", help="Place tasks on the emptiest nodes with room.")]
Ray = Annotated[bool, typer.Option("--ray", help="Run a Ray program once the scheduler has placed its placement group.")]
Bundle = Annotated[
    str, typer.Option(help="With --ray: resources of each bundle. Default: --cpu, --memory and --gpu.", metavar="cpu=4,gpu=1")
]
Bundles = Annotated[int | None, typer.Option(help="With --ray: number of bundles. Default: 1.", min=1)]
ExitDone = Annotated[
    bool, typer.Option("--exit-done", help="A task that is preempted and then exits 0 has succeeded; it does not start again.")
]
Retries = Annotated[int, typer.Option(help="Restart a failed task up to N times.")]
AfterJob = Annotated[
    list[str],
    typer.Option(
        help="Start only after this job has succeeded; JOB:failure or JOB:end for other ends. Repeatable.",
        metavar="JOB[:END]",
        autocompletion=values.jobs,
    ),
]
Env = Annotated[
    list[str],
    typer.Option(help="Set an environment variable; NAME alone copies this shell's value. Repeatable.", metavar="NAME[=VALUE]"),
]
ExportAll = Annotated[
    bool, typer.Option("--export-all", help="Send this shell's whole environment, which is deleted when the job ends.")
]
Cwd = Annotated[Path | None, typer.Option(help="Working folder. Default: the current one.")]
Send = Annotated[
    Path | None, typer.Option(help="Send this folder: each task runs in a copy of it. .gitignore counts.", metavar="FOLDER")
]
Fetch = Annotated[
    list[str], typer.Option(help="With --send: bring these files back, such as 'out/*'. Repeatable.", metavar="PATTERN")
]
NoCheck = Annotated[bool, typer.Option("--no-check", help="Submit it even if its program or folder is missing on this machine.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse a job that no node could hold, or that exceeds a limit.")]


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
    at_most: Annotated[int | None, typer.Option(help="Run at most N of its tasks at once.")] = None,
    array: Array = None,
    name: Name = "",
    group: Group = "",
    priority: Priority = 0,
    on: On = [],  # noqa: B006
    gang: Annotated[bool, typer.Option("--gang", help="Start all tasks at once, or none.")] = False,
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
    hold: Annotated[bool, typer.Option("--hold", help="Submit it held, until `fairlead release`.")] = False,
    env: Env = [],  # noqa: B006
    export_all: ExportAll = False,
    cwd: Cwd = None,
    strict: Strict = False,
    no_check: NoCheck = False,
    send: Send = None,
    fetch: Fetch = [],  # noqa: B006
    jobs: JobsFile = None,
    notify: Annotated[
        list[str],
        typer.Option(
            help="Notify when the job ends: an https:// or mail address, or a command that reads JSON. Repeatable.", metavar="TO"
        ),
    ] = [],  # noqa: B006
    when: Annotated[bool, typer.Option("--when", help="Submit nothing; estimate when it would start.")] = False,
) -> None:
    """Submit a job and print its number.

    In a script, lines that begin with #FAIRLEAD are options too. `#SBATCH` options are done, or refused if they would change
    what the job does.

    A command that ends with `::: WORD...` or `:::: FILE` (a word per line; - is standard input) has a task for each word, as in
    GNU parallel: {} in it is the word; with several lists, {1} is the word of the first.

    Example: fairlead submit --queue lab/vision --cpu 2 --memory 4Gi --tasks 10 -- python train.py --fold {index}
    """
    from fairlead.cli.submitting import check_commands, estimate_starts, read_options, requests, submit_all, with_sent

    options = read_options(ctx, command or [], jobs)
    bodies, lines = requests(options), [each["where"] for each in options if "where" in each]
    with connect() as connection:
        if when:
            estimate_starts(connection, bodies, lines)
        else:
            if not no_check:
                check_commands(connection, bodies, lines)
            submit_all(connection, with_sent(connection, bodies, options), [each["notify"] for each in options], lines)


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
    no_check: NoCheck = False,
    send: Send = None,
    fetch: Fetch = [],  # noqa: B006
    pty: Annotated[
        bool, typer.Option("--pty", help="Run in a terminal, for interactive programs: `fairlead run --pty -- bash`.")
    ] = False,
) -> None:
    """Run a command as a job and wait for it, as if it ran here.

    Standard input, output, errors and the exit status are the command's. Ctrl-C, SIGTERM, SIGHUP and a closed output pipe
    cancel it.

    Example: fairlead run --cpu 2 --memory 4Gi -- make -j2
    """
    from fairlead.cli.job_options import job_request
    from fairlead.cli.run import cancel_if_killed, catch_signals, follow
    from fairlead.cli.submitting import check_commands, fetch_files, with_sent
    from fairlead.client.standard_input import is_terminal, kind_of_input

    if pty and not is_terminal():
        raise Failure("--pty: standard input is no terminal: without --pty, it is sent to the command")
    kind = "terminal" if pty else kind_of_input()
    with connect() as connection:
        body = job_request(ctx.params)
        if not no_check:
            try:
                check_commands(connection, [body], [])
            except Failure as failure:
                print(f"fairlead: {failure}", file=sys.stderr)
                raise typer.Exit(127) from None  # as a shell
        (body,) = with_sent(connection, [body], [ctx.params])
        with cancel_if_killed() as guard, catch_signals() as signals:
            answer = connection.submit("/v1/jobs", {**body, "input": kind})
            job = answer["id"]
            guard(job)
            if answer["warning"]:
                print(f"fairlead: {plain(answer['warning'])}", file=sys.stderr)
            task = follow(connection, job, kind, signals)
        if fetch and task["status"] == "succeeded":
            fetch_files(connection, job, 0, Path())
    if task["status"] != "succeeded" and task["reason"] not in (None, "exited", "stopped", "not started"):
        print(f"fairlead: job {job}: {_reason(task)}", file=sys.stderr)
    raise typer.Exit(task["exit"] if task["exit"] is not None else 130)


def fetch(
    job: JobId,
    to: Annotated[Path, typer.Option(help="The folder to write to. With several tasks, one below it for each.")] = Path(),
) -> None:
    """Fetch the files that came back from a job.

    It was submitted with --send and --fetch, and has succeeded.
    """
    from fairlead.cli.submitting import fetch_files

    if not job.isdecimal():
        raise Failure(f"{job!r} is no job: write its number")
    with connect() as connection:
        tasks = connection.get(f"/v1/jobs/{job}")["tasks"]
        for index in range(tasks):
            fetch_files(connection, int(job), index, to / str(index) if tasks > 1 else to)


def job(
    job: JobId,
    status: Annotated[
        str | None,
        typer.Option(help="Only tasks with this status, such as failed.", metavar="STATUS", autocompletion=values.task_statuses),
    ] = None,
    tasks: Annotated[str | None, typer.Option("--tasks", help="Only tasks with these indices.", metavar="INDEX[-INDEX]")] = None,
    as_json: Json = False,
) -> None:
    """Show one job and its tasks. Failed and running tasks come first."""
    from fairlead.cli.job import find_tasks, show_job

    with connect() as connection:
        found = connection.get(f"/v1/jobs/{number_of(job)}")
        chosen, left = find_tasks(connection, found, status, tasks, 1000 if as_json else 30)
    print_json({**found, "task": chosen}) if as_json else show_job(found, chosen, left)


def why(job: JobId, as_json: Json = False) -> None:
    """Explain why a job is waiting, and when it should start."""
    from fairlead.cli.tables import why_lines
    from fairlead.cli.terminal import print_sentence

    number = number_of(job, "; `fairlead frameworks` shows what each framework waits for")
    with connect() as connection:
        found = connection.get(f"/v1/jobs/{number}/why")
        found["when"] = connection.get(f"/v1/jobs/{number}/when")
    if as_json:
        print_json(found)
        return
    for line in why_lines(found):
        print_sentence(line)


def when(
    ctx: typer.Context,
    queue: QueueName = None,
    cpu: Cpu = "1",
    memory: Memory = "1Gi",
    gpu: Gpu = "0",
    resource: Resource = [],  # noqa: B006
    tasks: Annotated[int, typer.Option("--tasks", "-n", help="Number of tasks.")] = 1,
    name: Annotated[str, typer.Option(help="The job's name; earlier jobs of this name predict its duration best.")] = "",
    priority: Priority = 0,
    on: On = [],  # noqa: B006
    gang: Annotated[bool, typer.Option("--gang", help="Start all tasks at once, or none.")] = False,
    time_limit: TimeLimit = None,
    after: AfterJob = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Estimate when a job would start if it were submitted now.

    Nothing is submitted. The job starts when its first task does, a gang when all do; eight of ten start in the interval.

    Example: fairlead when --cpu 4 --memory 8Gi --tasks 10 -q lab/vision
    """
    from fairlead.cli.job_options import demand
    from fairlead.cli.terminal import print_sentence

    with connect() as connection:
        found = connection.post("/v1/when", {**demand(ctx.params), "gang": gang})
    where = "" if queue else f"in queue {found['queue']}: "
    print_json(found) if as_json else print_sentence(where + found["text"])


def edit(
    ctx: typer.Context,
    job: JobId,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="The new queue.", autocompletion=values.queues)] = None,
    cpu: Annotated[str | None, typer.Option(help="CPUs per task.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory per task.")] = None,
    gpu: Annotated[str | None, typer.Option(help="GPUs per task.")] = None,
    resource: Resource = [],  # noqa: B006
    on: Annotated[
        list[str], typer.Option(help="Only on nodes with this label; replaces all labels.", metavar="LABEL=VALUE")
    ] = [],  # noqa: B006
    anywhere: Annotated[bool, typer.Option("--anywhere", help="On any node; removes all labels.")] = False,
    priority: Annotated[int | None, typer.Option(help="Higher runs first within the queue.")] = None,
    time_limit: Annotated[str | None, typer.Option(help="Stop a task that runs longer: 90, 30s, 5min, 2h; 0: no limit.")] = None,
    retries: Annotated[int | None, typer.Option(help="Restart a failed task up to N times.")] = None,
    at_most: Annotated[int | None, typer.Option(help="Run at most N of its tasks at once; 0: no limit.")] = None,
) -> None:
    """Change what a job asks for. Resources, labels and the time limit can change only while all its tasks wait.

    Example: fairlead edit 12 --memory 8Gi --priority 3
    """
    from fairlead.cli.job_options import check_memory, labels, pairs, seconds

    check_memory(memory or "")
    demand = {name: amount for name, amount in (("cpu", cpu), ("memory", memory), ("gpu", gpu)) if amount is not None}
    demand |= pairs("--resource", resource)
    body: dict[str, Any] = {"queue": queue, "priority": priority, "retries": retries, "at_most": at_most}
    if on and anywhere:
        raise Failure("--on and --anywhere exclude each other: give one of them")
    body |= {
        "demand": demand or None,
        "on": {} if anywhere else labels(on) or None,
        "time_limit": seconds("--time-limit", time_limit),
    }
    if all(value is None for value in body.values()):
        raise Failure("edit what? Give at least one new value, such as --memory 8Gi")
    with connect() as connection:
        answer = connection.post(f"/v1/jobs/{number_of(job)}/edit", body)
    if answer["warning"]:
        print(f"fairlead: {plain(answer['warning'])}", file=sys.stderr)
    print(f"job {job} is changed" if answer["changed"] else f"job {job} asked for that already")


def checkpointed() -> None:
    """Report, from inside a task, that its progress is saved.

    A preemption then loses less work. It touches the file that FAIRLEAD_CHECKPOINT names; a program may do so itself.
    """
    from fairlead.client.checkpoint import checkpointed as report

    report()


def _reason(task: dict[str, Any]) -> str:
    if task["reason"] == "out of memory":
        return "killed for using more memory than it requested: request more with --memory"
    if task["reason"] == "signalled":
        return f"ended by signal {task['exit'] - 128}"
    if task["reason"] == "output limit":
        return "stopped: it exceeded the output limit: have it write to a file of its own"
    if task["reason"] == "time limit":
        return "stopped at its time limit"
    return str(task["reason"])

"""Commands about a job: submit, run, show, explain and change it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli import option_values as values
from fairlead.cli.commands.options import Json, job_argument, option, queue_option
from fairlead.cli.parsing import USAGE
from fairlead.cli.scheduler import connect, print_json, say
from fairlead.cli.selection import index_of, place_of, whole_job
from fairlead.failure import Failure, WrongUsage

JobId = Annotated[str, job_argument("The job's number, or its name: your newest of it.")]
Command = Annotated[list[str], typer.Argument(help="The command and its arguments, after `--`.", metavar="-- COMMAND [ARG]")]
QueueName = Annotated[str | None, queue_option("The queue, such as lab/vision. Default: your own queue.")]
Cpu = Annotated[str, option("CPUs per task: 1, 0.5, 500m.")]
Memory = Annotated[str, option("Memory per task: 512Mi, 4Gi. A task that uses more is killed.")]
Gpu = Annotated[str, option("GPUs per task; CUDA_VISIBLE_DEVICES lists them.")]
Resource = Annotated[list[str], option("Any other resource; repeatable.", metavar="NAME=QUANTITY")]
Name = Annotated[str, option("A name for the job.")]
Group = Annotated[str, option("A name that several jobs share, to list, wait for and cancel them by.")]
Array = Annotated[str | None, option("Tasks with these indices: 1-10,15,20-30:2. 1-100%5: at most 5 at once.", metavar="INDICES")]
Tasks = Annotated[
    int | None,
    option(
        "Number of tasks. FAIRLEAD_INDEX and {index} in the command are the task's index; {{index}} is a literal {index}.",
        "--tasks",
        "-n",
    ),
]
JobsFile = Annotated[
    str | None,
    option("Submit the jobs of a JSON-lines or CSV file, one per line: all or none. - is standard input.", metavar="FILE"),
]
Priority = Annotated[int, option("Higher runs first within the queue.")]
On = Annotated[list[str], option("Only on nodes with this label; alternatives: zone=a|b. Repeatable.", metavar="LABEL=VALUE")]
Prefer = Annotated[
    list[str], option("On nodes with this label if one has room, else on others. Repeatable.", metavar="LABEL=VALUE")
]
TimeLimit = Annotated[str | None, option("Stop a task that runs longer: 90, 30s, 5min, 2h.")]
Grace = Annotated[str | None, option("Time between the stop signal and SIGKILL, up to the queue's maximum: 30s, 2min.")]
Signal = Annotated[
    str | None,
    option(
        "Stop signal: TERM, INT, USR1. Default: TERM.",
        metavar="NAME",
        autocompletion=values.one_of("TERM", "INT", "HUP", "USR1", "USR2"),
    ),
]
Revocable = Annotated[
    bool, option("Run on idle resources beyond the queue's limits, and be preempted before other jobs.", "--revocable")
]
Pack = Annotated[bool, option("Place tasks on the fullest nodes with room, which keeps others empty.", "--pack")]
Spread = Annotated[bool, option("Place tasks on the emptiest nodes with room.", "--spread")]
Ray = Annotated[bool, option("Run a Ray program once the scheduler has placed its placement group.", "--ray")]
Bundle = Annotated[
    str, option("With --ray: resources of each bundle. Default: --cpu, --memory and --gpu.", metavar="cpu=4,gpu=1")
]
Bundles = Annotated[int | None, option("With --ray: number of bundles. Default: 1.", min=1)]
ExitDone = Annotated[
    bool, option("A task that is preempted and then exits 0 has succeeded; it does not start again.", "--exit-done")
]
Retries = Annotated[int, option("Restart a failed task up to N times.")]
RetryDelay = Annotated[str | None, option("With --retries: wait this long before, twice as long each time: 10s, 5min.")]
Begin = Annotated[str | None, option("Do not start before: now+1h, 16:00, tomorrow, 2026-05-01T16:00.")]
AfterJob = Annotated[
    list[str],
    option(
        "Start only once this job, or your jobs of this name, succeeded; or :failure, :end, :start, :index. Repeatable.",
        metavar="JOB[:END]",
        autocompletion=values.jobs,
    ),
]
Env = Annotated[
    list[str], option("Set an environment variable; NAME alone copies this shell's value. Repeatable.", metavar="NAME[=VALUE]")
]
ExportAll = Annotated[bool, option("Send this shell's whole environment, which is deleted when the job ends.", "--export-all")]
Cwd = Annotated[Path | None, option("Working folder. Default: the current one.")]
Send = Annotated[Path | None, option("Send this folder: each task runs in a copy of it. .gitignore counts.", metavar="FOLDER")]
Led = Annotated[bool, option("With --nodes or --gang: when the first task ends, the others are done, too.", "--led")]
Nodes = Annotated[int | None, option("A gang with a task on each of N nodes, which know each other.", metavar="N")]
Fetch = Annotated[list[str], option("With --send: bring these files back, such as 'out/*'. Repeatable.", metavar="PATTERN")]
NoCheck = Annotated[bool, option("Submit it even if its program or folder is missing on this machine.", "--no-check")]
Strict = Annotated[bool, option("Refuse a job that no node could hold, or that exceeds a limit.", "--strict")]
Singleton = Annotated[bool, option("Start once your earlier jobs of its name have ended.", "--singleton")]
Notify = Annotated[
    list[str],
    option(
        "Notify when the job ends: an https:// or mail address, a command that reads JSON; @FILE names one. Repeatable.",
        metavar="TO",
    ),
]
NotifyOn = Annotated[
    str,
    option(
        "When to notify: start, failure, end, or several with commas. Default: end.",
        metavar="EVENT",
        autocompletion=values.some_of(lambda: ("start", "failure", "end")),
    ),
]


def submit(
    ctx: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="The command and its arguments, after `--`; or a script.", metavar="-- COMMAND [ARG]"),
    ] = None,
    queue: QueueName = None, cpu: Cpu = "1", memory: Memory = "1Gi", gpu: Gpu = "0", resource: Resource = [],  # noqa: B006
    tasks: Tasks = None,
    at_most: Annotated[int | None, option("Run at most N of its tasks at once.")] = None,
    array: Array = None, name: Name = "", group: Group = "", priority: Priority = 0,
    on: On = [], prefer: Prefer = [],  # noqa: B006
    gang: Annotated[bool, option("Start all tasks at once, or none.", "--gang")] = False,
    nodes: Nodes = None, led: Led = False, pack: Pack = False, spread: Spread = False, ray: Ray = False, bundle: Bundle = "",
    bundles: Bundles = None, time_limit: TimeLimit = None, retries: Retries = 0, retry_delay: RetryDelay = None,
    exit_done: ExitDone = False, grace: Grace = None, signal: Signal = None, revocable: Revocable = False,
    begin: Begin = None, after: AfterJob = [], singleton: Singleton = False,  # noqa: B006
    hold: Annotated[bool, option("Submit it held, until `fairlead release`.", "--hold")] = False,
    env: Env = [], export_all: ExportAll = False, cwd: Cwd = None, strict: Strict = False,  # noqa: B006
    no_check: NoCheck = False, send: Send = None, fetch: Fetch = [], jobs: JobsFile = None,  # noqa: B006
    notify: Notify = [], notify_on: NotifyOn = "",  # noqa: B006
    when: Annotated[bool, option("Submit nothing; estimate when it would start.", "--when")] = False,
) -> None:  # fmt: skip
    """Submit a job and print its number.

    In a script, lines that begin with #FAIRLEAD are options too. `#SBATCH` options are done, or refused if they would matter.

    A command that ends with `::: WORD...` or `:::: FILE` (a word per line; - is standard input) has a task for each word, as in
    GNU parallel: {} in it is the word; with several lists, {1} is the word of the first.

    Example: fairlead submit --queue lab/vision --cpu 2 --memory 4Gi --tasks 10 -- python train.py --fold {index}
    """
    from fairlead.cli import submitting

    options = submitting.read_options(ctx, command or [], jobs)
    bodies, lines = submitting.requests(options), [each["where"] for each in options if "where" in each]
    with connect() as connection, submitting.naming_line(options[0]):
        if when:
            submitting.estimate_starts(connection, bodies, lines)
            return
        if not no_check:
            submitting.check_commands(connection, bodies, lines)
        submitting.submit_all(connection, submitting.with_sent(connection, bodies, options), options, lines)


def run(
    ctx: typer.Context, command: Command, queue: QueueName = None, cpu: Cpu = "1", memory: Memory = "1Gi", gpu: Gpu = "0",
    resource: Resource = [], name: Name = "", priority: Priority = 0, on: On = [], prefer: Prefer = [],  # noqa: B006
    nodes: Nodes = None, led: Led = False, time_limit: TimeLimit = None, begin: Begin = None, after: AfterJob = [],  # noqa: B006
    env: Env = [], export_all: ExportAll = False, cwd: Cwd = None, strict: Strict = False, no_check: NoCheck = False,  # noqa: B006
    send: Send = None, fetch: Fetch = [],  # noqa: B006
    pty: Annotated[
        bool, option("Run in a terminal, for interactive programs: `fairlead run --pty -- bash`.", "--pty")
    ] = False,
    port: Annotated[
        str | None,
        option(
            "Forward this port of 127.0.0.1 to the command's FAIRLEAD_PORT: the same number, if it is free there.",
            metavar="PORT[:THERE]",
        ),
    ] = None,
    idle: Annotated[
        str | None, option("End it after this long without a connection, CPU or GPU use: 30m.", metavar="TIME")
    ] = None,
) -> None:  # fmt: skip
    """Run a command as a job and wait for it, as if it ran here.

    Standard input, output, errors and the exit status are the command's. Ctrl-C, SIGTERM, SIGHUP and a closed output pipe
    cancel it. With --nodes, the output is that of the first task, and nothing has standard input.

    Example: fairlead run --cpu 2 --memory 4Gi -- make -j2
    """
    from fairlead.cli.run import run_job

    raise typer.Exit(run_job(ctx.params))


def exec_(
    task: Annotated[
        str, job_argument("The job's number or name; add .INDEX to a number for a task other than the first.", "JOB[.INDEX]")
    ],
    command: Command,
) -> None:
    """Run a command inside a running task, as its account.

    It has the task's folder, environment, limits and cards, and a terminal if there is one here. It ends with the task.

    Example: fairlead exec 12 -- bash
    """
    from fairlead.cli.run import attach

    with connect() as connection:
        raise typer.Exit(attach(connection, *place_of(connection, task, unfinished=True), command))


def fetch(
    job: Annotated[str, job_argument("The job's number or name; add .INDEX to a number for one task.", "JOB[.INDEX]")],
    to: Annotated[Path, option("The folder to write to. With several tasks, one below it for each.", metavar="FOLDER")] = Path(),
) -> None:
    """Fetch the files that came back from a job.

    It was submitted with --send and --fetch, and has succeeded.
    """
    from fairlead.cli.submitting import fetch_files
    from fairlead.client.jobs import SubmittedJob

    with connect() as connection:
        number, place = place_of(connection, job)
        tasks = [task for task in SubmittedJob(connection, number).tasks() if not index_of(job) or task["index"] == place]
        if not tasks:
            raise Failure(f"job {number} has no task {place}")
        folders = {to / str(task["known_as"]) if len(tasks) > 1 else to: task for task in tasks}
        if without := fetch_files(connection, number, folders):
            raise Failure(without)


def job(
    job: JobId,
    status: Annotated[
        str | None, option("Only tasks with this status, such as failed.", metavar="STATUS", autocompletion=values.task_statuses)
    ] = None,
    tasks: Annotated[str | None, option("Only tasks with these indices.", "--tasks", metavar="INDEX[-INDEX]")] = None,
    as_json: Json = False,
) -> None:
    """Show one job and its tasks. Failed and running tasks come first."""
    from fairlead.cli.job import find_tasks, show_job

    with connect() as connection:
        number = place_of(connection, job)[0] if tasks is None else whole_job(connection, job, "with --tasks, a job is named")
        tasks = tasks or index_of(job) or None
        found = connection.get(f"/v1/jobs/{number}")
        chosen, left = find_tasks(connection, found, status, tasks, 1000 if as_json else 30)
    print_json({**found, "task": chosen}) if as_json else show_job(found, chosen, left)


def why(job: JobId, as_json: Json = False) -> None:
    """Explain why a job is waiting, and when it should start."""
    from fairlead.cli.tables import why_lines
    from fairlead.cli.terminal import print_sentence

    with connect() as connection:
        more = "; `fairlead frameworks` shows what each framework waits for"
        number = whole_job(connection, job, "a job is explained", more)
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
    tasks: Annotated[int | None, option("Number of tasks. Default: 1.", "--tasks", "-n")] = None,
    nodes: Nodes = None,
    name: Annotated[str, option("The job's name; earlier jobs of this name predict its duration best.")] = "",
    priority: Priority = 0,
    on: On = [],  # noqa: B006
    prefer: Prefer = [],  # noqa: B006
    gang: Annotated[bool, option("Start all tasks at once, or none.", "--gang")] = False,
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

    if tasks is not None and nodes is not None:
        raise WrongUsage("--tasks and --nodes exclude each other: give one of them")
    with connect() as connection:
        found = connection.post("/v1/when", {**demand(ctx.params), "gang": gang, "nodes": nodes})
    where = "" if queue else f"in queue {found['queue']}: "
    print_json(found) if as_json else print_sentence(where + found["text"])


def edit(
    job: Annotated[str, job_argument("The job's number, or its name: your newest of it that has not ended.")],
    queue: Annotated[str | None, queue_option("The new queue.")] = None,
    cpu: Annotated[str | None, option("CPUs per task.")] = None,
    memory: Annotated[str | None, option("Memory per task.")] = None,
    gpu: Annotated[str | None, option("GPUs per task.")] = None,
    resource: Resource = [],  # noqa: B006
    on: Annotated[list[str], option("Only on nodes with this label; replaces all labels.", metavar="LABEL=VALUE")] = [],  # noqa: B006
    anywhere: Annotated[bool, option("On any node; removes all labels.", "--anywhere")] = False,
    priority: Annotated[int | None, option("Higher runs first within the queue.")] = None,
    time_limit: Annotated[str | None, option("Stop a task that runs longer: 90, 30s, 5min, 2h; 0: no limit.")] = None,
    retries: Annotated[int | None, option("Restart a failed task up to N times.")] = None,
    at_most: Annotated[int | None, option("Run at most N of its tasks at once; 0: no limit.")] = None,
    begin: Annotated[str | None, option("Do not start before: now, now+1h, 16:00, 2026-05-01T16:00.")] = None,
) -> None:
    """Change what a job asks for. Resources, labels and times can change only while all its tasks wait.

    Example: fairlead edit 12 --memory 8Gi --priority 3
    """
    from fairlead.cli.job_options import check_memory, labels, moment, pairs, seconds

    check_memory(memory or "")
    demand = {name: amount for name, amount in (("cpu", cpu), ("memory", memory), ("gpu", gpu)) if amount is not None}
    demand |= pairs("--resource", resource)
    body: dict[str, Any] = {"queue": queue, "priority": priority, "retries": retries, "at_most": at_most}
    if on and anywhere:
        raise WrongUsage("--on and --anywhere exclude each other: give one of them")
    body |= {
        "demand": demand or None,
        "on": {} if anywhere else labels("--on", on) or None,
        "time_limit": seconds("--time-limit", time_limit),
        "begin": None if begin is None else moment("--begin", begin),
    }
    if all(value is None for value in body.values()):
        raise USAGE("edit what? Give at least one new value, such as --memory 8Gi")
    with connect() as connection:
        number = whole_job(connection, job, "a job changes", unfinished=True)
        answer = connection.post(f"/v1/jobs/{number}/edit", body)
    say(answer["warning"])
    print(f"job {number} is changed" if answer["changed"] else f"job {number} asked for that already")


def checkpointed() -> None:
    """Report, from inside a task, that its progress is saved.

    A preemption then loses less work. It touches the file that FAIRLEAD_CHECKPOINT names; a program may do so itself.
    """
    from fairlead.client.checkpoint import checkpointed as report

    report()

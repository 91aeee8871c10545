"""`fairlead`: what each command is called, what it takes, and what it prints. What it does is elsewhere.

Nothing heavy is imported up here: a client answers at once.
"""

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import fairlead

if TYPE_CHECKING:
    from fairlead.client.connection import Connection

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run many people's work on shared machines, fairly: by Dominant Resource Fairness.\n\n"
    "Start a scheduler with `fairlead up`; then, from any terminal, `fairlead run -- COMMAND`.",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
JobId = Annotated[int, typer.Argument(help="The job's number, as `fairlead jobs` shows it.", metavar="JOB")]
Command = Annotated[
    list[str], typer.Argument(help="The command and its arguments, after `--`.", metavar="-- COMMAND [ARG]...")
]
QueueName = Annotated[
    str | None, typer.Option("--queue", "-q", help="The queue, such as lab/vision. Default: your own.")
]
Cpu = Annotated[str, typer.Option(help="CPUs of each task: 1, 0.5, 500m.")]
Memory = Annotated[str, typer.Option(help="Memory of each task: 512Mi, 4Gi. A task that uses more is killed.")]
Gpu = Annotated[str, typer.Option(help="GPUs of each task; given by index, as CUDA_VISIBLE_DEVICES.")]
Resource = Annotated[
    list[str], typer.Option(help="Any other resource, as NAME=QUANTITY; repeat for more.", metavar="NAME=QUANTITY")
]
Name = Annotated[str, typer.Option(help="A name for the job, to find it again.")]
Priority = Annotated[int, typer.Option(help="Higher goes first, within its queue.")]
On = Annotated[
    list[str], typer.Option(help="Only on nodes with this label; several values: zone=a|b.", metavar="LABEL=VALUE")
]
TimeLimit = Annotated[str | None, typer.Option(help="Stop a task that runs for longer: 90, 30s, 5min, 2h.")]
Retries = Annotated[int, typer.Option(help="Start a task that fails again, so many times.")]
AfterJob = Annotated[
    list[str],
    typer.Option(help="Only after this job has succeeded; JOB:failure or JOB:end for other ends.", metavar="JOB[:END]"),
]
Env = Annotated[list[str], typer.Option(help="Set a variable, over this terminal's environment.", metavar="NAME=VALUE")]
Cwd = Annotated[Path | None, typer.Option(help="The folder to run in. Default: this one.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse what no node that is up could hold, even empty.")]


class Failure(Exception):
    """Ends a command with one line on standard error."""


def write_page(path: Path, body: str) -> None:
    """Write a page; a Failure where that cannot be."""
    try:
        path.write_text(body, "utf-8")
    except OSError as error:
        raise Failure(f"{path}: cannot be written: {error.strerror}") from None


@app.callback(invoke_without_command=True)
def _fairlead(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"fairlead {fairlead.__version__}")
        raise typer.Exit


@app.command()
def up(
    config: Annotated[
        Path | None, typer.Option(help="fairlead.toml: queues, and nodes if not this machine as it is.")
    ] = None,
    home: Annotated[
        Path | None, typer.Option(help="Data folder. Default: $FAIRLEAD_HOME or the user's data folder.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(help="Port to listen on; 0 for any. Default: 7373, or any if that is taken.", min=0, max=65535),
    ] = None,
) -> None:
    """Start the scheduler, in the foreground.

    Ctrl-C stops it and the tasks that run; they go back to their jobs and start again with the next `up`. Should the scheduler
    be killed instead, the tasks run on, and the next `up` adopts them.
    """
    from fairlead.cli.up import run_scheduler

    run_scheduler(home, config, host, port)


@app.command()
def submit(
    command: Command,
    queue: QueueName = None,
    cpu: Cpu = "1",
    memory: Memory = "1Gi",
    gpu: Gpu = "0",
    resource: Resource = [],  # noqa: B006
    tasks: Annotated[
        int | None,
        typer.Option(
            "--tasks", "-n", help="So many tasks; each has its index in FAIRLEAD_INDEX, and in place of {index}."
        ),
    ] = None,
    name: Name = "",
    priority: Priority = 0,
    on: On = [],  # noqa: B006
    gang: Annotated[bool, typer.Option("--gang", help="Start all the tasks at once, or none.")] = False,
    time_limit: TimeLimit = None,
    retries: Retries = 0,
    after: AfterJob = [],  # noqa: B006
    env: Env = [],  # noqa: B006
    cwd: Cwd = None,
    strict: Strict = False,
) -> None:
    """Submit a job, and print its number.

    Example: fairlead submit --queue lab/vision --cpu 2 --memory 4Gi --tasks 10 -- python train.py --fold {index}
    """
    with _connection() as connection:
        body = _job_request(
            command, queue, cpu, memory, gpu, resource, name, priority, on, env, cwd, strict, retries, time_limit
        )
        body |= {"gang": gang, "after": _after(after)} | ({} if tasks is None else {"tasks": tasks})
        answer = connection.submit("/v1/jobs", body)
    if answer["warning"]:
        print(f"fairlead: {answer['warning']}", file=sys.stderr)
    print(answer["id"])


@app.command()
def run(
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
    cwd: Cwd = None,
    strict: Strict = False,
) -> None:
    """Run a command when it is its turn; stream its output, and exit as it did.

    Ctrl-C cancels it. Example: fairlead run --cpu 2 --memory 4Gi -- make -j2
    """
    from fairlead.cli.output import stream_task

    with _connection() as connection:
        body = _job_request(
            command, queue, cpu, memory, gpu, resource, name, priority, on, env, cwd, strict, 0, time_limit
        )
        answer = connection.submit("/v1/jobs", body)
        if answer["warning"]:
            print(f"fairlead: {answer['warning']}", file=sys.stderr)
        job = answer["id"]
        try:
            task = stream_task(connection, job, 0, follow=True)
        except KeyboardInterrupt:
            connection.post(f"/v1/jobs/{job}/cancel", {})
            print(f"fairlead: job {job} is cancelled", file=sys.stderr)
            raise typer.Exit(130) from None
    if task["status"] != "succeeded" and task["reason"] not in (None, "exited", "not started"):
        print(f"fairlead: job {job}: {_reason(task)}", file=sys.stderr)
    raise typer.Exit(task["exit"] if task["exit"] is not None else 130)


@app.command()
def jobs(
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="Of this queue and those below it.")] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Of this user.")] = None,
    status: Annotated[str | None, typer.Option(help="waiting, held, running, succeeded, failed or cancelled.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="So many at most.", min=1, max=10_000)] = 30,
    as_json: Json = False,
) -> None:
    """List the newest jobs, newest first."""
    from fairlead.cli.tables import job_table, show

    with _connection() as connection:
        found = connection.get("/v1/jobs", queue=queue, user=user, status=status, limit=limit)
    _print_json(found) if as_json else show(job_table(found["jobs"]), "no jobs yet: submit one with `fairlead submit`")


@app.command()
def logs(
    job: Annotated[
        str,
        typer.Argument(help="The job's number; with .INDEX for another task than the first.", metavar="JOB[.INDEX]"),
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the task ends.")] = False,
) -> None:
    """Print what a task wrote: its output to standard output, its errors to standard error."""
    from fairlead.cli.output import stream_task

    number, _, index = job.partition(".")
    if not number.isdigit() or not (index or "0").isdigit():
        raise Failure(f"{job!r} is no task: write JOB or JOB.INDEX, such as 12 or 12.3")
    with _connection() as connection:
        stream_task(connection, int(number), int(index or 0), follow)


@app.command()
def cancel(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            help="Jobs, tasks of jobs, or ranges of them: 12, 12.3, 12.0-9.", metavar="JOB[.INDEX[-INDEX]]..."
        ),
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", help="All jobs of this queue and those below it.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="With --queue: only those of this user.")] = None,
) -> None:
    """Cancel jobs, some tasks of a job, or a whole queue.

    What runs gets SIGTERM, and SIGKILL after five seconds; what waits never starts. Example: fairlead cancel 12 13.0-9
    """
    whole, parts = _tasks(jobs or [])
    if not whole and not parts and queue is None:
        raise Failure("name jobs, such as 12 or 12.3, or a queue with --queue")
    with _connection() as connection:
        cancelled: list[int] = []
        if whole or queue is not None:
            cancelled = connection.post("/v1/cancel", {"jobs": whole, "queue": queue, "user": user})["cancelled"]
        for job in [job for job in whole if job not in cancelled]:
            print(f"job {job} had ended already")
        for job in cancelled:
            print(f"job {job} is cancelled")
        if queue is not None and not cancelled:
            print(f"queue {queue} has no jobs that have not ended")
        for job, indices in parts.items():
            changed = connection.post(f"/v1/jobs/{job}/cancel", {"indices": indices})["changed"]
            named = f"task {job}.{indices[0]}" if len(indices) == 1 else f"{len(indices)} tasks of job {job}"
            is_are, had = ("is", "had") if len(indices) == 1 else ("are", "had all")
            print(f"{named} {is_are} cancelled" if changed else f"{named} {had} ended already")


@app.command()
def job(
    job: JobId,
    as_json: Json = False,
) -> None:
    """Show one job: what it asked for, and what its tasks do."""
    from fairlead.cli.tables import show_job

    with _connection() as connection:
        found = connection.get(f"/v1/jobs/{job}")
        tasks = connection.get(f"/v1/jobs/{job}/tasks", limit=1000)["tasks"]
    _print_json({**found, "task": tasks}) if as_json else show_job(found, tasks)


@app.command()
def wait(
    jobs: Annotated[list[int], typer.Argument(help="The jobs' numbers.", metavar="JOB...")],
    timeout: Annotated[
        str | None, typer.Option(help="Give up after so long, with exit status 124: 90, 30s, 5min, 2h.")
    ] = None,
) -> None:
    """Wait until jobs have ended. Exit status 0 if all their tasks succeeded, else 1."""
    from fairlead.cli.output import wait_with_progress

    with _connection() as connection:
        ended = wait_with_progress(connection, jobs, _seconds("--timeout", timeout))
    if ended is None:
        raise typer.Exit(124)
    raise typer.Exit(0 if all(job["status"] == "succeeded" for job in ended) else 1)


@app.command()
def why(job: JobId, as_json: Json = False) -> None:
    """Say what a job waits for, now: its turn, a limit, a node with room, a hold."""
    with _connection() as connection:
        found = connection.get(f"/v1/jobs/{job}/why")
    _print_json(found) if as_json else print(f"job {job}: {found['text']}")


@app.command()
def hold(job: JobId) -> None:
    """Keep the tasks of a job that wait from starting; those that run go on."""
    _change(f"/v1/jobs/{job}/hold", f"job {job} is held", f"job {job} was held already")


@app.command()
def release(job: JobId) -> None:
    """Let a job go that was held."""
    _change(f"/v1/jobs/{job}/release", f"job {job} is released", f"job {job} was not held")


@app.command()
def drain(node: Annotated[str, typer.Argument(help="The node's name, as `fairlead nodes` shows it.")]) -> None:
    """Let a node finish what it has and take no more."""
    _change(f"/v1/nodes/{node}/drain", f"node {node} takes no more tasks", "")


@app.command()
def resume(node: Annotated[str, typer.Argument(help="The node's name, as `fairlead nodes` shows it.")]) -> None:
    """Let a node take tasks again that was drained."""
    _change(f"/v1/nodes/{node}/resume", f"node {node} takes tasks again", "")


@app.command()
def reload() -> None:
    """Have the scheduler read its configuration again: queues and settings. A wrong file is refused whole."""
    _change("/v1/reload", "the configuration is in force", "the configuration has not changed")


@app.command()
def queues(as_json: Json = False) -> None:
    """Show the queue tree: what each queue uses, its dominant share, its guarantee and limit."""
    from fairlead.cli.tables import queue_table, show

    with _connection() as connection:
        found = connection.get("/v1/queues")
    _print_json(found) if as_json else show(queue_table(found["queues"]), "")


@app.command()
def nodes(as_json: Json = False) -> None:
    """Show the nodes: what each has, and what is used of it."""
    from fairlead.cli.tables import node_table, show

    with _connection() as connection:
        found = connection.get("/v1/nodes")
    _print_json(found) if as_json else show(node_table(found["nodes"]), "no nodes yet")


@app.command()
def top(
    interval: Annotated[float, typer.Option(help="Seconds between looks.", min=0.1, max=3600)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print the screen once and end.")] = False,
) -> None:
    """Watch the cluster on a full screen: what is used, the queues with their shares over time, the jobs. `q` quits."""
    from fairlead.cli.top import run_top

    with _connection() as connection:
        run_top(connection, interval, once)


@app.command()
def down(
    now: Annotated[
        bool, typer.Option("--now", help="Stop the tasks that run; they start again with the next `up`.")
    ] = False,
) -> None:
    """Stop the scheduler, when the tasks that run have ended. Those that wait are kept for the next `up`."""
    from fairlead.client.connection import PATIENCE, ServiceError
    from fairlead.home import read_address

    with _connection() as connection:
        address, before = read_address(), connection.get("/v1/status")["pid"]
        connection.post("/v1/down", {"now": now})
        connection.patience = 0  # it was told to go: it is not on its way back
        told = 0
        while True:
            try:
                status = connection.get("/v1/status")
            except ServiceError:
                break
            if status["pid"] != before:
                break
            if status["running"] and status["running"] != told:
                told = status["running"]
                print(f"waiting for {told} task{'s' if told != 1 else ''} to end", file=sys.stderr)
            time.sleep(0.1)
    until = time.monotonic() + PATIENCE
    while "FAIRLEAD_URL" not in os.environ and read_address() == address and time.monotonic() < until:
        time.sleep(0.05)  # it answers no more, but closes what is open: the next `up` would find it there
    print("the scheduler is down")


@app.command()
def allocate(
    problem: Annotated[Path, typer.Argument(help="problem.toml or .json: capacity, and users with their demands.")],
    policy: Annotated[
        str, typer.Option("--policy", "-p", help="One or more, with commas between; `fairlead policies` lists them.")
    ] = "drf",
    exact: Annotated[bool, typer.Option("--exact", help="Compute in fractions, to the last digit.")] = False,
    discrete: Annotated[bool, typer.Option("--discrete", help="Whole tasks only, one after another.")] = False,
    placement: Annotated[
        str, typer.Option(help="With --discrete, on several machines: first, best or worst fit.")
    ] = "first",
    steps: Annotated[bool, typer.Option("--steps", help="With --discrete: show each step.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this .html file.")] = None,
    as_json: Json = False,
) -> None:
    """Compute fair allocations of a problem, side by side. Needs no scheduler.

    Example: fairlead allocate problem.toml --policy drf,asset,ceei
    """
    from fairlead.cli.library import print_allocations

    if placement not in ("first", "best", "worst"):
        raise Failure(f"--placement {placement!r}: write first, best or worst")
    print_allocations(problem, policy.split(","), exact, discrete or steps, placement, steps, plot, as_json)


@app.command()
def policies(as_json: Json = False) -> None:
    """List the policies that there are, with a line each."""
    from fairlead.cli.library import print_policies

    print_policies(as_json)


Report = Annotated[Path | None, typer.Option(help="Write a page with pictures into this .html file.")]


@app.command()
def audit(
    problem: Annotated[Path | None, typer.Argument(help="problem.toml or .json, as for `allocate`.")] = None,
    policy: Annotated[str, typer.Option("--policy", "-p", help="One or more, with commas between.")] = "drf",
    allocation: Annotated[
        Path | None, typer.Option(help="Check this allocation instead: a file with tasks = { A = 3, B = 2 }.")
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Check what the scheduler runs now.")] = False,
    discrete: Annotated[bool, typer.Option("--discrete", help="Whole tasks: fair then means within one task.")] = False,
    lies: Annotated[int, typer.Option(help="Lies of each user that are tried.", min=1, max=100_000)] = 200,
    report: Report = None,
    as_json: Json = False,
) -> None:
    """Is it fair, and if not, who is wronged? Checks the eight properties of the DRF paper on a problem.

    Example: fairlead audit problem.toml --policy drf,ceei
    """
    if live == (problem is not None):
        raise Failure("audit what? Write either a problem file, or --live")
    if live and (report or allocation or discrete):
        raise Failure("--live takes no --report, --allocation or --discrete: it is whole tasks, and nothing to draw")
    if live:
        from fairlead.cli.tables import show_fairness

        with _connection() as connection:
            found = connection.get("/v1/audit")
        _print_json(found) if as_json else show_fairness(found)
        return
    from fairlead.cli.audit import audit_problem

    assert problem is not None
    audit_problem(problem, policy.split(","), allocation, discrete, lies, report, as_json)


@app.command()
def properties(
    policy: Annotated[
        str | None, typer.Option("--policy", "-p", help="One or more; without, all that there are.")
    ] = None,
    cases: Annotated[int, typer.Option(help="Cases that are tried for each.", min=1, max=10_000_000)] = 600,
    seed: Annotated[int, typer.Option(help="The same seed, the same cases.", min=0)] = 0,
    zeros: Annotated[bool, typer.Option("--zeros", help="Also users who need nothing of some resource.")] = False,
    show: Annotated[str | None, typer.Option(help="Show a counterexample, such as asset/sharing-incentive.")] = None,
    report: Report = None,
    as_json: Json = False,
) -> None:
    """Which policy has which property? Searches for counterexamples, and shows those that there are.

    Example: fairlead properties --policy drf,asset,ceei
    """
    from fairlead.cli.audit import print_properties

    print_properties(policy.split(",") if policy else [], seed, cases, zeros, show, report, as_json)


Trace = Annotated[Path, typer.Argument(help="The trace: openb, SWIM, SWF, a CSV or Parquet table, or a journal.")]
Format = Annotated[str | None, typer.Option("--format", help="openb, swim, swf, table or journal; else by its name.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave rows out that are wrong, and count them.")]
From = Annotated[str, typer.Option("--from", help="Only jobs submitted from this time of the trace on, such as 6h.")]
To = Annotated[str, typer.Option("--to", help="Only jobs submitted before this time, such as 12h.")]
OneNode = Annotated[str, typer.Option(help="What each of --nodes has.")]


@app.command(name="simulate")
def simulate_trace(
    trace: Trace,
    policy: Annotated[
        str, typer.Option("--policy", "-p", help="One or more; also slots, slots:K, slots:K:overcommit.")
    ] = "drf",
    kind: Format = None,
    nodes: Annotated[
        int, typer.Option(help="So many alike machines, instead of the trace's.", min=0, max=1_000_000)
    ] = 0,
    node: OneNode = "cpu=12,memory=48GiB",
    config: Annotated[Path | None, typer.Option(help="Machines and the queue tree from this fairlead.toml.")] = None,
    speed: Annotated[float, typer.Option(help="Jobs come so many times as fast.", min=1e-6, max=1e6)] = 1.0,
    scale: Annotated[float, typer.Option(help="So many times as many jobs.", min=1e-6, max=1000)] = 1.0,
    start: From = "",
    end: To = "",
    seed: Annotated[int, typer.Option(help="Decides what is drawn; the same seed, the same results.", min=0)] = 0,
    skip_bad: SkipBad = False,
    out: Annotated[Path | None, typer.Option(help="Write jobs.parquet and moments.parquet into this folder.")] = None,
    report: Report = None,
    as_json: Json = False,
) -> None:
    """Replay a trace through the scheduler with a virtual clock, and compare policies. Needs no scheduler.

    Example: fairlead simulate FB-2010.tsv --nodes 400 --policy drf,slots --report out.html
    """
    from fairlead.cli.simulate import run_simulations

    run_simulations(
        trace,
        kind,
        policy.split(","),
        nodes,
        node,
        config,
        speed,
        scale,
        start,
        end,
        seed,
        skip_bad,
        out,
        report,
        as_json,
    )


@app.command(name="sweep")
def sweep_trace(
    trace: Trace,
    out: Annotated[Path, typer.Option(help="The folder of the results; what is there already is not computed again.")],
    policy: Annotated[str, typer.Option("--policy", "-p", help="One or more, with commas between.")] = "drf",
    kind: Format = None,
    scale: Annotated[str, typer.Option(help="Loads: so many times as many jobs; one or more.")] = "1",
    nodes: Annotated[str, typer.Option(help="Numbers of alike machines; 0: those of the trace.")] = "0",
    node: OneNode = "cpu=12,memory=48GiB",
    seed: Annotated[str, typer.Option(help="One or more.")] = "0",
    start: From = "",
    end: To = "",
    skip_bad: SkipBad = False,
    engine: Annotated[
        str, typer.Option(help="local: all cores of this machine; ray: the Ray cluster of RAY_ADDRESS.")
    ] = "local",
    workers: Annotated[int | None, typer.Option(help="Processes on this machine.", min=1, max=1024)] = None,
    report: Report = None,
    as_json: Json = False,
) -> None:
    """Simulate a grid: policies x loads x cluster sizes x seeds. A sweep that was killed goes on where it was.

    Example: fairlead sweep FB-2010.tsv --policy drf,slots --nodes 100,200,400 --scale 1,2 --out results
    """
    from fairlead.cli.simulate import run_sweep

    run_sweep(
        trace,
        kind,
        policy.split(","),
        scale,
        nodes,
        node,
        seed,
        start,
        end,
        skip_bad,
        out,
        engine,
        workers,
        report,
        as_json,
    )


def _change(path: str, done: str, nothing: str) -> None:
    with _connection() as connection:
        print(done if connection.post(path, {})["changed"] else nothing)


def _connection() -> "Connection":
    from fairlead.client.connection import Connection

    return Connection()


def _job_request(
    command: list[str], queue: str | None, cpu: str, memory: str, gpu: str, resource: list[str], name: str, priority: int,
    on: list[str], env: list[str], cwd: Path | None, strict: bool, retries: int, time_limit: str | None,
) -> dict[str, Any]:  # fmt: skip
    from fairlead.client.jobs import encoded, job_request

    folder = Path.cwd() if cwd is None else cwd.absolute()
    asked = job_request(
        queue=queue,
        cpu=cpu,
        memory=memory,
        gpu=gpu,
        resources=_pairs("--resource", resource),
        priority=priority,
        retries=retries,
        time_limit=_seconds("--time-limit", time_limit),
        on={label: value.split("|") for label, value in _pairs("--on", on).items()},
    )
    work = encoded({"argv": command, "cwd": str(folder), "env": {**os.environ, **_pairs("--env", env)}})
    return {**asked, **work, "name": name, "strict": strict}


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


def _seconds(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    from fairlead.model.quantity import parse_seconds

    try:
        return parse_seconds(text)
    except ValueError as error:
        raise Failure(f"{option} {error}") from None


def _after(values: list[str]) -> list[dict[str, Any]]:
    found = []
    for value in values:
        job, _, how = value.partition(":")
        if not job.isdigit() or how not in ("", "success", "failure", "end"):
            raise Failure(f"--after {value!r}: write JOB, JOB:failure or JOB:end, such as 12 or 12:end")
        found.append({"job": int(job), "how": how or "success"})
    return found


def _pairs(option: str, values: list[str]) -> dict[str, str]:
    wrong = [value for value in values if not value.partition("=")[0] or "=" not in value]
    if wrong:
        raise Failure(f"{option} {wrong[0]!r}: write NAME=VALUE")
    return {name: value for name, _, value in (pair.partition("=") for pair in values)}


def _reason(task: dict[str, Any]) -> str:
    if task["reason"] == "out of memory":
        return "killed for using more memory than it asked for: ask for more with --memory"
    if task["reason"] == "signalled":
        return f"ended by signal {task['exit'] - 128}"
    if task["reason"] == "time limit":
        return "stopped at its time limit"
    return str(task["reason"])


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def main() -> None:
    """Run the command line. Whatever is wrong with what was asked is told in one line; exit status 1, or 2 for usage."""
    from fairlead.client.connection import ServiceError

    try:
        app()
    except (Failure, ServiceError) as error:
        print(f"fairlead: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except SystemError as error:  # what an interrupt in the middle of compiled code comes out as
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        sys.exit(130)

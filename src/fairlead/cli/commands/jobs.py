"""The commands about jobs: to submit, run, see, await and cancel them."""

import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.commands.options import Json
from fairlead.cli.failure import Failure
from fairlead.cli.scheduler import change, connect, print_json
from fairlead.plain_text import plain

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
Env = Annotated[
    list[str],
    typer.Option(help="Set a variable, or with its name alone send that of this terminal.", metavar="NAME[=VALUE]"),
]
ExportAll = Annotated[
    bool,
    typer.Option("--export-all", help="Send this terminal's whole environment, kept apart until the job has ended."),
]
Cwd = Annotated[Path | None, typer.Option(help="The folder to run in. Default: this one.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse what no node that is up could hold, even empty.")]


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
    exit_done: Annotated[
        bool,
        typer.Option(
            "--exit-done", help="A task that is stopped to make room and then exits 0 is done: it does not start again."
        ),
    ] = False,
    after: AfterJob = [],  # noqa: B006
    env: Env = [],  # noqa: B006
    export_all: ExportAll = False,
    cwd: Cwd = None,
    strict: Strict = False,
    when: Annotated[
        bool, typer.Option("--when", help="Submit nothing: say when it would be expected to start.")
    ] = False,
) -> None:
    """Submit a job, and print its number.

    Example: fairlead submit --queue lab/vision --cpu 2 --memory 4Gi --tasks 10 -- python train.py --fold {index}
    """
    with connect() as connection:
        body = _job_request(
            command,
            queue,
            cpu,
            memory,
            gpu,
            resource,
            name,
            priority,
            on,
            env,
            export_all,
            cwd,
            strict,
            retries,
            time_limit,
        )
        body |= {"gang": gang, "exit_done": exit_done, "after": _after(after)} | (
            {} if tasks is None else {"tasks": tasks}
        )
        if when:
            unsaid = ("argv", "cwd", "env", "exported", "encoding", "exit_done")
            found = connection.post("/v1/when", {name: value for name, value in body.items() if name not in unsaid})
            print(plain(found["text"]))
            return
        answer = connection.submit("/v1/jobs", body)
    if answer["warning"]:
        print(f"fairlead: {plain(answer['warning'])}", file=sys.stderr)
    print(answer["id"])


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
    export_all: ExportAll = False,
    cwd: Cwd = None,
    strict: Strict = False,
) -> None:
    """Run a command when it is its turn; stream its output, and exit as it did.

    Ctrl-C cancels it. Example: fairlead run --cpu 2 --memory 4Gi -- make -j2
    """
    from fairlead.cli.output import stream_task

    with connect() as connection:
        body = _job_request(
            command, queue, cpu, memory, gpu, resource, name, priority, on, env, export_all, cwd, strict, 0, time_limit
        )
        answer = connection.submit("/v1/jobs", body)
        if answer["warning"]:
            print(f"fairlead: {plain(answer['warning'])}", file=sys.stderr)
        job = answer["id"]
        try:
            task = stream_task(connection, job, 0, follow=True)
        except KeyboardInterrupt:
            connection.post(f"/v1/jobs/{job}/cancel", {})
            print(f"fairlead: job {job} is cancelled", file=sys.stderr)
            raise typer.Exit(130) from None
    if task["status"] != "succeeded" and task["reason"] not in (None, "exited", "stopped", "not started"):
        print(f"fairlead: job {job}: {_reason(task)}", file=sys.stderr)
    raise typer.Exit(task["exit"] if task["exit"] is not None else 130)


def jobs(
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="Of this queue and those below it.")] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Of this user.")] = None,
    status: Annotated[str | None, typer.Option(help="waiting, held, running, succeeded, failed or cancelled.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="So many at most.", min=1, max=10_000)] = 30,
    as_json: Json = False,
) -> None:
    """List the newest jobs, newest first."""
    from fairlead.cli.tables import job_table, show

    with connect() as connection:
        found = connection.get("/v1/jobs", queue=queue, user=user, status=status, limit=limit)
    print_json(found) if as_json else show(job_table(found["jobs"]), "no jobs yet: submit one with `fairlead submit`")


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
    with connect() as connection:
        stream_task(connection, int(number), int(index or 0), follow)


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
    as_json: Json = False,
) -> None:
    """Show one job: what it asked for, and what its tasks do."""
    from fairlead.cli.tables import show_job

    with connect() as connection:
        found = connection.get(f"/v1/jobs/{job}")
        tasks = connection.get(f"/v1/jobs/{job}/tasks", limit=1000)["tasks"]
    print_json({**found, "task": tasks}) if as_json else show_job(found, tasks)


def wait(
    jobs: Annotated[list[int], typer.Argument(help="The jobs' numbers.", metavar="JOB...")],
    timeout: Annotated[
        str | None, typer.Option(help="Give up after so long, with exit status 124: 90, 30s, 5min, 2h.")
    ] = None,
) -> None:
    """Wait until jobs have ended. Exit status 0 if all their tasks succeeded, else 1."""
    from fairlead.cli.output import wait_with_progress

    with connect() as connection:
        ended = wait_with_progress(connection, jobs, _seconds("--timeout", timeout))
    if ended is None:
        raise typer.Exit(124)
    raise typer.Exit(0 if all(job["status"] == "succeeded" for job in ended) else 1)


def why(job: JobId, as_json: Json = False) -> None:
    """Say what a job waits for, now, and when it is expected to start."""
    with connect() as connection:
        found = connection.get(f"/v1/jobs/{job}/why")
        found["when"] = connection.get(f"/v1/jobs/{job}/when")
    if as_json:
        print_json(found)
        return
    print(f"job {job}: {plain(found['text'])}")
    if found["when"]["reason"] not in ("over", "running"):
        print(f"expected: {plain(found['when']['text'])}")


def when(
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
    """Say when a job would start, were it submitted now: its first task, all of a gang. Nothing is submitted.

    In eight of ten cases it starts within the interval. Example: fairlead when --cpu 4 --memory 8Gi --tasks 10 -q lab/vision
    """
    body = _demand(queue, cpu, memory, gpu, resource, priority, on, 0, time_limit)
    body |= {"name": name, "tasks": tasks, "gang": gang, "after": _after(after)}
    with connect() as connection:
        found = connection.post("/v1/when", body)
    print_json(found) if as_json else print(plain(found["text"]))


def hold(job: JobId) -> None:
    """Keep the tasks of a job that wait from starting; those that run go on."""
    change(f"/v1/jobs/{job}/hold", f"job {job} is held", f"job {job} was held already")


def release(job: JobId) -> None:
    """Let a job go that was held."""
    change(f"/v1/jobs/{job}/release", f"job {job} is released", f"job {job} was not held")


def _job_request(
    command: list[str], queue: str | None, cpu: str, memory: str, gpu: str, resource: list[str], name: str, priority: int,
    on: list[str], env: list[str], export_all: bool, cwd: Path | None, strict: bool, retries: int, time_limit: str | None,
) -> dict[str, Any]:  # fmt: skip
    from fairlead.client.environment import BadConfiguration, needed_environment
    from fairlead.client.jobs import encoded

    folder = Path.cwd() if cwd is None else cwd.absolute()
    asked = _demand(queue, cpu, memory, gpu, resource, priority, on, retries, time_limit)
    try:
        sent = {**needed_environment(), **_variables(env)}
    except BadConfiguration as error:
        raise Failure(str(error)) from None
    rest = {name: value for name, value in os.environ.items() if export_all and name not in sent}
    work = encoded({"argv": command, "cwd": str(folder), "env": sent, "exported": rest})
    return {**asked, **work, "name": name, "strict": strict}


def _demand(
    queue: str | None, cpu: str, memory: str, gpu: str, resource: list[str], priority: int, on: list[str], retries: int,
    time_limit: str | None,
) -> dict[str, Any]:  # fmt: skip
    from fairlead.client.jobs import job_request

    return job_request(
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


def _variables(values: list[str]) -> dict[str, str]:
    """What --env names: with its value, or as it is in this terminal."""
    missing = [value for value in values if "=" not in value and value not in os.environ]
    if missing:
        raise Failure(f"--env {missing[0]!r}: there is no such variable here: write NAME=VALUE to set one")
    return _pairs("--env", [value if "=" in value else f"{value}={os.environ[value]}" for value in values])


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
    if task["reason"] == "output limit":
        return "stopped: it wrote more output than it may: have it write to a file of its own"
    if task["reason"] == "time limit":
        return "stopped at its time limit"
    return str(task["reason"])

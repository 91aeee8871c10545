"""`fairlead submit`: combines the options of the command line, a script and a file, and submits jobs."""

import contextlib
import math
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import typer

from fairlead.cli.commands.options import is_given
from fairlead.cli.elsewhere import add_hint
from fairlead.cli.job_options import demand, job_request, with_option_names
from fairlead.cli.many_jobs import read_jobs
from fairlead.cli.parsing import USAGE
from fairlead.cli.scheduler import connect, say
from fairlead.cli.script_options import as_program, beginning, is_script, script_options, shell_of
from fairlead.cli.slurm_prologue import VARIABLE, check_body, wrapped
from fairlead.client.connection import Connection
from fairlead.client.environment import configured_recipient
from fairlead.client.notify import EVENTS, NotifyError, recipient, request
from fairlead.client.service_error import ServiceError
from fairlead.failure import Failure, WrongUsage, failing
from fairlead.plain_text import listed

NOT_IN_SCRIPTS = ("--when", "--jobs", "--help")
"""Options that a script cannot set."""
MOST_NOTIFIED = 1000
"""Jobs per notification, at most."""


def read_options(ctx: typer.Context, command: list[str], jobs: str | None) -> list[dict[str, Any]]:
    """Return the options of each job. Precedence: the command line, a script's #FAIRLEAD lines, its #SBATCH lines."""
    options = {**ctx.params, "command": command}
    if jobs is not None:
        return read_jobs(jobs, options)
    if not command or not command[0]:
        raise USAGE("submit what? Write a command after `--`, such as: fairlead submit -- make")
    places: dict[str, str] = {}
    script = script_options(command[0], partial(_check_line, ctx, places), _labels)
    if script is None:
        return [{**options, "command": _as_program(options)}] if is_script(command[0]) else [options]
    theirs = ctx.command.make_context("submit", [*script.slurm, *script.own]).params
    options |= {name: theirs[name] for name in ctx.params if not is_given(ctx, name)}
    options |= {"command": _as_program({**options, "command": command}), "places": places}
    if script.given is not None:
        options["command"], lines = wrapped(options["command"], shell_of(command[0]), script.given, options)
        options["env"] = [*options["env"], f"{VARIABLE}={lines}"]
        script.warnings.extend(check_body(command[0], beginning(command[0]), script.given, options["command"], lines))
        if not any(name.startswith("mem-") or name == "mem" for name in script.given) and options["memory"] == "1Gi":
            script.warnings.append(f"{command[0]}: no --mem: a task that uses more than 1Gi is killed")
    for line in script.warnings:
        say(line)
    return [options]


def _labels() -> list[dict[str, str]]:
    with connect() as connection:
        return [node["labels"] for node in connection.get("/v1/nodes")["nodes"]]


def _as_program(options: Mapping[str, Any]) -> list[str]:
    return as_program(options["command"], elsewhere=options["cwd"] is not None)


def _check_line(ctx: typer.Context, places: dict[str, str], where: str, words: list[str]) -> None:
    """Raise Failure unless a line of a script has valid options of a job; note the place of those that count."""
    for word in words:
        if word.partition("=")[0] in NOT_IN_SCRIPTS:
            raise Failure(f"{where} {word}: not allowed in a script: write it on the command line")
    try:
        theirs = ctx.command.make_context("submit", list(words))
        if theirs.params["command"]:
            word = theirs.params["command"][0]
            raise Failure(f"{where} {word}: is not an option: write the command on its own line, below")
        with failing(f"{where} ", WrongUsage):
            demand({**theirs.params, "queue": None})
        given = [name for name in theirs.params if is_given(theirs, name) and not is_given(ctx, name)]
        places.update({name: where for name in given if "#FAIRLEAD" in where or name not in places})
    except USAGE as error:
        add_hint(error)
        raise Failure(f"{where} {' '.join(words)}: {getattr(error, 'message', error)}") from None


@contextlib.contextmanager
def naming_line(options: dict[str, Any]) -> Iterator[None]:
    """Name the line of a script whose option is refused. Raises Failure; what a file says is no wrong usage."""
    try:
        yield
    except WrongUsage as error:
        raise Failure(str(error)) if options.keys() & {"where", "places"} else error from None
    except ServiceError as error:
        said = with_option_names(str(error))
        named = re.match("--([a-z-]+)", said)
        option = named[1].replace("-", "_") if named else "queue" if repr(options["queue"]) in said else ""
        if (where := options.get("places", {}).get(option)) is None:
            raise
        if named and where.endswith("#FAIRLEAD"):
            raise Failure(f"{where} {said}") from None
        why = said.partition(": ")[2] if named else said  # the place of #SBATCH names its option already
        raise Failure(f"{where}: {why}") from None


def requests(options: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the request of each job. Raises Failure, which names the line of a file."""
    found = []
    for each in options:
        with naming_line(each), failing(f"{each['where']}: ", Failure) if "where" in each else contextlib.nullcontext():
            found.append(job_request(each))
    return found


def estimate_starts(connection: Connection, bodies: list[dict[str, Any]], lines: list[str]) -> None:
    """Print when jobs would start; `lines` is as in :func:`submit_all`."""
    from fairlead.cli.terminal import print_sentence

    irrelevant = (
        "argv", "cwd", "env", "exported", "encoding", "exit_done", "grace", "signal", "at_most", "fit", "ray", "led", "array",
        "values",
    )  # fmt: skip
    for number, body in enumerate(bodies):
        relevant = {name: value for name, value in body.items() if name not in irrelevant}
        if (tasks := number_of_tasks(body)) is not None:
            relevant["tasks"] = tasks
        found = _post(connection.post, "/v1/when", relevant, lines[number : number + 1])
        say(found["warning"])
        print_sentence(found["text"])


def number_of_tasks(body: dict[str, Any]) -> int | None:
    """Return how many tasks a request is for, if it says so. Raises Failure."""
    from fairlead.model.ranges import read_array

    if "array" in body:
        with failing("--array: ", ValueError, to=WrongUsage):
            return len(read_array(body["array"]))
    return math.prod(map(len, body["values"])) if "values" in body else body.get("tasks")


def check_commands(connection: Connection, bodies: list[dict[str, Any]], lines: list[str]) -> None:
    """Raise Failure if the command of a job cannot start, as far as this machine shows; warn where it might elsewhere or later.

    `lines` is as in :func:`submit_all`.
    """
    if connection.address.socket is None:
        return
    found = [command_fault(body) for body in bodies]
    if not any(found):
        return
    if not connection.get("/v1/status")["elastic"]:  # every node is this machine
        for number, (fault, body) in enumerate(zip(found, bodies, strict=True)):
            if fault and not body["after"]:  # a job before it may make the program
                where = f"{lines[number]}: " if lines else ""
                raise Failure(f"{where}{fault}; --no-check submits it anyway")
    _warn_once(found, lines)


def with_sent(connection: Connection, bodies: list[dict[str, Any]], options: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Send the folders of jobs, each once, and return the requests with them. Raises Failure."""
    sent: dict[tuple[Path, Path], dict[str, Any]] = {}
    found = []
    for body, each in zip(bodies, options, strict=True):
        folder, fetch, cwd = each.get("send"), each.get("fetch") or [], Path(each["cwd"] or ".").absolute()
        if folder is None:
            if fetch:
                raise WrongUsage("--fetch: only with --send: without it, the task writes where it runs")
            found.append(body)
            continue
        from fairlead.client.parcels import send

        try:
            if (folder, cwd) not in sent:
                sent[folder, cwd] = send(connection, folder, cwd)
        except ValueError as error:
            raise Failure(str(error).replace("working_dir", "--send", 1)) from None
        found.append({**body, "sent": {**sent[folder, cwd], "fetch": fetch}})
    return found


def fetch_files(connection: Connection, job: int, tasks: Mapping[Path, Mapping[str, Any]]) -> str:
    """Write the files that came back from tasks into their folders; return which have none, as a sentence. Raises Failure."""
    from tarfile import TarError

    from fairlead.client.parcels import fetch

    without = []
    for folder, task in tasks.items():
        try:
            if not fetch(connection, job, task["index"], folder):
                without.append(f"{job}.{task['known_as']}")
        except (OSError, TarError) as error:
            raise Failure(f"the files of task {job}.{task['known_as']} cannot be written to {folder}: {error}") from None
    if not without:
        return ""
    if len(without) == 1:
        who = f"task {without[0]} has"
    else:
        who = f"job {job} has" if len(without) == len(tasks) else f"tasks {listed(without)} have"
    return f"{who} no files to fetch, or no longer: they come back by --send and --fetch"


def submit_all(connection: Connection, bodies: list[dict[str, Any]], options: list[dict[str, Any]], lines: list[str]) -> None:
    """Submit jobs in one request, print their numbers, and submit the jobs that notify people of them.

    Each recipient gets one message about all of their jobs, for each event of theirs. `lines` has the place of each job in a
    file; it is empty for the job of a command line.
    """
    recipients: dict[tuple[str, str], list[int]] = {}
    for number, each in enumerate(options):
        where = f"{lines[number]}: notify:" if lines else "--notify"
        events = (each.get("notify_on") or "end").split(",")
        if wrong := [event for event in events if event not in EVENTS]:
            raise WrongUsage(f"{where.rstrip(':')}-on {wrong[0]!r}: write one or more of {', '.join(EVENTS)}, with commas")
        events = [event for event in dict.fromkeys(events) if event != "failure" or "end" not in events]  # the end reports it
        for to in dict.fromkeys(each["notify"] or ([_default_recipient(where)] if each.get("notify_on") else [])):
            with failing(f"{where} ", NotifyError, to=Failure if to.startswith("@") else WrongUsage):
                found = recipient(to)
            for event in events:
                recipients.setdefault((found, event), []).append(number)
    for numbers in recipients.values():
        if len(numbers) > MOST_NOTIFIED:
            raise Failure(f"--notify: {len(numbers)} jobs are too many for one recipient: at most {MOST_NOTIFIED}")
    path, body = ("/v1/bulk", {"jobs": bodies}) if lines else ("/v1/jobs", bodies[0])
    answer = _post(connection.submit, path, body, lines)
    answers = answer["jobs"] if lines else [answer]
    _warn_once((answer["warning"] for answer in answers), lines)
    for (to, event), numbers in recipients.items():
        about = [answers[number] for number in numbers]
        connection.submit("/v1/jobs", {**request(to, event, [each["id"] for each in about]), "queue": about[0]["queue"]})
    print(*(answer["id"] for answer in answers), sep="\n")


def _default_recipient(where: str) -> str:
    """Return who is notified if nobody is named. Raises Failure."""
    to = configured_recipient()
    if to is None:
        raise Failure(f'{where.rstrip(":")}-on: nobody is named: add --notify TO, or notify = "TO" in your client.toml')
    return to


def _warn_once(warnings: Iterable[str | None], lines: list[str]) -> None:
    """Print each distinct warning once, with the place of its first job."""
    first: dict[str, int] = {}
    for number, warning in enumerate(warnings):
        if warning:
            first.setdefault(warning, number)
    for warning, number in first.items():
        say(f"{lines[number]}: {warning}" if lines else warning)


def _post(call: Callable[[str, dict[str, Any]], Any], path: str, body: dict[str, Any], lines: list[str]) -> Any:
    """Return the scheduler's answer. A refusal of a job of a file raises Failure with its line."""
    try:
        return call(path, body)
    except ServiceError as error:
        named = re.match(r"jobs\.([0-9]+)(?:\.|: )", str(error))  # one of several
        if not lines or error.status is None:
            raise
        number, why = (int(named[1]), str(error)[named.end() :]) if named else (0, str(error))
        raise Failure(f"{lines[number]}: {why}" if named or len(lines) == 1 else why) from None


def command_fault(body: dict[str, Any]) -> str | None:
    """Return what is missing on this machine of the folder and the program of a request; None if nothing is."""
    folder, program = body["cwd"], body["argv"][0]
    if "encoding" in body:  # bytes that are no text
        return None
    if not Path(folder).is_dir():
        return f"{folder}: no such folder to run in"
    path = Path(folder, program)
    if "/" in program and path.is_dir():
        return f"{program}: is a folder, not a program"
    if "/" in program and path.exists() and not os.access(path, os.X_OK):
        return f"{program}: is not executable: chmod +x {shlex.quote(program)}, or name its interpreter before it"
    if path.exists() if "/" in program else shutil.which(program, path=body["env"].get("PATH")):
        return None
    if len(program.split()) > 1:
        return f"{program!r} is one word, and no such program: omit the quotes, or write sh -c {shlex.quote(program)}"
    if not program or "{" in program:  # refused by the scheduler; depends on the task's index
        return None
    if "/" in program:
        return f"{program}: no such file in {folder}"
    return f"{program}: no such program" + f"; write ./{program} for the file in the folder" * path.is_file()

"""`fairlead submit`: what is asked for, by the command line, a script and a file; submitted, and said."""

import re
import shutil
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import typer

from fairlead.cli.asked import demand, job_request
from fairlead.cli.failure import Failure
from fairlead.cli.many_jobs import read_jobs
from fairlead.cli.script_options import ScriptOptions, as_program, is_script, script_options
from fairlead.client.connection import Connection
from fairlead.client.notify import NotTold, kind_of, request
from fairlead.client.service_error import ServiceError
from fairlead.plain_text import plain

NOT_IN_SCRIPTS = ("--when", "--jobs", "--help")
"""What says what is to be done with a script, or without one."""
MOST_TOLD_OF = 1000
"""Jobs whose end somebody may be told of at once."""


USAGE: type[Exception] = typer.BadParameter.__mro__[1]
"""What a wrong option raises: click's, or that of the copy of click which typer brings."""


def all_asked(ctx: typer.Context, command: list[str], jobs: str | None) -> list[dict[str, Any]]:
    """What each job is asked for with. The command line goes before a script's own lines, and those before Slurm's."""
    asked = {**ctx.params, "command": command}
    if jobs is not None:
        return read_jobs(jobs, asked)
    if not command or not command[0]:
        raise Failure("submit what? Write a command after `--`, such as: fairlead submit -- make")
    said = script_options(command[0], partial(_check_line, ctx))
    if said is None:
        return [_of_script(asked, command)] if is_script(command[0]) else [asked]
    for line in said.passed_over:
        print(f"fairlead: {plain(line)}: is passed over", file=sys.stderr)
    return [_of_script(_with(ctx, said), command)]


def _of_script(asked: dict[str, Any], command: list[str]) -> dict[str, Any]:
    return {**asked, "command": as_program(command, elsewhere=asked["cwd"] is not None)}


def _with(ctx: typer.Context, said: ScriptOptions) -> dict[str, Any]:
    """The options of a command line, and for those that are not given there, a script's."""
    mine = ctx.params
    if not (said.slurm or said.own):
        return mine
    theirs = ctx.command.make_context("submit", [*said.slurm, *said.own])

    def is_given(name: str) -> bool:
        source = ctx.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

    return {name: value if is_given(name) else theirs.params[name] for name, value in mine.items()}


def _check_line(ctx: typer.Context, where: str, words: list[str]) -> None:
    """Raise a Failure for a line of a script that says no options of a job."""
    for word in words:
        if word.partition("=")[0] in NOT_IN_SCRIPTS:
            raise Failure(f"{where} {word}: is no option of a script: write it on the command line")
    try:
        theirs = ctx.command.make_context("submit", list(words))
        if theirs.params["command"]:
            word = theirs.params["command"][0]
            raise Failure(f"{where} {word}: is no option: a command stands in a line of its own, below")
        demand({**theirs.params, "queue": None})
    except USAGE as error:
        raise Failure(f"{where} {' '.join(words)}: {getattr(error, 'message', error)}") from None
    except Failure as failure:
        text = str(failure)
        raise Failure(text if text.startswith(where) else f"{where} {text}") from None


def requests(asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The requests that jobs come to; a Failure names the line of a file that is wrong."""
    found = []
    for each in asked:
        try:
            found.append(job_request(each))
        except Failure as failure:
            raise Failure(f"{each['where']}: {failure}" if "where" in each else str(failure)) from None
    return found


def ask_when(connection: Connection, wanted: list[dict[str, Any]], where: list[str]) -> None:
    """Say when jobs would be expected to start; `where` is as in :func:`submit_all`."""
    from fairlead.cli.terminal import say

    unsaid = (
        "argv",
        "cwd",
        "env",
        "exported",
        "encoding",
        "exit_done",
        "grace",
        "signal",
        "at_most",
        "fit",
        "ray",
    )
    for number, body in enumerate(wanted):
        asked = {name: value for name, value in body.items() if name not in unsaid}
        found = _post(connection.post, "/v1/when", asked, where[number : number + 1])
        if found["warning"]:
            print(f"fairlead: {plain(found['warning'])}", file=sys.stderr)
        say(found["text"])


def submit_all(connection: Connection, wanted: list[dict[str, Any]], notify: list[list[str]], where: list[str]) -> None:
    """Submit jobs in one request, say their numbers, and have somebody told when they have ended.

    `notify` says of each who is told; once of all of which they are.
    `where` says where each stands in a file; empty for what the command line asks for.
    """
    if connection.is_here():
        _say_once(map(doubt_about_command, wanted), where)
    told: dict[str, list[int]] = {}
    for number, tos in enumerate(notify):
        for to in dict.fromkeys(tos):
            told.setdefault(to, []).append(number)
    for to, numbers in told.items():
        try:
            kind_of(to)
        except NotTold as error:
            raise Failure(f"{f'{where[numbers[0]]}: notify:' if where else '--notify'} {error}") from None
        if len(numbers) > MOST_TOLD_OF:
            raise Failure(f"--notify: {len(numbers)} jobs are too many to wait for: {MOST_TOLD_OF} at most")
    path, body = ("/v1/bulk", {"jobs": wanted}) if where else ("/v1/jobs", wanted[0])
    answer = _post(connection.submit, path, body, where)
    answers = answer["jobs"] if where else [answer]
    _say_once((answer["warning"] for answer in answers), where)
    for to, numbers in told.items():
        ended = [answers[number] for number in numbers]
        connection.submit("/v1/jobs", {**request(to, [each["id"] for each in ended]), "queue": ended[0]["queue"]})
    print(*(answer["id"] for answer in answers), sep="\n")


def _say_once(doubts: Iterable[str | None], where: list[str]) -> None:
    """Say what is doubted of jobs; the same of several once, with the first place."""
    first: dict[str, int] = {}
    for number, doubt in enumerate(doubts):
        if doubt:
            first.setdefault(doubt, number)
    for doubt, number in first.items():
        print(f"fairlead: {f'{where[number]}: ' if where else ''}{plain(doubt)}", file=sys.stderr)


def _post(call: Callable[[str, dict[str, Any]], Any], path: str, body: dict[str, Any], where: list[str]) -> Any:
    """What the scheduler answers; why it refuses jobs of a file is said with the line of the one that it is about."""
    try:
        return call(path, body)
    except ServiceError as error:
        named = re.match(r"jobs\.([0-9]+)(?:\.|: )", str(error))  # one of several
        if not where or error.status is None or not (named or len(where) == 1):
            raise
        number, said = (int(named[1]), str(error)[named.end() :]) if named else (0, str(error))
        raise Failure(f"{where[number]}: {said}") from None


def doubt_about_command(body: dict[str, Any]) -> str | None:
    """What of a request is not here now, and most likely will not be when it runs; None where all is, as far as one sees."""
    folder, program = body["cwd"], body["argv"][0]
    if "encoding" in body:  # bytes that are no text
        return None
    if not Path(folder).is_dir():
        return f"{folder}: there is no such folder to run in"
    if "{" in program:  # a task's index
        return None
    if "/" not in program:
        found = shutil.which(program, path=body["env"].get("PATH"))
        return None if found else f"{program}: there is no such program; a file in a folder is written ./{program}"
    return None if Path(folder, program).exists() else f"{program}: there is no such file in {folder}"

"""Commands about one job or many, by number or selected: list, wait, print output, cancel, hold, release, run again."""

import re
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.commands.options import Json, job_argument, option
from fairlead.cli.parsing import USAGE
from fairlead.cli.scheduler import connect, print_json, say
from fairlead.cli.selection import (
    PART,
    TASK,
    Selection,
    chosen_jobs,
    place_of,
    print_changed,
    selected_jobs,
    selecting,
    task_places,
    whole_job,
)
from fairlead.client.connection import Connection

MOST_EXPLAINED = 10
"""Jobs of which `wait` says how they ended, at most."""


Jobs = Annotated[list[str] | None, job_argument("The jobs' numbers, or names: your newest of each.")]
UnfinishedJobs = Annotated[list[str] | None, job_argument("The jobs' numbers, or names: your newest of each that has not ended.")]


@selecting
def jobs(
    selection: Selection,
    limit: Annotated[int, option("List at most N jobs.", "--limit", "-n", min=1, max=10_000)] = 30,
    long: Annotated[bool, option("Also show users, CPU time and peak memory.", "--long", "-l")] = False,
    as_json: Json = False,
) -> None:
    """List the newest jobs, newest first."""
    from fairlead.cli.tables import job_table, show

    with connect() as connection:
        found, page = selected_jobs(connection, selection, limit)
    say(page["stalled"])
    if as_json:
        print_json({**page, "jobs": found})
        return
    show(
        job_table(found, long),
        f"no jobs with {selection.text}" if selection else "no jobs yet: submit one with `fairlead submit`",
    )


@selecting
def logs(
    selection: Selection,
    jobs: Annotated[
        list[str] | None,
        job_argument("The job's number or name; add .INDEX to a number for a task other than the first.", "JOB[.INDEX]"),
    ] = None,
    follow: Annotated[bool, option("Follow the output until the tasks end.", "--follow", "-f")] = False,
    tail: Annotated[int | None, option("Only the last N lines of each stream.", "--tail", min=0)] = None,
    every: Annotated[bool, option("Print the output of all tasks, each line after its task.", "--all")] = False,
    failed: Annotated[bool, option("Print the output of all failed tasks.", "--failed")] = False,
    output: Annotated[Path | None, option("Write it all to this file instead.", "--output", "-o", metavar="FILE")] = None,
) -> None:
    """Print the output of tasks. Their standard output and standard error go to this command's."""
    from fairlead.cli.output import TaskOutput, copy_all, targets_of

    words = jobs or []
    together = every or failed or bool(selection) or len(words) > 1
    if together and (wrong := [word for word in words if re.fullmatch(f"{TASK}|{PART}", word) and "." in word]):
        raise USAGE(f"{wrong[0]}: with --all, --failed or several jobs, name whole jobs: omit .{wrong[0].partition('.')[2]}")
    with connect() as connection, targets_of(output) as targets:
        if together or not words:
            copy_all(connection, chosen_jobs(connection, "logs of", words, selection), targets, failed, follow, tail)
            return
        word, *part = re.split("[@,-]", words[0]) if re.fullmatch(PART, words[0]) else words
        task = TaskOutput(connection, *place_of(connection, word), targets)
        if part:
            task.print_part(*map(int, part))
        elif tail is not None:
            task.print_tail(tail)
        if not part and (tail is None or follow):
            task.copy(follow)


@selecting
def cancel(
    selection: Selection,
    jobs: Annotated[
        list[str] | None,
        job_argument(
            "Jobs, by number or name (your newest that has not ended), tasks or ranges of tasks: 12, 12.3, 12.0-9.",
            "JOB[.INDEX[-INDEX]]",
        ),
    ] = None,
) -> None:
    """Cancel jobs, some tasks of a job, or all jobs of a queue, name or group.

    Running tasks get SIGTERM, and SIGKILL after five seconds. Pending tasks never start. Without --queue or --user, only your
    own jobs are selected.

    Example: fairlead cancel 12 13.0-9
    """
    if not jobs and not selection:
        raise USAGE("cancel what? Name jobs, such as 12 or 12.3, or select them, such as --name NAME or --queue QUEUE")
    with connect() as connection:
        whole, parts = _tasks(connection, jobs or [])
        cancelled: list[int] = []
        if whole or selection:
            cancelled = connection.post("/v1/cancel", {"jobs": whole, **selection.asked})["cancelled"]
        print_changed([job for job in whole if job not in cancelled], "had ended already", "had ended already")
        print_changed(cancelled, "is cancelled", "are cancelled")
        if selection and not cancelled:
            print(f"no jobs of yours that have not ended with {selection.text}")
        for job, written in parts.items():
            indices = task_places(connection, job, written)
            changed = connection.post(f"/v1/jobs/{job}/cancel", {"indices": indices})["changed"]
            named = f"task {job}.{written[0][0]}" if len(indices) == 1 else f"{len(indices)} tasks of job {job}"
            is_are, had = ("is", "had") if len(indices) == 1 else ("are", "had all")
            print(f"{named} {is_are} cancelled" if changed else f"{named} {had} ended already")


@selecting
def wait(
    selection: Selection,
    jobs: Jobs = None,
    timeout: Annotated[str | None, option("Give up after this time, with exit status 124: 90, 30s, 5min, 2h.")] = None,
) -> None:
    """Wait until jobs have ended. Exit status 0 if all their tasks succeeded, otherwise 1."""
    from fairlead.cli.job_options import seconds
    from fairlead.cli.output import wait_with_progress

    with connect() as connection:
        numbers = chosen_jobs(connection, "wait for", jobs or [], selection)
        ended = wait_with_progress(connection, numbers, seconds("--timeout", timeout))
    if ended is None:
        raise typer.Exit(124)
    wrong = [job for job in ended if job["status"] != "succeeded"]
    for job in wrong[:MOST_EXPLAINED]:
        failed = f": {job['failed']} of {job['tasks']} tasks failed" if job["failed"] and job["tasks"] > 1 else ""
        see = "why" if job["status"] == "cancelled" else "job"
        say(f"job {job['id']} {job['status']}{failed}: see fairlead {see} {job['id']}")
    if len(wrong) > MOST_EXPLAINED:
        say(f"and {len(wrong) - MOST_EXPLAINED} more")
    raise typer.Exit(1 if wrong else 0)


@selecting
def hold(selection: Selection, jobs: UnfinishedJobs = None) -> None:
    """Keep the waiting tasks of jobs from starting. Running tasks go on."""
    _change("hold", jobs or [], selection, ("is held", "are held"), ("was held already", "were held already"))


@selecting
def release(selection: Selection, jobs: UnfinishedJobs = None) -> None:
    """Release held jobs."""
    _change("release", jobs or [], selection, ("is released", "are released"), ("was not held", "were not held"))


def _change(verb: str, words: list[str], selection: Selection, done: tuple[str, str], nothing: tuple[str, str]) -> None:
    """Post a change of jobs; of selected ones, only those that it applies to."""
    if selection:
        status = ["held"] if verb == "release" else ["waiting", "running"]
        selection = selection._replace(asked={"status": status, **selection.asked})
    changed: dict[bool, list[int]] = {True: [], False: []}
    with connect() as connection:
        for number in chosen_jobs(connection, verb, words, selection, unfinished=True):
            changed[connection.post(f"/v1/jobs/{number}/{verb}", {})["changed"]].append(number)
    print_changed(changed[True], *done)
    print_changed(changed[False], *nothing)


@selecting
def rerun(
    selection: Selection,
    jobs: Jobs = None,
    failed: Annotated[bool, option("Only the failed tasks, with their original indices.", "--failed")] = False,
) -> None:
    """Submit jobs again and print the new jobs' numbers."""
    if selection and failed:
        selection = selection._replace(asked={"status": ["failed"], **selection.asked})
    with connect() as connection:
        for number in chosen_jobs(connection, "rerun", jobs or [], selection):
            answer = connection.submit(f"/v1/jobs/{number}/rerun", {"failed": failed})
            say(answer["warning"])
            print(answer["id"])


def _tasks(connection: Connection, words: list[str]) -> tuple[list[int], dict[int, list[tuple[int, int]]]]:
    """Split arguments such as ``12``, ``12.3`` and ``12.0-9`` into whole jobs, and ranges of task indices by job."""
    whole: list[int] = []
    parts: dict[int, list[tuple[int, int]]] = {}
    for word in words:
        match = re.fullmatch(r"([0-9]{1,15})(?:\.([0-9]{1,7})(?:-([0-9]{1,7}))?)?", word)
        if match is None or match[2] is None:
            whole.append(whole_job(connection, word, "a job is named", ", or 12.0-9 for some", unfinished=True))
        elif match[3] and int(match[3]) < int(match[2]):
            raise USAGE(f"{word}: write JOB.FIRST-LAST, such as {match[1]}.{match[3]}-{match[2]}")
        else:
            parts.setdefault(int(match[1]), []).append((int(match[2]), int(match[3] or match[2])))
    return whole, parts

"""A task as a framework describes it, as a job of one task: its command, its environment, what it takes, and its sandbox.

The built-in executor of commands is the engine itself: a command runs as any job's does. Where files are to be fetched before it,
the task starts as :mod:`~fairlead.service.mesos.fetch`, which becomes the command.
"""

import json
import re
import sys
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from fairlead.model.specs import Job, Work
from fairlead.people.accounts import Person
from fairlead.service.mesos import fetch
from fairlead.service.mesos.messages.mesos_pb2 import CommandInfo, Environment, TaskInfo
from fairlead.service.mesos.resources import NoResource, are_revocable, demand_of

LARGEST_ENVIRONMENT = 512 * 2**10
"""Bytes of a task's command with its environment."""
LONGEST_ID = 255
LONGEST_GRACE = 86_400.0
MOST_URIS = 1000
MOST_FETCHED = 16 * 2**30
"""Bytes that are fetched and unpacked for a task that says nothing of its disk."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TASK_ID = re.compile(r"[^\x00-\x20/\x7f]+")


class InvalidTask(ValueError):
    """A task that cannot be one here; the message says why."""


class Home(NamedTuple):
    """Where a task belongs: its framework, by its id, the agent that the framework knows, and where that answers."""

    framework: str
    agent: str
    endpoint: str


def check_task(info: TaskInfo) -> None:
    """Raises InvalidTask for what no agent here runs, whatever there is room for."""
    name = info.task_id.value
    if not _TASK_ID.fullmatch(name) or len(name) > LONGEST_ID or name in (".", ".."):
        raise InvalidTask(f"{name[:50]!r} is no id of a task")
    if info.HasField("container") or (info.HasField("executor") and info.executor.HasField("container")):
        raise InvalidTask("containers are not run here: give the task a command without a container")
    if info.HasField("executor"):
        raise InvalidTask("custom executors are not run here: give the task a command")
    if not info.HasField("command"):
        raise InvalidTask("Task should have at least one (but not both) of CommandInfo or ExecutorInfo present")
    if info.HasField("health_check") or info.HasField("check"):
        raise InvalidTask("checks are not made here: leave out health_check and check")
    if info.limits:
        raise InvalidTask("limits: a task has what it asks for as its resources, and no more: leave them out")


def job_of(info: TaskInfo, person: Person, home: Home, sandbox: Path) -> Job:
    """A task of somebody's framework as a job, of no queue yet. Raises InvalidTask."""
    check_task(info)
    command = info.command
    if command.user and command.user != person.name:
        raise InvalidTask(f"user {command.user!r}: the tasks of this framework run as {person.name}")
    try:
        demand = demand_of(info.resources)
    except NoResource as error:
        raise InvalidTask(str(error)) from None
    if not demand:
        raise InvalidTask("Task uses no resources")
    argv = _with_fetching(_argv(command), command, demand.get("disk", MOST_FETCHED))
    work = Work(argv=argv, cwd=str(sandbox), env=_environment(info, home, sandbox))
    _check_size(work)
    return Job(
        queue="",
        demand=demand,
        name=(info.name or info.task_id.value)[:256],
        user=person.name,
        uid=person.uid,
        gid=person.gid,
        work=work,
        time_limit=_seconds(info.max_completion_time.nanoseconds) if info.HasField("max_completion_time") else None,
        grace=_seconds(info.kill_policy.grace_period.nanoseconds)
        if info.kill_policy.HasField("grace_period")
        else None,
        revocable=are_revocable(info.resources),
        framework=home.framework,
        task=info.task_id.value,
    )


def _seconds(nanoseconds: int) -> float:
    if nanoseconds < 0:
        raise InvalidTask(f"{nanoseconds} are no nanoseconds")
    return min(nanoseconds / 1e9, LONGEST_GRACE)


def _argv(command: CommandInfo) -> list[str]:
    """The words of a command; a line for a shell is the last of three."""
    if not command.value:
        raise InvalidTask("the command has no value")
    if command.shell:
        return ["/bin/sh", "-c", command.value]
    return [command.value, *command.arguments[1:]]


def _with_fetching(argv: list[str], command: CommandInfo, most: int) -> list[str]:
    """The command after what fetches for it; itself where nothing is to be fetched."""
    if not command.uris:
        return argv
    if len(command.uris) > MOST_URIS:
        raise InvalidTask(f"{len(command.uris)} URIs: {MOST_URIS} at most")
    uris = []
    for uri in command.uris:
        if not (uri.value.startswith("/") or urlsplit(uri.value).scheme in ("file", "http", "https")):
            raise InvalidTask(f"{uri.value!r}: files of the agent's machine, http and https are fetched, nothing else")
        found = {
            "value": uri.value,
            "executable": uri.executable,
            "extract": uri.extract,
            "output_file": uri.output_file,
        }
        try:
            fetch.name_of(found)
        except fetch.CannotFetch as error:
            raise InvalidTask(f"{uri.value}: {error}") from None
        uris.append(found)
    return [sys.executable, "-I", "-S", fetch.__file__, json.dumps({"uris": uris, "most": most}), *argv]


def _environment(info: TaskInfo, home: Home, sandbox: Path) -> dict[str, str]:
    """The environment of a task: what it asks for, over what an executor of Mesos finds."""
    found = {
        "PATH": PATH,
        "PWD": str(sandbox),
        "MESOS_SANDBOX": str(sandbox),
        "MESOS_DIRECTORY": str(sandbox),
        "MESOS_TASK_ID": info.task_id.value,
        "MESOS_EXECUTOR_ID": info.task_id.value,
        "MESOS_FRAMEWORK_ID": home.framework,
        "MESOS_AGENT_ID": home.agent,
        "MESOS_SLAVE_ID": home.agent,
        "MESOS_AGENT_ENDPOINT": home.endpoint,
    }
    for each in info.command.environment.variables:
        if each.HasField("secret") or each.type == Environment.Variable.SECRET:
            raise InvalidTask(f"{each.name}: secrets are not kept here: give it a value")
        if not each.name or "=" in each.name:
            raise InvalidTask(f"{each.name!r} is no name of an environment variable")
        found[each.name] = each.value
    return found


def _check_size(work: Work) -> None:
    texts = [*work.argv, *work.env, *work.env.values()]
    if any("\0" in text for text in texts):
        raise InvalidTask("a command and its environment have no NUL bytes")
    if any(len(text.encode("utf-8", "surrogatepass")) >= 2**17 for text in texts):
        raise InvalidTask(f"a word of a command or of its environment has {2**17} bytes or more: put it into a file")
    if sum(len(text.encode("utf-8", "surrogatepass")) + 1 for text in texts) > LARGEST_ENVIRONMENT:
        raise InvalidTask(f"the command with its environment is larger than {LARGEST_ENVIRONMENT >> 10} KiB")

"""Conversion of a framework's task to a job of one task: command, environment, resources and sandbox.

The engine itself is the built-in command executor: a command runs like any job. If files must be downloaded first, the task
starts as :mod:`~fairlead.service.mesos.fetch`, which then becomes the command.
"""

import json
import re
import secrets
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from fairlead.failure import failing
from fairlead.model.documents import LONGEST_GRACE
from fairlead.model.specs import Job, Work
from fairlead.people.accounts import Person
from fairlead.scheduler.admission import Refused
from fairlead.service.api.requests import LARGEST_ENVIRONMENT
from fairlead.service.mesos import checks, fetch
from fairlead.service.mesos.descriptions import LONGEST_ID, LONGEST_SECONDS
from fairlead.service.mesos.encoding import JSON, as_json, encode
from fairlead.service.mesos.messages.mesos_pb2 import CommandInfo, Environment, ExecutorInfo, HealthCheck, Resource, TaskInfo
from fairlead.service.mesos.resources import request_of, wrong_path

GRACE = 5.0
"""Seconds that an executor has to end, by default."""
TOKEN = "MESOS_EXECUTOR_AUTHENTICATION_TOKEN"  # noqa: S105 its name
"""The environment variable with the secret of an executor."""
GROUP = "MESOS_LAUNCH_GROUP"
"""The environment variable with the name of the group that a task inside an executor was launched in."""
MOST_URIS = 1000
MOST_FETCHED = 16 * 2**30
"""Bytes that are downloaded and unpacked for a task without a disk demand."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TASK_ID = re.compile(r"[^\x00-\x20/\x7f]+")


class Home(NamedTuple):
    """Where a task belongs: its framework's id, its agent, and the agents' address, with its certificate as PEM, if any."""

    framework: str
    agent: str
    address: str
    certificate: str = ""


def check_task(info: TaskInfo) -> None:
    """Raise Refused for a task that no agent can run."""
    _check_id(info.task_id.value, "a task")
    if info.HasField("container") or (info.HasField("executor") and info.executor.HasField("container")):
        raise Refused("containers are not supported: omit container, and give the task a command")
    if info.limits:
        raise Refused("limits are not supported: a task gets its resources and no more: leave them out")


def _check_id(name: str, of: str) -> None:
    if not _TASK_ID.fullmatch(name) or len(name) > LONGEST_ID or name in (".", ".."):
        raise Refused(f"{name[:50]!r} is not a valid id of {of}")


def check_executor(info: ExecutorInfo, framework: str) -> None:
    """Raise Refused for an executor that no agent can run."""
    _check_id(info.executor_id.value, "an executor")
    if info.framework_id.value not in ("", framework):
        raise Refused(f"ExecutorInfo has an invalid FrameworkID (Actual: {info.framework_id.value}, Expected: {framework})")
    if info.type == ExecutorInfo.DEFAULT:
        raise Refused("the default executor runs groups of tasks: use LAUNCH_GROUP, or give the task a command")
    if info.HasField("container"):
        raise Refused("containers are not supported: omit container, and give the executor a command")
    if not info.HasField("command"):
        raise Refused("'ExecutorInfo.command' must be set for 'CUSTOM' executor")


def job_of(info: TaskInfo, person: Person, home: Home, sandbox: Path) -> Job:
    """Convert a command task of a person's framework to a job without a queue. Raises Refused."""
    check_task(info)
    if info.HasField("executor") or not info.HasField("command"):
        raise Refused("Task should have at least one (but not both) of CommandInfo or ExecutorInfo present")
    if info.HasField("check"):
        raise Refused("general checks are not supported: leave out check; a health_check may have a command")
    job = _job(info, person, home)
    if not job.demand:
        raise Refused("Task uses no resources")
    env = {"MESOS_TASK_ID": info.task_id.value, **_environment(info.command, info.task_id.value, home, sandbox)}
    before, kill = list[str](), _kill(info)
    if info.HasField("health_check") or info.command.uris:
        env[TOKEN] = secrets.token_urlsafe(32)
    if info.HasField("health_check"):
        before = _checking(info, home, kill["grace"])
    tell = [sys.executable, "-I", "-S", checks.__file__, checks.NEVER_RUN, json.dumps(_to_tell(info, home))]
    work = _work(info.command, job, env, before, tell)
    return _checked(replace(job, work=work, **kill))


def _checking(info: TaskInfo, home: Home, grace: float | None) -> list[str]:
    """Return the words before a command that run its health check. Raises Refused."""
    check = info.health_check
    asked = {name: getattr(check, f"{name}_seconds") for name in ("delay", "interval", "timeout", "grace_period")}
    for name, value in asked.items():
        if not (isinstance(value, float | int) and 0 <= value <= LONGEST_SECONDS):
            raise Refused(f"health check: {name}: {value}: use 0 to {int(LONGEST_SECONDS)} seconds")
    asked["failures"] = check.consecutive_failures
    asked |= {"argv": _checking_argv(check), "env": _variables(check.command)}
    asked |= _to_tell(info, home)
    asked["grace"] = GRACE if grace is None else grace
    return [sys.executable, "-I", "-S", checks.__file__, json.dumps(asked)]


def _to_tell(info: TaskInfo, home: Home) -> dict[str, str]:
    """Return which task a helper program reports on, and to which endpoint."""
    where = {"endpoint": home.address, "certificate": home.certificate}
    return {"task": info.task_id.value, "framework": home.framework, **where}


def _checking_argv(check: HealthCheck) -> list[str]:
    if check.type == HealthCheck.COMMAND:
        if not check.HasField("command"):
            raise Refused("Expecting 'command' to be set for COMMAND health check")
        if check.command.uris or check.command.user:
            raise Refused("health check: its command always runs as the task's user, with the task's files")
        return _argv(check.command)
    kind = HealthCheck.Type.Name(check.type)
    if kind not in ("HTTP", "TCP") or not check.HasField(kind.lower()):
        raise Refused(f"Expecting 'command', 'http' or 'tcp' to be set for {kind} health check")
    port = check.http.port if kind == "HTTP" else check.tcp.port
    if not 0 < port < 2**16:
        raise Refused(f"health check: {port} is not a valid port")
    asked = {"type": kind, "port": port}
    if kind == "HTTP":
        path, scheme = check.http.path or "/", check.http.scheme or "http"
        if not path.startswith("/") or any(not "!" <= each <= "~" for each in path) or scheme not in ("http", "https"):
            message = f"health check: {scheme}://127.0.0.1:{port}{path} is not valid: the path must be ASCII and begin with /"
            raise Refused(message)
        asked |= {"path": path, "scheme": scheme, "statuses": list(check.http.statuses)}
    return [sys.executable, "-I", "-S", checks.__file__, checks.PROBE, json.dumps(asked)]


def job_within(info: TaskInfo, executor: ExecutorInfo, person: Person, home: Home, group: str = "") -> Job:
    """Convert a task inside an executor to a job without a queue. Raises Refused."""
    check_task(info)
    check_executor(executor, home.framework)
    job = _job(info, person, home)
    if job.demand.get("gpu"):
        raise Refused("gpus: tasks inside an executor use those of the executor: ask for them there")
    if volumes_of(info.resources):
        raise Refused("volumes: tasks inside an executor use those of the executor: ask for them there")
    told = TaskInfo()
    told.CopyFrom(info)
    told.ClearField("executor")
    work = Work(env={GROUP: group} if group else {})
    name = executor.executor_id.value
    return _checked(replace(job, work=work, executor=name, info=encode(JSON, told).decode("ascii"), **_kill(info)))


def executor_job(info: ExecutorInfo, person: Person, home: Home, sandbox: Path) -> Job:
    """Convert an executor of a person's framework to a job without a queue. Raises Refused.

    Its stream tells it to end. Its stop signal therefore does nothing, and SIGKILL follows after its grace period.
    """
    check_executor(info, home.framework)
    told = ExecutorInfo()
    told.CopyFrom(info)
    told.framework_id.value = home.framework
    if not told.HasField("type"):
        told.type = ExecutorInfo.CUSTOM
    name = info.executor_id.value
    grace = _seconds(info.shutdown_grace_period.nanoseconds) if info.HasField("shutdown_grace_period") else GRACE
    job = _job(info, person, home)
    env = _environment(info.command, name, home, sandbox) | {
        TOKEN: secrets.token_urlsafe(32),
        "MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD": f"{grace:g}secs",
        "MESOS_CHECKPOINT": "1",
        "MESOS_RECOVERY_TIMEOUT": "15mins",
        "MESOS_SUBSCRIPTION_BACKOFF_MAX": "2secs",
        "MESOS_HTTP_COMMAND_EXECUTOR": "0",
    }
    work = _work(info.command, job, env)
    return _checked(
        replace(
            job, name=(info.name or name)[:256], work=work, grace=grace, signal=signal.SIGCONT, executor=name, task="",
            info=encode(JSON, told).decode("ascii"),
        )
    )  # fmt: skip


def _job(info: TaskInfo | ExecutorInfo, person: Person, home: Home) -> Job:
    asked = request_of(info.resources)
    revocable = any(each.HasField("revocable") for each in info.resources)
    task = info.task_id.value if isinstance(info, TaskInfo) else ""
    return Job(
        queue="", demand=asked.demand, apart=asked.apart, ports=asked.ports, name=(info.name or task)[:256],
        user=person.name, uid=person.uid, gid=person.gid, revocable=revocable, framework=home.framework, task=task,
    )  # fmt: skip


def volumes_of(resources: Iterable[Resource]) -> dict[str, str]:
    """Return the volumes of a task: marks by path in the sandbox. Raises Refused."""
    found: dict[str, str] = {}
    for mark, path in request_of(resources).volumes.items():
        if wrong := wrong_path(path):
            raise Refused(wrong)
        if any(f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/") for other in found):
            raise Refused(f"container_path {path!r}: it overlaps with another volume's")
        found[path] = mark
    return found


def _kill(info: TaskInfo) -> dict[str, float | None]:
    longest, grace = info.max_completion_time, info.kill_policy.grace_period
    return {
        "time_limit": _seconds(longest.nanoseconds) if info.HasField("max_completion_time") else None,
        "grace": _seconds(grace.nanoseconds) if info.kill_policy.HasField("grace_period") else None,
    }


def _work(command: CommandInfo, job: Job, env: dict[str, str], before: Sequence[str] = (), tell: Sequence[str] = ()) -> Work:
    """Return the work of a job's command in its sandbox; `before` wraps the command, `tell` reports that it was not run."""
    if command.user and command.user != job.user:
        raise Refused(f"user {command.user!r}: tasks of this framework run as {job.user}")
    argv = _with_fetching([*before, *_argv(command)], command, job.demand.get("disk", MOST_FETCHED), tell)
    return Work(argv=argv, cwd=env["MESOS_SANDBOX"], env=env)


def _seconds(nanoseconds: int) -> float:
    if nanoseconds < 0:
        raise Refused(f"{nanoseconds} nanoseconds: must not be negative")
    return min(nanoseconds / 1e9, LONGEST_GRACE)


def _argv(command: CommandInfo) -> list[str]:
    """Return the words of a command; a shell command line becomes the last of three."""
    if not command.value:
        raise Refused("the command has no value")
    if command.shell:
        return ["/bin/sh", "-c", command.value]
    return [command.value, *command.arguments[1:]]


def _with_fetching(argv: list[str], command: CommandInfo, most: int, tell: Sequence[str]) -> list[str]:
    """Prepend the download program to a command, if it has URIs."""
    if not command.uris:
        return argv
    if len(command.uris) > MOST_URIS:
        raise Refused(f"{len(command.uris)} URIs: {MOST_URIS} at most")
    uris = []
    for uri in command.uris:
        if not (uri.value.startswith("/") or urlsplit(uri.value).scheme in ("file", "http", "https")):
            raise Refused(f"{uri.value!r}: only http, https and files of the agent's machine are supported")
        found = as_json(uri)
        with failing(f"{uri.value}: ", fetch.CannotFetch, to=Refused):
            fetch.name_of(found)
        uris.append(found)
    asked = {"uris": uris, "most": most, "tell": [*tell]}
    return [sys.executable, "-I", "-S", fetch.__file__, json.dumps(asked), *argv]


def _environment(command: CommandInfo, executor: str, home: Home, sandbox: Path) -> dict[str, str]:
    """Return the environment of a command: its own variables over those of a Mesos executor."""
    found = {
        "PATH": PATH, "PWD": str(sandbox), "MESOS_SANDBOX": str(sandbox), "MESOS_DIRECTORY": str(sandbox),
        "MESOS_EXECUTOR_ID": executor, "MESOS_FRAMEWORK_ID": home.framework, "MESOS_AGENT_ID": home.agent,
        "MESOS_SLAVE_ID": home.agent, "MESOS_SLAVE_PID": f"slave(1)@{home.address}",
        "MESOS_AGENT_ENDPOINT": home.address,
    }  # fmt: skip
    return found | _variables(command)


def _variables(command: CommandInfo) -> dict[str, str]:
    found = {}
    for each in command.environment.variables:
        if each.HasField("secret") or each.type == Environment.Variable.SECRET:
            raise Refused(f"{each.name}: secrets are not supported: give it a value")
        if not each.name or "=" in each.name:
            raise Refused(f"{each.name!r} is not a valid name of an environment variable")
        found[each.name] = each.value
    return found


def _checked(job: Job) -> Job:
    """Return a job if its texts are valid and not too long. Raises Refused."""
    work = job.work
    texts = [*work.argv, *work.env, *work.env.values()]
    if any("\0" in text for text in texts):
        raise Refused("NUL bytes in the command or its environment")
    if any(len(text.encode("utf-8", "surrogatepass")) >= 2**17 for text in texts):
        raise Refused(f"a word of a command or of its environment has {2**17} bytes or more: put it into a file")
    if sum(len(text.encode("utf-8", "surrogatepass")) + 1 for text in (*texts, job.info)) > LARGEST_ENVIRONMENT:
        raise Refused(f"the command with its environment is larger than {LARGEST_ENVIRONMENT >> 10} KiB")
    return job

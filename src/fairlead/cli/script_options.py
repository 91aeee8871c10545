"""Options that stand in a script: `#FAIRLEAD --cpu 2`, and of Slurm's `#SBATCH` lines those that mean something here.

They stand before the first line that is a command, each at the beginning of its line.
"""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from fairlead.cli.failure import Failure
from fairlead.client.notify import NotTold, kind_of

MOST_READ = 65536
"""Bytes of a script that are looked at."""
OURS = {
    "SLURM_ARRAY_TASK_ID": "FAIRLEAD_INDEX", "SLURM_JOB_ID": "FAIRLEAD_JOB", "SLURM_JOBID": "FAIRLEAD_JOB",
    "SLURM_CPUS_PER_TASK": "FAIRLEAD_CPU", "SLURM_RESTART_COUNT": "FAIRLEAD_NUMBER",
}  # fmt: skip
"""What Slurm tells a task, and what tells it here."""


Check = Callable[[str, list[str]], None]
"""Takes a place and the options that stand there, as ours; raises Failure where they are none."""


class ScriptOptions(NamedTuple):
    """What a script says: Slurm's options as ours, ours, and what is passed over, with the lines where that stands."""

    slurm: list[str]
    own: list[str]
    passed_over: list[str]


def script_options(path: str, check: Check = lambda where, words: None) -> ScriptOptions | None:
    """What stands in a file; None where that is no script, or says nothing. `check` is told of each line, and where it stands."""
    text = _beginning(path)
    found, together = ScriptOptions([], [], []), Together()
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            break
        mark, *after = line.split(None, 1) or [""]
        rest = "".join(after)
        if mark in ("#FAIRLEAD", "#SBATCH"):
            where = f"{path}:{number}: {mark}"
            words = _words(rest, where)
            if mark == "#FAIRLEAD":
                check(where, words)
                found.own.extend(words)
            else:
                known = len(found.slurm)
                _translate(words, where, found, together)
                check(where, found.slurm[known:])
    known = len(found.slurm)
    _translate_together(together, found)
    check(path, found.slurm[known:])
    if "#SBATCH" in text:
        for name in sorted(set(re.findall(r"\$\{?(SLURM_[A-Z_]+)", text))):
            ours = f" (${OURS[name]} is its like)" if name in OURS else ""
            found.passed_over.append(f"{path}: ${name}{ours}")
    return found if any(found) else None


def is_script(name: str) -> bool:
    """Whether a command is a script in this folder that the system would not run by this name."""
    return shutil.which(name) is None and _beginning(name).startswith("#!")


def as_program(command: list[str], elsewhere: bool) -> list[str]:
    """A command whose first word is a script: run by what its first line names, where it cannot be executed itself.

    With `elsewhere` it runs in another folder than this one, and its path is whole.
    """
    if elsewhere:
        command = [str(Path(command[0]).absolute()), *command[1:]]
    if os.access(command[0], os.X_OK):
        path = command[0]
        return [path if "/" in path else f"./{path}", *command[1:]]
    first = _beginning(command[0]).partition("\n")[0]
    return [*(_words(first[2:], f"{command[0]}:1: #!") if first.startswith("#!") else ["sh"]), *command]


def _beginning(path: str) -> str:
    """What a file begins with; nothing where there is none that can be read, or what would be waited for, as a pipe."""
    try:
        if not Path(path).is_file():
            return ""
        with Path(path).open("rb") as file:
            return file.read(MOST_READ).decode("utf-8", "replace")
    except OSError:
        return ""


def _words(text: str, where: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise Failure(f"{where}: {str(error).lower()}") from None


Together = dict[str, tuple[str, str]]
"""By name, options that mean something together only: the value, and where it stands, as it is written."""
TOGETHER = (
    "--cpus-per-task", "--ntasks", "--ntasks-per-node", "--mem-per-cpu", "--mem", "--partition", "--account", "--mail-user",
    "--mail-type",
)  # fmt: skip


def _translate(words: list[str], where: str, found: ScriptOptions, together: Together) -> None:
    """Slurm's options of one line as ours; those that others of another line change are put together."""
    for name, value in _slurm_options(words):
        if name in TOGETHER:
            together[name] = value, f"{where} {name}{f'={value}' if value else ''}"
            continue
        try:
            ours = _ours(name, value)
        except Failure as failure:
            raise Failure(f"{where} {failure}") from None
        if ours is None:
            like = f" ({LIKE[name]} is its like)" if name in LIKE else ""
            found.passed_over.append(f"{where} {name}{f'={value}' if value else ''}{like}")
        else:
            found.slurm.extend(ours)


LIKE = {"--constraint": "--on LABEL=VALUE"}
"""What has a counterpart here that cannot be told from it: which label a feature is of, to begin with."""


def _translate_together(said: Together, found: ScriptOptions) -> None:
    """What options come to together, the last of each."""
    text = {name: value for name, (value, _) in said.items()}

    def pass_over(name: str, why: str = "") -> None:
        found.passed_over.append(said[name][1] + why)

    cpus = 1
    for name in ("--cpus-per-task", "--ntasks", "--ntasks-per-node"):
        if name in text and not re.fullmatch("[0-9]{1,9}", text[name]):
            pass_over(name)
            del text[name]
    if "--ntasks" in text:
        text.pop("--ntasks-per-node", None)  # no more than a bound on it then
    for name in ("--cpus-per-task", "--ntasks", "--ntasks-per-node"):
        cpus *= int(text.get(name, 1))
    if any(name in text for name in ("--cpus-per-task", "--ntasks", "--ntasks-per-node")):
        found.slurm.extend(["--cpu", str(cpus)])
    for name, times in (("--mem", 1), ("--mem-per-cpu", cpus)):
        if name in text:
            ours = _memory(text[name], times)
            if ours is None or (name == "--mem-per-cpu" and "--mem" in text):
                pass_over(name)
            else:
                found.slurm.extend(ours)
    if "--account" in text and "--partition" in text:
        pass_over("--partition", " (--account says which queue)")
    if queue := text.get("--account") or text.get("--partition"):
        found.slurm.extend(["--queue", queue])
    _translate_mail(text, pass_over, found)


def _translate_mail(text: dict[str, str], pass_over: Callable[[str, str], None], found: ScriptOptions) -> None:
    """Whom Slurm would tell, and when: here they are told when it has ended, however."""
    kinds = set(text.get("--mail-type", "NONE").upper().split(","))
    at_end = kinds & {"END", "FAIL", "ALL"}
    if "--mail-user" in text:
        try:
            kind_of(text["--mail-user"])
            wrong = "" if at_end else " (without --mail-type=END nobody is told of an end)"
        except NotTold as error:
            wrong = f" ({error})"
        if wrong:
            pass_over("--mail-user", wrong)
        else:
            found.slurm.extend(["--notify", text["--mail-user"]])
    if "--mail-type" in text and (kinds - {"END", "ALL", "NONE"} or (at_end and "--mail-user" not in text)):
        pass_over("--mail-type", " (--notify TO tells when it has ended, however)")


_LONG = {
    "-J": "--job-name", "-p": "--partition", "-A": "--account", "-c": "--cpus-per-task", "-t": "--time", "-a": "--array",
    "-G": "--gpus", "-d": "--dependency", "-C": "--constraint", "-D": "--chdir", "-H": "--hold", "-n": "--ntasks",
    "-N": "--nodes", "-o": "--output", "-e": "--error", "--gpus-per-node": "--gpus", "--gpus-per-task": "--gpus",
}  # fmt: skip
_FLAGS = ("--hold", "--requeue", "--no-requeue", "--exclusive", "--nice")


def _slurm_options(words: list[str]) -> Iterator[tuple[str, str]]:
    words = list(words)
    while words:
        word = words.pop(0)
        name, _, value = word.partition("=")
        if re.fullmatch(r"-\w.+", word):  # -c4
            name, value = word[:2], word[2:].removeprefix("=")
        name = _LONG.get(name, name)
        if not value and name not in _FLAGS and words and not words[0].startswith("-"):
            value = words.pop(0)
        yield name, value


def _ours(name: str, value: str) -> list[str] | None:
    """One of Slurm's options as ours; None where it means nothing here."""
    match name:
        case "--job-name":
            return ["--name", value]
        case "--time":
            return _time(value)
        case "--array":
            return _array(value)
        case "--gres":
            return ["--gpu", value.partition(":")[2] or "1"] if re.fullmatch("gpu(:[0-9]{1,9})?", value) else None
        case "--gpus":
            return ["--gpu", value] if re.fullmatch("[0-9]{1,9}", value) else None
        case "--priority" | "--nice":
            number = value or "100"
            if not re.fullmatch("-?[0-9]{1,6}", number):
                return None
            return ["--priority", str(int(number) if name == "--priority" else -int(number))]
        case "--requeue":
            return []  # a task whose node is lost, or that is stopped to make room, starts again anyway
        case "--dependency":
            return [word for part in value.split(",") for word in _dependency(part)]
        case "--chdir":
            return ["--cwd", value]
        case "--hold":
            return ["--hold"]
        case "--nodes":
            return [] if value in ("1", "1-1") else None
    return None


def _dependency(text: str) -> list[str]:
    """One of Slurm's dependencies as ours; a Failure where it has no counterpart, for a job that must wait is not let go."""
    kind, _, jobs = text.partition(":")
    how = {"afterok": "", "afternotok": ":failure", "afterany": ":end"}.get(kind)
    if how is None or not all(re.fullmatch("[0-9]{1,15}", job) for job in jobs.split(":")):
        raise Failure(
            f"--dependency={text}: has no counterpart here: write afterok, afternotok or afterany with jobs' numbers"
        )
    return [word for job in jobs.split(":") for word in ("--after", f"{job}{how}")]


def _memory(value: str, times: int) -> list[str] | None:
    match = re.fullmatch(r"([0-9]+)([KMGT]?)B?", value, re.IGNORECASE)
    if match is None or int(match[1]) == 0:  # 0 is all of a node's there
        return None
    return ["--memory", f"{int(match[1]) * times}{match[2].upper() or 'M'}i"]


def _time(value: str) -> list[str] | None:
    """``minutes``, ``minutes:seconds``, ``hours:minutes:seconds``, ``days-hours[:minutes[:seconds]]``."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", value, re.ASCII)
    if match is None:
        return None
    days, *rest = (int(part) if part is not None else None for part in match.groups())
    parts = [part for part in rest if part is not None]
    if days is not None:
        hours, minutes, seconds = [*parts, 0, 0][:3]
    else:
        hours, minutes, seconds = (parts if len(parts) == 3 else [0, *parts, 0])[:3]
    total = (((days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
    return ["--time-limit", f"{total}s"] if total else None


def _array(value: str) -> list[str]:
    """An array of Slurm's; a Failure where it does not begin at 0, for one task alone would do something else."""
    match = re.fullmatch(r"0-([0-9]{1,8})(?:%([0-9]{1,8}))?", value)
    if match is None:
        raise Failure(
            f"--array={value}: has no counterpart here: tasks are counted from 0: write such as 0-99, or 0-99%4"
        )
    return ["--tasks", str(int(match[1]) + 1), *(["--at-most", match[2]] if match[2] else [])]

"""Options in a script: `#FAIRLEAD --cpu 2`, and Slurm's `#SBATCH` lines.

`#SBATCH` options with an equivalent here are used; others are refused or ignored with a warning. All must come before the first
command, at the beginning of their lines.
"""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from fairlead.cli.failure import Failure
from fairlead.client.notify import NotifyError, kind_of

MOST_READ = 65536
"""Bytes of a script that are read for options."""
EQUIVALENTS = {
    "SLURM_ARRAY_TASK_ID": "FAIRLEAD_INDEX", "SLURM_JOB_ID": "FAIRLEAD_JOB", "SLURM_JOBID": "FAIRLEAD_JOB",
    "SLURM_CPUS_PER_TASK": "FAIRLEAD_CPU", "SLURM_RESTART_COUNT": "FAIRLEAD_NUMBER",
}  # fmt: skip
"""Slurm's environment variables of a task, and their equivalents."""


Check = Callable[[str, list[str]], None]
"""Takes a place and the options there, translated; raises Failure if one is invalid."""


class ScriptOptions(NamedTuple):
    """Options of a script: those translated from Slurm's, our own, and the places of ignored ones."""

    slurm: list[str]
    own: list[str]
    ignored: list[str]


def script_options(path: str, check: Check = lambda where, words: None) -> ScriptOptions | None:
    """Read the options of a script; None if the file is no script or has none. `check` is called for each line."""
    text = _beginning(path)
    found, combined = ScriptOptions([], [], []), Combined()
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
                _translate(words, where, found, combined)
                check(where, found.slurm[known:])
    known = len(found.slurm)
    _translate_combined(combined, found)
    check(path, found.slurm[known:])
    if "#SBATCH" in text:
        for name in sorted(set(re.findall(r"\$\{?(SLURM_[A-Z_]+)", text))):
            hint = f" (use ${EQUIVALENTS[name]})" if name in EQUIVALENTS else ""
            found.ignored.append(f"{path}: ${name}{hint}")
    return found if any(found) else None


def is_script(name: str) -> bool:
    """Return True if a command names a script of this folder that is not on PATH."""
    return shutil.which(name) is None and _beginning(name).startswith("#!")


def as_program(command: list[str], elsewhere: bool) -> list[str]:
    """Return the command that runs a script: through its interpreter if it is not executable.

    With `elsewhere` it runs in another folder, so its path is made absolute.
    """
    if elsewhere:
        command = [str(Path(command[0]).absolute()), *command[1:]]
    if os.access(command[0], os.X_OK):
        path = command[0]
        return [path if "/" in path else f"./{path}", *command[1:]]
    first = _beginning(command[0]).partition("\n")[0]
    return [*(_words(first[2:], f"{command[0]}:1: #!") if first.startswith("#!") else ["sh"]), *command]


def _beginning(path: str) -> str:
    """Read the beginning of a file; empty if it is unreadable or no plain file."""
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


Combined = dict[str, tuple[str, str]]
"""Options that are translated together, by name: the value, and the place with the option as written."""
COMBINED = (
    "--cpus-per-task", "--ntasks", "--ntasks-per-node", "--mem-per-cpu", "--mem", "--partition", "--account", "--mail-user",
    "--mail-type",
)  # fmt: skip


def _translate(words: list[str], where: str, found: ScriptOptions, combined: Combined) -> None:
    """Translate Slurm's options of one line; collect in `combined` those that depend on others."""
    for name, value in _slurm_options(words):
        if name in COMBINED:
            combined[name] = value, f"{where} {name}{f'={value}' if value else ''}"
            continue
        try:
            ours = _ours(name, value)
        except Failure as failure:
            raise Failure(f"{where} {failure}") from None
        if ours is None:
            hint = f" (use {HINTS[name]})" if name in HINTS else ""
            found.ignored.append(f"{where} {name}{f'={value}' if value else ''}{hint}")
        else:
            found.slurm.extend(ours)


HINTS = {"--constraint": "--on LABEL=VALUE"}
"""Equivalents that cannot be derived from the option's value."""


def _translate_combined(combined: Combined, found: ScriptOptions) -> None:
    """Translate the options of `COMBINED`, the last of each name."""
    text = {name: value for name, (value, _) in combined.items()}

    def ignore(name: str, why: str = "") -> None:
        found.ignored.append(combined[name][1] + why)

    cpus = 1
    for name in ("--cpus-per-task", "--ntasks", "--ntasks-per-node"):
        if name in text and not re.fullmatch("[0-9]{1,9}", text[name]):
            ignore(name)
            del text[name]
    if "--ntasks" in text:
        text.pop("--ntasks-per-node", None)  # with --ntasks it is only an upper bound
    for name in ("--cpus-per-task", "--ntasks", "--ntasks-per-node"):
        cpus *= int(text.get(name, 1))
    if any(name in text for name in ("--cpus-per-task", "--ntasks", "--ntasks-per-node")):
        found.slurm.extend(["--cpu", str(cpus)])
    for name, times in (("--mem", 1), ("--mem-per-cpu", cpus)):
        if name in text:
            ours = _memory(text[name], times)
            if ours is None or (name == "--mem-per-cpu" and "--mem" in text):
                ignore(name)
            else:
                found.slurm.extend(ours)
    if "--account" in text and "--partition" in text:
        ignore("--partition", " (--account names the queue)")
    if queue := text.get("--account") or text.get("--partition"):
        found.slurm.extend(["--queue", queue])
    _translate_mail(text, ignore, found)


def _translate_mail(text: dict[str, str], ignore: Callable[[str, str], None], found: ScriptOptions) -> None:
    """Translate Slurm's mail options; --notify reports every end of a job."""
    kinds = set(text.get("--mail-type", "NONE").upper().split(","))
    at_end = kinds & {"END", "FAIL", "ALL"}
    if "--mail-user" in text:
        try:
            kind_of(text["--mail-user"])
            wrong = "" if at_end else " (without --mail-type=END there is no notification)"
        except NotifyError as error:
            wrong = f" ({error})"
        if wrong:
            ignore("--mail-user", wrong)
        else:
            found.slurm.extend(["--notify", text["--mail-user"]])
    if "--mail-type" in text and (kinds - {"END", "ALL", "NONE"} or (at_end and "--mail-user" not in text)):
        ignore("--mail-type", " (--notify TO reports every end)")


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
    """Translate one of Slurm's options; None if it has no equivalent."""
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
            return []  # tasks of lost nodes and preempted tasks start again by default
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
    """Translate a dependency. Raises Failure for an unknown one: ignoring it would start the job too early."""
    kind, _, jobs = text.partition(":")
    how = {"afterok": "", "afternotok": ":failure", "afterany": ":end"}.get(kind)
    if how is None or not all(re.fullmatch("[0-9]{1,15}", job) for job in jobs.split(":")):
        raise Failure(f"--dependency={text}: has no equivalent here: write afterok, afternotok or afterany with job numbers")
    return [word for job in jobs.split(":") for word in ("--after", f"{job}{how}")]


def _memory(value: str, times: int) -> list[str] | None:
    match = re.fullmatch(r"([0-9]+)([KMGT]?)B?", value, re.IGNORECASE)
    if match is None or int(match[1]) == 0:  # 0 means all of the node's memory in Slurm
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
    """Translate a job array. Raises Failure unless it begins at 0: other indices would change what tasks do."""
    match = re.fullmatch(r"0-([0-9]{1,8})(?:%([0-9]{1,8}))?", value)
    if match is None:
        raise Failure(f"--array={value}: has no equivalent here: indices start at 0: write 0-99 or 0-99%4")
    return ["--tasks", str(int(match[1]) + 1), *(["--at-most", match[2]] if match[2] else [])]

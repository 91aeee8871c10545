"""Options in a script: `#FAIRLEAD --cpu 2`, and Slurm's `#SBATCH` lines.

`#SBATCH` options are translated, refused, or reported as without effect here. All must come before the first command, at the
beginning of their lines.
"""

import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fairlead.cli import slurm_options
from fairlead.failure import Failure

MOST_READ = 65536
"""Bytes of a script that are read for options."""
Check = Callable[[str, list[str]], None]
"""Takes a place and the options there, translated; raises Failure if one is invalid."""


class ScriptOptions(NamedTuple):
    """Options of a script: those translated from Slurm's, our own, warnings, and Slurm's; the last is None without its lines."""

    slurm: list[str]
    own: list[str]
    warnings: list[str]
    given: slurm_options.Options | None


def script_options(
    path: str, check: Check = lambda where, words: None, labels: slurm_options.Labels = lambda: []
) -> ScriptOptions | None:
    """Read the options of a script; None if the file is no script or has none.

    `check` is called for each option, and `labels` if one names a kind of node.
    """
    text = beginning(path)
    given: slurm_options.Options = {}
    found = ScriptOptions([], [], [], given)
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            break
        mark, *after = line.split(None, 1) or [""]
        if mark in ("#FAIRLEAD", "#SBATCH"):
            where = f"{path}:{number}: {mark}"
            words = _words("".join(after), where)
            if mark == "#FAIRLEAD":
                check(where, words)
                found.own.extend(words)
            else:
                slurm_options.read_line(words, where, given)
    if not re.search(r"^#SBATCH\s", text, re.MULTILINE):
        return found._replace(given=None) if found.own else None
    if "job-name" not in given:
        found.slurm.extend(["--name", Path(path).name])
    if "export" not in given:  # as sbatch does
        found.slurm.append("--export-all")
    for where, ours in slurm_options.translate(given, labels, found.warnings.append):
        check(where, ours)
        found.slurm.extend(ours)
    return found


def is_script(name: str) -> bool:
    """Return True if a command names a script of this folder that is not on PATH."""
    return shutil.which(name) is None and beginning(name).startswith("#!")


def as_program(command: list[str], elsewhere: bool) -> list[str]:
    """Return the command that runs a script: through its interpreter if it is not executable.

    With `elsewhere` it runs in another folder, so its path is made absolute.
    """
    if elsewhere:
        command = [str(Path(command[0]).absolute()), *command[1:]]
    if os.access(command[0], os.X_OK):
        path = command[0]
        return [path if "/" in path else f"./{path}", *command[1:]]
    return [*_interpreter(command[0]), *command]


def shell_of(path: str) -> str:
    """Return the shell that a script is for; sh for others."""
    words = _interpreter(path)
    program = words[1] if Path(words[0]).name == "env" and len(words) > 1 else words[0]
    return program if Path(program).name in ("sh", "bash", "dash", "ksh") else "sh"


def _interpreter(path: str) -> list[str]:
    first = beginning(path).partition("\n")[0]
    return (_words(first[2:], f"{path}:1: #!") if first.startswith("#!") else []) or ["sh"]


def beginning(path: str) -> str:
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

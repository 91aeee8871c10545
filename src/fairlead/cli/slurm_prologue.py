"""What a script with `#SBATCH` lines runs in: Slurm's variables, its output files, and `srun` for one process.

The job's command is a shell that evaluates these lines, which end by executing the script. They are in a variable, so that lists
of jobs show the script and not them.
"""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairlead.cli.slurm_options import Given, Options, count, is_bare, nodes, tasks
from fairlead.client.environment import NEEDED
from fairlead.failure import Failure
from fairlead.model.ranges import read_array

VARIABLE = "FAIRLEAD_PROLOGUE"
KEPT = ("PATH", "LANG", "LANGUAGE", "TERM", "COLORTERM", "TZ", "SHELL")
"""Variables that are sent, and stay with --export=NONE; the profile sets PATH again."""
PATTERNS = {
    "A": "$FAIRLEAD_JOB", "J": "$SLURM_JOB_ID", "N": "$SLURMD_NODENAME", "a": "$FAIRLEAD_INDEX",
    "b": "$((FAIRLEAD_INDEX % 10))", "j": "$SLURM_JOB_ID", "n": "0", "s": "batch", "t": "0", "u": "$(id -un)",
    "x": "$SLURM_JOB_NAME",
}  # fmt: skip
"""What Slurm's patterns in file names come to."""
COMMAND = r"^(?![ \t]*#)(?:.*?(?:[;&|(`]|\b(?:then|do|else|time)[ \t]))?[ \t]*({})(?![\w=.-])(.*)$"
"""Matches the lines of a script with a command in its place."""


def check_body(path: str, text: str, options: Options, command: list[str], prologue: str) -> list[str]:
    """Return warnings about the commands and the variables of a script that :func:`wrapped` does not provide.

    Raises Failure where `srun` would start several processes, or is not provided.
    """
    found, several_nodes = [], nodes(options) > 1
    if several_nodes and not re.search(COMMAND.format("srun"), text, re.MULTILINE):
        raise Failure(f"{options['nodes'].where}: only srun starts something on the other nodes, and it has none: use --nodes=1")
    for match in re.finditer(COMMAND.format("srun"), text, re.MULTILINE):
        where, several = f"{path}:{text.count(chr(10), 0, match.start()) + 1}: srun", tasks(options) > 1
        if several and not re.search(r"\s(-n ?1|--ntasks[= ]1)(?!\S)", match[2]):
            n = tasks(options)
            raise Failure(
                f"{where}: would start {n} processes, and starts one here: use mpirun -n {n}, torchrun --nproc-per-node {n}, "
                f"or --cpus-per-task={n} for one process"
            )
        for number in re.findall(r"\s(?:-[nN] ?|--ntasks[= ]|--nodes[= ])([0-9]+)", match[2]) if several_nodes else ():
            if int(number) != nodes(options):
                message = f"{where}: would start on {number} of the nodes, and starts on each here: omit it, or use --nodes=1"
                raise Failure(message)
        if Path(command[0]).name != "bash":
            raise Failure(f"{where}: only scripts of bash have it here: omit it, or begin with #!/bin/bash")
    others = COMMAND.format(r"scontrol(?!\s+show\s+hostname)|squeue|sacct|sbatch|scancel|sinfo|sstat")
    for match in re.finditer(others, text, re.MULTILINE):
        found.append(f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match[1]}: is no command here")
    for name in sorted({*re.findall(r"\$\{?(SLURM\w+)", text)} - {*re.findall(r"SLURM\w+", prologue)}):
        found.append(f"{path}: ${name}: is not set here")
    return found


def wrapped(command: list[str], shell: str, options: Options, job: Mapping[str, Any]) -> tuple[list[str], str]:
    """Return the command that runs a script as under Slurm, and what its variable has."""
    lines = ["export " + " ".join(f"{name}={shlex.quote(str(value))}" for name, value in _known(options, job).items())]
    lines.append(Path(__file__).with_suffix(".sh").read_text("utf-8"))
    if "no-requeue" in options:
        lines.append('[ "$FAIRLEAD_NUMBER" = 1 ] || { echo "fairlead: not started again: --no-requeue" >&2; exit 1; }')
    if "export" in options and is_bare(options["export"].value):
        sent = [name for name in NEEDED if name not in KEPT and "*" not in name]
        lines.append(f"unset {' '.join(sent)}; PATH=/usr/local/bin:/usr/bin:/bin; [ ! -r /etc/profile ] || . /etc/profile")
    return [shell, "-c", f'eval "${VARIABLE}"', "sbatch", *command], "\n".join([*lines, *_files(options), 'exec "$@"'])


def _known(options: Options, job: Mapping[str, Any]) -> dict[str, Any]:
    n, each = nodes(options), tasks(options)
    found = {
        "JOB_NAME": job["name"], "SUBMIT_DIR": Path.cwd(), "NTASKS": n * each, "NPROCS": n * each, "NNODES": n,
        "JOB_NUM_NODES": n, "TASKS_PER_NODE": f"{each}(x{n})" if n > 1 else each, "LOCALID": 0, "CLUSTER_NAME": "fairlead",
    }  # fmt: skip
    for name, option in (("JOB_PARTITION", "partition"), ("JOB_ACCOUNT", "account"), ("JOB_QOS", "qos")):
        found[name] = options[option].value if option in options else job["queue"] or ""
    if "ntasks-per-node" in options:
        found["NTASKS_PER_NODE"] = count(options, "ntasks-per-node")
    if job["gpu"] not in ("0", 0):
        found |= {"GPUS": job["gpu"], "GPUS_ON_NODE": job["gpu"]}
    indices = range(job["tasks"] or 0) if job["array"] is None else read_array(job["array"])
    if indices:
        found |= {"ARRAY_TASK_COUNT": len(indices), "ARRAY_TASK_MIN": indices[0], "ARRAY_TASK_MAX": indices[-1]}
    return {f"SLURM_{name}": value for name, value in found.items()}


def _files(options: Options) -> list[str]:
    """Return the lines that open a script's files. Raises Failure for an unknown pattern."""
    lines, paths = [], {name: _path(options, name) for name in ("input", "output", "error") if name in options}
    appends = nodes(options) > 1 or options.get("open-mode", Given("", "")).value.lower().startswith("a")
    to = ">>" if appends else ">"
    for name, path in paths.items():
        if name != "input":
            lines.append(f'echo "fairlead: {name} goes to" {path} {">&2" * (name == "error")}')
    if "input" in paths:
        lines.append(f"exec < {paths['input']} || exit 1")
    if "output" in paths:
        lines.append(f"exec {to} {paths['output']} || exit 1")
        if paths.get("error", paths["output"]) == paths["output"]:
            lines.append("exec 2>&1")
    if "error" in paths and paths["error"] != paths.get("output"):
        lines.append(f"exec 2{to} {paths['error']} || exit 1")
    return lines


def _path(options: Options, name: str) -> str:
    """Return a file name with Slurm's patterns as a word of a shell."""
    value, where = options[name]
    found = []
    for piece in re.split(r"(%%|%[0-9]*[A-Za-z])", value):
        if piece == "%%" or not re.fullmatch("%[0-9]*[A-Za-z]", piece):
            found.append(shlex.quote(piece.replace("%%", "%")) if piece else "")
            continue
        if piece[-1] not in PATTERNS:
            raise Failure(f"{where}: {piece}: unknown pattern: the known ones are {', '.join(f'%{key}' for key in PATTERNS)}")
        text = f'"{PATTERNS[piece[-1]]}"'
        found.append(f'"$(printf %0{piece[1:-1]}d {text})"' if piece[1:-1] and piece[-1] in "AJabjnt" else text)
    return "".join(found)

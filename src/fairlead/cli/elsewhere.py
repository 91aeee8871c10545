"""What people type who know Slurm, PBS, GNU parallel, HyperQueue or the shell: the commands and options for it here."""

import sys
from typing import Any

from fairlead.cli.slurm_options import KNOWN, REFUSED, WITHOUT_EFFECT

_COMMANDS = {
    "jobs": "squeue sacct qstat ps ls list status queue", "submit": "sbatch qsub bsub batch", "run": "srun",
    "submit -- COMMAND ::: WORDS": "parallel xargs map", "run --pty -- bash": "salloc shell", "cancel": "scancel qdel kill rm",
    "job": "seff scontrol show info task", "nodes": "sinfo", "queues": "sshare", "why": "sprio", "usage": "sreport history",
    "logs": "output cat tail", "up": "start serve server", "down": "shutdown", "node join": "worker join", "rerun": "retry",
    "edit": "update", "exec": "attach sattach ssh", "top": "dashboard", "page": "web",
    "--help": "help", "--version": "version",
}  # fmt: skip
_OPTIONS = {
    "--cpu": "-c --cpus --cpus-per-task --cores --ncpus --num-cpus", "--memory": "--mem --ram --mem-limit --memory-limit",
    "--nodes": "-N", "--memory for all CPUs of a task together": "--mem-per-cpu",
    "--cpu for all of them in one task, or --tasks to start the command that many times": "--ntasks",
    "--status": "-s --state",
    "--gpu": "-G --gpus --gres --gpus-per-node --gpus-per-task --num-gpus", "--array": "-a",
    "--queue": "-p --partition -A --account", "--name": "-J --job-name", "--tasks": "-n",
    "--time-limit": "-t --time --timeout --walltime --time-request --timelimit --max-time --runtime --max-runtime --duration",
    "--at-most": "-j --max-procs", "--after": "-d --dependency", "--begin": "-b", "--cwd": "-D --chdir --workdir",
    "--on": "-w --nodelist -C --constraint", "--hold": "-H", "--priority with the opposite sign": "--nice",
    "--export-all for ALL, or --env NAME": "--export", "--retries": "--crash-limit --retry --max-retries",
    "--retries for a task that fails: one that is lost or preempted always starts again": "--requeue",
    "--notify": "--mail-user", "--notify-on": "--mail-type",
    "--when": "--dry-run --test-only", "--jobs FILE": "--from-json", "-- COMMAND :::: FILE": "--each-line --arg-file",
    "-- sh -c 'COMMAND'": "--wrap", "`fairlead wait` after it": "--wait --progress --bar --eta -W",
    "`fairlead logs`, or > FILE in a command for sh -c": "-o --output -e --error --stdout --stderr --results --log",
}  # fmt: skip


def command_for(word: str) -> str | None:
    """Return the command here for one of another system."""
    return next((ours for ours, theirs in _COMMANDS.items() if word in theirs.split()), None)


def add_hint(error: Any) -> None:
    """Say in an error about an unknown option what is written here for it."""
    option = getattr(error, "option_name", None)
    if option is None or error.ctx is None:
        return
    command = error.ctx.command
    ours = next((ours for ours, theirs in _OPTIONS.items() if option in theirs.split()), option)
    known = _options_of(command)
    word, theirs, hint = ours.split()[0], option.lstrip("-"), ""
    if word in known or (word in ("`fairlead", "--") and command.name in ("submit", "run")):
        hint = f": write {ours}"
    elif command.name == "run" and word in _options_of(error.ctx.find_root().command.get_command(error.ctx, "submit")):
        hint = f": `fairlead submit` has {word}"
    elif command.name in ("submit", "run") and theirs in {*WITHOUT_EFFECT, "immediate"}:
        hint = ": omit it: it has no effect here"
    elif command.name in ("submit", "run") and theirs in KNOWN:
        hint = f": {REFUSED.get(theirs, 'is of Slurm: see docs/slurm.md').replace('#FAIRLEAD ', '')}"
    if command.name in ("submit", "run") and _is_of_command(option, command):
        hint += "; if it is an option of your command, write -- before that"
    if hint:
        error.message, error.possibilities = f"{error.message}{hint}", None


def _is_of_command(option: str, command: Any) -> bool:
    """True if the option comes after a word that is neither an option nor the value of one, and no ``--`` is before it."""
    takes = {name for param in command.params if not getattr(param, "is_flag", True) for name in param.opts}
    words = iter(sys.argv[sys.argv.index(command.name) + 1 :] if command.name in sys.argv else [])
    for word in words:
        if word in takes:
            next(words, None)
        elif word == "--" or word.startswith(option):
            return False
        elif not word.startswith("-"):
            return any(word.startswith(option) for word in words)
    return False


def _options_of(command: Any) -> set[str]:
    return {each for param in command.params for each in param.opts}

"""`fairlead`: what each command is called, what it takes, and what it prints. What it does is elsewhere.

Nothing heavy is imported up here: a client answers at once.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import fairlead

if TYPE_CHECKING:
    from fairlead.client.connection import Connection

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run many people's work on shared machines, fairly: by Dominant Resource Fairness.\n\n"
    "Start a scheduler with `fairlead up`; then, from any terminal, `fairlead run -- COMMAND`.",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
JobId = Annotated[int, typer.Argument(help="The job's number, as `fairlead jobs` shows it.", metavar="JOB")]
Command = Annotated[
    list[str],
    typer.Argument(help="The command and its arguments, after `--`.", metavar="-- COMMAND [ARG]..."),
]
QueueName = Annotated[
    str | None, typer.Option("--queue", "-q", help="The queue, such as lab/vision. Default: your own.")
]
Cpu = Annotated[str, typer.Option(help="CPUs of each task: 1, 0.5, 500m.")]
Memory = Annotated[str, typer.Option(help="Memory of each task: 512Mi, 4Gi. A task that uses more is killed.")]
Gpu = Annotated[str, typer.Option(help="GPUs of each task; given by index, as CUDA_VISIBLE_DEVICES.")]
Resource = Annotated[
    list[str],
    typer.Option(help="Any other resource, as NAME=QUANTITY; repeat for more.", metavar="NAME=QUANTITY"),
]
Name = Annotated[str, typer.Option(help="A name for the job, to find it again.")]
Priority = Annotated[int, typer.Option(help="Higher goes first, within its queue.")]
On = Annotated[
    list[str],
    typer.Option(help="Only on nodes with this label; several values: zone=a|b.", metavar="LABEL=VALUE"),
]
Env = Annotated[
    list[str], typer.Option(help="Set a variable, over this terminal's environment.", metavar="NAME=VALUE")
]
    import getpass

    demand: dict[str, str] = {"cpu": cpu, "memory": memory, "gpu": gpu, **_pairs("--resource", resource)}
    return {
        "argv": command,
        "cwd": str(Path.cwd()),
        "env": {**os.environ, **_pairs("--env", env)},
        "demand": {resource: quantity for resource, quantity in demand.items() if quantity != "0"},
        "queue": queue,
        "user": getpass.getuser(),
        "name": name,
        "tasks": tasks,
        "priority": priority,
        "gang": gang,
        "on": {label: value.split("|") for label, value in _pairs("--on", on).items()},
    }


def _pairs(option: str, values: list[str]) -> dict[str, str]:
    wrong = [value for value in values if not value.partition("=")[0] or "=" not in value]
    if wrong:
        raise Failure(f"{option} {wrong[0]!r}: write NAME=VALUE")
    return {name: value for name, _, value in (pair.partition("=") for pair in values)}


def _reason(task: dict[str, Any]) -> str:
    if task["reason"] == "out of memory":
        return "killed for using more memory than it asked for: ask for more with --memory"
    if task["reason"] == "signalled":
        return f"ended by signal {task['exit'] - 128}"
    return str(task["reason"])


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def main() -> None:
    """Run the command line. Whatever is wrong with what was asked is told in one line; exit status 1, or 2 for usage."""
    from fairlead.client.connection import ServiceError

    try:
        app()
    except (Failure, ServiceError) as error:
        print(f"fairlead: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:  # the reader of our output had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        sys.exit(130)

"""`fairlead`: the command line. :mod:`fairlead.cli.commands` has the commands; only the one that is asked for is imported."""

import os
import sys
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command

import fairlead
from fairlead.cli import parsing
from fairlead.cli.job_options import seconds
from fairlead.cli.streams import safe_streams
from fairlead.client.service_error import ServiceError
from fairlead.failure import Failure
from fairlead.interrupts import handle_interrupts
from fairlead.plain_text import plain_lines

COMMANDS = {
    "up": ("cluster", "Start the scheduler, in the foreground."),
    "submit": ("jobs", "Submit a job and print its number."),
    "run": ("jobs", "Run a command as a job and wait for it, as if it ran here."),
    "exec": ("jobs", "Run a command inside a running task, as its account."),
    "jobs": ("selected_jobs", "List the newest jobs, newest first."),
    "logs": ("selected_jobs", "Print the output of tasks."),
    "fetch": ("jobs", "Fetch the files that came back from a job."),
    "cancel": ("selected_jobs", "Cancel jobs, some tasks of a job, or all jobs of a queue, name or group."),
    "job": ("jobs", "Show one job and its tasks."),
    "wait": ("selected_jobs", "Wait until jobs have ended."),
    "why": ("jobs", "Explain why a job is waiting, and when it should start."),
    "when": ("jobs", "Estimate when a job would start if it were submitted now."),
    "hold": ("selected_jobs", "Keep the waiting tasks of jobs from starting."),
    "release": ("selected_jobs", "Release held jobs."),
    "edit": ("jobs", "Change what a job asks for."),
    "rerun": ("selected_jobs", "Submit jobs again and print the new jobs' numbers."),
    "checkpointed": ("jobs", "Report, from inside a task, that its progress is saved."),
    "drain": ("cluster", "Let a node, or some of its cards, finish their tasks and take no new ones."),
    "resume": ("cluster", "Let a drained node, or drained cards of it, take tasks again."),
    "forget": ("cluster", "Forget a lost node."),
    "reload": ("cluster", "Reload the scheduler's configuration file."),
    "queues": ("cluster", "Show the queues: usage, shares and limits."),
    "nodes": ("cluster", "Show the nodes: capacity and usage."),
    "node": ("nodes", "Let other machines join, and join with this one."),
    "frameworks": ("cluster", "Show the frameworks that take offers."),
    "usage": ("cluster", "Report resource usage by user, queue, job, day or week."),
    "top": ("cluster", "Watch the cluster on a full screen."),
    "page": ("cluster", "Open the scheduler's page in a browser, signed in as you."),
    "log": ("people", "Show the audit log: who did what, newest last."),
    "doctor": ("cluster", "Check the scheduler and this machine, and suggest remedies."),
    "down": ("cluster", "Stop the scheduler after its running tasks have ended."),
    "allocate": ("fairness", "Compute fair allocations of a problem, side by side."),
    "policies": ("fairness", "List the policies."),
    "audit": ("fairness", "Check whether an allocation is fair."),
    "properties": ("fairness", "Show which policy has which fairness property."),
    "simulate": ("traces", "Replay a trace and compare policies."),
    "sweep": ("traces", "Simulate a grid: policies x configurations x loads x machines x seeds."),
    "diff": ("configuration", "Show who gains or loses from a configuration change."),
    "token": ("people", "Make, list and revoke access tokens for remote users."),
    "service": ("people", "Install or remove the scheduler as a systemd service."),
    "journal": ("journal", "Check, repair, adopt or roll back a journal."),
    "import": ("configuration", "Convert another system's configuration to fairlead.toml."),
}
"""In the order of `fairlead --help`: the module of each command, and the first sentence of its help."""


class _Group(TyperGroup):
    """`fairlead` itself: lists its commands without importing them, and builds one on first use."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS and self.commands[cmd_name] is None:
            module = import_module(f"fairlead.cli.commands.{COMMANDS[cmd_name][0]}")
            declared = getattr(module, f"{cmd_name}_" if cmd_name in ("import", "exec") else cmd_name)
            self.commands[cmd_name] = parsing.build(cmd_name, declared)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in COMMANDS:
            from fairlead.cli.elsewhere import command_for

            if (ours := command_for(args[0])) is not None:
                ctx.fail(f"No such command '{args[0]}': write fairlead {ours}")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **more: Any) -> NoReturn:
        """Run a command line. Wrong usage is one line, like any other error."""
        try:
            code = super().main(*args, **{**more, "standalone_mode": False})
        except parsing.USAGE as error:
            from fairlead.cli.elsewhere import add_hint

            add_hint(error)
            said = error.format_message().rstrip(".")
            if "\n" in said:  # the help, of a group without a command
                error.show()
                sys.exit(2)
            see = f"{' See' if said.endswith('?') else '; see'} `{error.ctx.command_path} -h`" if error.ctx else ""
            _fail(f"{said[0].lower()}{said[1:]}{see}", 2)
        sys.exit(code or 0)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": parsing.HELP_OPTIONS},
    help="Run many people's work on shared machines, fairly: by Dominant Resource Fairness.\n\n"
    "Start a scheduler with `fairlead up`; then, from any terminal, `fairlead run -- COMMAND`.",
)


@app.callback(invoke_without_command=True)
def _fairlead(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    url: Annotated[
        str | None,
        typer.Option(help="The scheduler to ask: unix:///path, https://host:port. Default: $FAIRLEAD_URL.", metavar="URL"),
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option(
            help="How long to wait for a scheduler that is starting or restarting. Default: $FAIRLEAD_WAIT, or 10s.",
            metavar="TIME",
        ),
    ] = None,
) -> None:
    if url is not None:
        os.environ["FAIRLEAD_URL"] = url
    if wait is not None:
        seconds("--wait", wait)
        os.environ["FAIRLEAD_WAIT"] = wait
    if version:
        print(f"fairlead {fairlead.__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line. An error is one line on standard error; exit status 1, or 2 for wrong usage."""
    if sys.platform == "win32":
        _fail("fairlead runs on Linux, and this is Windows: use WSL, a Linux within Windows")
    handle_interrupts()
    with safe_streams():
        _run()


def _run() -> None:
    try:
        command = get_command(app)
        parsing.read_values(command)
        command()
    except Failure as error:
        _fail(str(error), error.exit_status)
    except ServiceError as error:
        from fairlead.cli.job_options import with_option_names

        _fail(with_option_names(str(error)), 2 if error.status == 422 else 1)  # 422: whatever the state
    except KeyboardInterrupt:
        sys.exit(130)
    except SystemError as error:  # an interrupt inside compiled code arrives as this
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        sys.exit(130)


def _fail(message: str, code: int = 1) -> NoReturn:
    print(f"fairlead: {plain_lines(message)}", file=sys.stderr)
    sys.exit(code)

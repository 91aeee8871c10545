"""`fairlead`: the command line, put together. What each command takes and does is in :mod:`fairlead.cli.commands`.

Nothing heavy is imported up here: a client answers at once.
"""

import os
import sys
from typing import Annotated

import typer

import fairlead
from fairlead.cli.commands import cluster, configuration, fairness, jobs, journal, people, traces
from fairlead.cli.failure import Failure
from fairlead.cli.option_values import settle
from fairlead.cli.streams import checked_streams
from fairlead.interrupts import heed
from fairlead.plain_text import plain_lines

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run many people's work on shared machines, fairly: by Dominant Resource Fairness.\n\n"
    "Start a scheduler with `fairlead up`; then, from any terminal, `fairlead run -- COMMAND`.",
)


@app.callback(invoke_without_command=True)
def _fairlead(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    url: Annotated[
        str | None,
        typer.Option(
            help="The scheduler to ask: unix:///path, https://host:port. Default: $FAIRLEAD_URL.", metavar="URL"
        ),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            help="How long to wait for a scheduler that starts, or that went away for a moment. Default: 10 s.",
            metavar="SECONDS",
            envvar="FAIRLEAD_WAIT",
            show_envvar=False,
            min=0.0,
        ),
    ] = None,
) -> None:
    if url is not None:
        os.environ["FAIRLEAD_URL"] = url
    if wait is not None:
        os.environ["FAIRLEAD_WAIT"] = str(wait)
    if version:
        print(f"fairlead {fairlead.__version__}")
        raise typer.Exit


# In the order in which `fairlead --help` lists them.
for _command in (
    cluster.up, jobs.submit, jobs.run, jobs.jobs, jobs.logs, jobs.cancel, jobs.job, jobs.wait, jobs.why, jobs.when, jobs.hold,
    jobs.release, jobs.edit, jobs.rerun, jobs.checkpointed,
    cluster.drain, cluster.resume, cluster.forget, cluster.reload, cluster.queues, cluster.nodes, cluster.frameworks,
    cluster.usage, cluster.top,
    people.log, cluster.doctor, cluster.down,
    fairness.allocate, fairness.policies, fairness.audit, fairness.properties, traces.simulate, traces.sweep,
    configuration.diff,
):  # fmt: skip
    app.command()(_command)
app.add_typer(people.token, name="token")
app.add_typer(people.service, name="service")
app.add_typer(journal.app, name="journal")
app.add_typer(configuration.app, name="import")
settle(app)


def main() -> None:
    """Run the command line. Whatever is wrong with what was asked is told in one line; exit status 1, or 2 for usage."""
    heed()
    with checked_streams():
        _run()


def _run() -> None:
    from fairlead.cli import parsing
    from fairlead.cli.asked import as_typed
    from fairlead.client.service_error import ServiceError

    try:
        parsing.run(app)
    except (Failure, ServiceError) as error:
        said = str(error) if isinstance(error, Failure) else as_typed(str(error))
        print(f"fairlead: {plain_lines(said)}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except SystemError as error:  # what an interrupt in the middle of compiled code comes out as
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        sys.exit(130)

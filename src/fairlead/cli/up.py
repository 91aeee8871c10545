"""`fairlead up`: what it says while it starts, runs and stops."""

import logging
import sys
from pathlib import Path

import typer
from sqlalchemy.exc import SQLAlchemyError

from fairlead.data_folder import home_folder
from fairlead.engines.local.engine import EngineError, LocalEngine
from fairlead.journal import JournalError
from fairlead.kernel_cache import is_cached
from fairlead.model.documents import Configuration, DocumentError, read_configuration
from fairlead.model.quantity import round_quantity
from fairlead.model.specs import Settings
from fairlead.policies.registry import find_policy
from fairlead.scheduler.admission import Refused
from fairlead.service.serve import SchedulerFailed, serve, warm_up


def run_scheduler(home: Path | None, config: Path | None, host: str, port: int | None) -> None:
    """Run the scheduler of a data folder until it is stopped; exit status 1 with one line where it cannot start."""
    home = (home or home_folder()).absolute()
    try:
        configuration = _read(config)
        if not is_cached():
            _say("compiling the scheduling kernels for this machine: half a minute, once")
        warm_up()
        _log_to(home)
        serve(
            home,
            configuration,
            host=host,
            port=port,
            read_again=lambda: _read(config),
            on_ready=lambda url, engine: _ready(home, url, engine),
            on_stopping=_stopping,
        )
    except (DocumentError, JournalError, EngineError, Refused, SchedulerFailed, OSError, SQLAlchemyError) as error:
        _say(str(error))
        raise typer.Exit(1) from None
    _say("stopped")


def _read(config: Path | None) -> Configuration:
    return read_configuration(config.absolute(), find_policy) if config else Configuration([], [], Settings())


class _OneLine(logging.Formatter):
    """For the terminal: what happened, without the traceback, which is in the log file."""

    def formatException(self, info: object) -> str:
        return ""


def _log_to(home: Path) -> None:
    terminal = logging.StreamHandler()
    terminal.setFormatter(_OneLine("fairlead: %(message)s"))
    file = logging.FileHandler(home / "log", delay=True)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[terminal, file])


def _ready(home: Path, url: str, engine: LocalEngine) -> None:
    for node in engine.nodes[:8]:
        capacity = "  ".join(f"{name} {round_quantity(name, amount)}" for name, amount in node.capacity.items())
        _say(f"node {node.name}: {capacity}")
    if len(engine.nodes) > 8:
        _say(f"and {len(engine.nodes) - 8} nodes more")
    if not engine.limits["memory"]:
        _say("no cgroups here: memory is watched twice a second, CPU is not limited")
    _say(f"ready at {url}, data in {home}; Ctrl-C stops")


def _stopping(running: int) -> None:
    if running:
        _say(f"stopping; {running} task{'s' if running != 1 else ''} still to end")


def _say(line: str) -> None:
    print(f"fairlead: {line}", file=sys.stderr, flush=True)

"""`fairlead up`: what it says while it starts, runs and stops."""

import contextlib
import gc
import importlib.util
import logging
import os
import re
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import typer

from fairlead.cli.background import Background, InBackground
from fairlead.data_folder import SYSTEM_HOME, SYSTEM_SOCKET, home_folder, make_home, socket_of
from fairlead.engines.contract import EngineError, LiveEngine
from fairlead.engines.local.machine import kept, this_machine
from fairlead.engines.step import GRACE
from fairlead.journal import JournalError
from fairlead.model.documents import Configuration, DocumentError, read_configuration
from fairlead.model.quantity import round_quantity
from fairlead.model.specs import Settings
from fairlead.people.accounts import Accounts, myself
from fairlead.plain_text import plain_lines
from fairlead.policies.registry import find_policy
from fairlead.scheduler.admission import Refused
from fairlead.service.configuration_warnings import configuration_warnings
from fairlead.service.connections.listening import DEFAULT_PORT, Where, tls_context
from fairlead.service.serve import EngineMaker, SchedulerFailed, serve
from fairlead.sockets import is_loopback

LOST_AFTER = 30.0
"""Seconds after which a machine that nobody has heard or vouches for ends what it runs."""


class Asked(NamedTuple):
    """What `fairlead up` was asked for; see its options."""

    config: Path | None = None
    home: Path | None = None
    system: bool = False
    socket: Path | None = None
    port: int | None = None
    listen: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    names: Sequence[str] = ()
    drop_nodes: Sequence[str] = ()
    engine: str = "local"
    ray_address: str | None = None
    try_nodes: int | None = None
    lost_after: float = LOST_AFTER
    mesos: str | None = None
    mesos_principals: Path | None = None


_PATHS = ("config", "socket", "tls_cert", "tls_key", "mesos_principals")
MESOS_PORT = 5050


def run_scheduler(asked: Asked, started: Callable[[], None]) -> None:
    """Run a scheduler until it is stopped, and tell when it answers; exit status 1 with one line where it cannot start."""
    if asked.system and os.geteuid() != 0:
        _say(
            "--system: a scheduler for everybody on this machine is root's to start: say it with sudo; "
            "`fairlead up` starts one of your own"
        )
        raise typer.Exit(1)
    home = (asked.home or (SYSTEM_HOME if asked.system else home_folder())).absolute()
    asked = _absolute(asked)
    if asked.system:
        os.chdir("/")  # who may write to the folder that it was started in has no part in it
    try:
        where = _where(asked, home)
        configuration = _read(asked.config)
        with _saying(home) as say:

            def on_ready(urls: list[str], engine: LiveEngine) -> None:
                started()
                _ready(say, home, urls, engine, configuration, asked.system)

            make_engine = _engine(asked, home, configuration, say)
            serve(
                home,
                configuration,
                where,
                personal=not asked.system,
                drop=asked.drop_nodes,
                make_engine=make_engine,
                read_again=lambda: _read(asked.config),
                on_ready=on_ready,
                on_stopping=partial(_stopping, say),
            )
    except (DocumentError, JournalError, EngineError, Refused, SchedulerFailed, OSError) as error:
        _say(str(error))
        raise typer.Exit(1) from None
    _say("stopped")


def _engine(asked: Asked, home: Path, configuration: Configuration, say: Callable[[str], None]) -> EngineMaker | None:
    """What makes the engine that was asked for; None for this machine's."""
    if asked.engine == "local":
        for name, value in (("--ray-address", asked.ray_address), ("--try", asked.try_nodes)):
            if value is not None:
                raise Refused(f"{name}: with which engine? Say --engine ray as well")
        return None
    if importlib.util.find_spec("ray") is None:
        raise Refused("--engine ray: Ray is not installed here: pip install 'fairlead[ray]'")
    if configuration.nodes:
        raise Refused(f"{asked.config}: [[node]]: with --engine ray the nodes are Ray's: take these away")
    from fairlead.engines.ray.engine import RayEngine
    from fairlead.engines.ray.health import lets_anybody_in
    from fairlead.engines.ray.trial import Trial, ask_for_tokens

    make_home(home)
    folder, after_leaving = None, lambda: None
    if asked.try_nodes is not None:
        if asked.ray_address is not None:
            raise Refused("--try starts a Ray cluster here, and --ray-address names another: say one of them")
        say(f"a Ray cluster of {asked.try_nodes} nodes on this machine is started, unless it runs")
        if asked.system:
            ask_for_tokens(home)
        trial = Trial(home)
        address, folder, after_leaving = trial.start(asked.try_nodes), home / "nodes", trial.end
    else:
        address = _ray_address(asked)
    if asked.system and lets_anybody_in(address):
        raise Refused(
            f"--system: the Ray cluster at {address} lets anybody in, who could do there as root what they like: start it with "
            "RAY_AUTH_MODE=token"
        )
    say(f"the machines are those of the Ray cluster at {address}")
    return lambda wake: RayEngine(
        home, wake, address, asked.lost_after, GRACE, folder, as_people=asked.system, after_leaving=after_leaving
    )


def _ray_address(asked: Asked) -> str:
    """Where Ray's head is: as it was named, or that of a cluster that was started on this machine."""
    named = asked.ray_address or os.environ.get("RAY_ADDRESS", "")
    auto = named == "auto"
    if named == "" or auto:
        started = Path(tempfile.gettempdir(), "ray", "ray_current_cluster")
        named = started.read_text().strip() if started.exists() else ""
    if not named and auto:
        raise Refused(
            f"auto: no `ray start` of this machine has left an address in {started}: write HOST:PORT of the head, such as "
            "10.0.0.1:6379"
        )
    if not named:
        raise Refused(
            "--engine ray: which Ray cluster? Name its head with --ray-address HOST:PORT or RAY_ADDRESS, start one here with "
            "`ray start --head`, or try four nodes on this machine with --try 4"
        )
    host, _, port = named.rpartition(":")
    if named.startswith("ray://"):
        raise Refused(
            f"{named}: is that of Ray's client server, and who takes machines asks the head: write its address as HOST:PORT, "
            "with the port of `ray start --head --port`, such as 10.0.0.1:6379"
        )
    if not host or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise Refused(f"{named}: write the address of Ray's head as HOST:PORT, such as 10.0.0.1:6379")
    return named


def check_start(asked: Asked) -> Asked:
    """What was asked for, with its paths absolute; raises DocumentError and Refused where a scheduler could not start with it."""
    _read(asked.config)
    where = _where(asked, SYSTEM_HOME)
    if where.certificate is not None:
        tls_context(where.certificate, where.key)
    return _absolute(asked)


def _absolute(asked: Asked) -> Asked:
    return asked._replace(**{name: path.absolute() for name in _PATHS if (path := getattr(asked, name)) is not None})


def _where(asked: Asked, home: Path) -> Where:
    """Where to listen; refuses what would tell others on the way what is said."""
    if asked.listen is not None and asked.port is not None:
        raise Refused("--port is short for --listen 127.0.0.1:PORT: write one of them")
    host, port = _host_and_port(asked.listen) if asked.listen is not None else ("127.0.0.1", asked.port)
    if asked.tls_cert is None and asked.tls_key is not None:
        raise Refused("--tls-key: whose? Name the certificate with --tls-cert as well")
    if asked.tls_cert is not None and port is None and asked.mesos is None:
        raise Refused("--tls-cert: for which port? Name it with --listen HOST:PORT")
    if port is not None and not is_loopback(host) and asked.tls_cert is None and not asked.insecure:
        raise Refused(
            f"--listen {asked.listen}: others on the way could read all of it, and the tokens: "
            "give a certificate with --tls-cert and --tls-key, or say --insecure"
        )
    return Where(
        asked.socket or (SYSTEM_SOCKET if asked.system else socket_of(home)),
        asked.system,
        host,
        port,
        asked.tls_cert,
        asked.tls_key,
        tuple(name.lower() for name in asked.names),
        _where_for_frameworks(asked),
        asked.mesos_principals,
    )


def _where_for_frameworks(asked: Asked) -> tuple[str, int] | None:
    """Where to listen for Mesos' frameworks, if anywhere."""
    if asked.mesos is None:
        if asked.mesos_principals is not None:
            raise Refused("--mesos-principals: whose? Say with --mesos where they connect to")
        return None
    has_port = asked.mesos.rpartition(":")[2].isdigit() and not asked.mesos.endswith("]")
    text = asked.mesos if has_port else f"{asked.mesos}:{MESOS_PORT}"
    host, port = _host_and_port(text, "--mesos", MESOS_PORT)
    if not is_loopback(host) and asked.tls_cert is None and not asked.insecure:
        raise Refused(
            f"--mesos {asked.mesos}: others on the way could read all of it, and the secrets: "
            "give a certificate with --tls-cert and --tls-key, or say --insecure"
        )
    if not is_loopback(host) and asked.mesos_principals is None:
        raise Refused(f"--mesos {asked.mesos}: who connects from elsewhere? Name their secrets with --mesos-principals")
    return host, port


def _host_and_port(text: str, option: str = "--listen", usual: int = DEFAULT_PORT) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not re.fullmatch("[0-9]{1,5}", port) or not host or int(port) > 65535:
        raise Refused(f"{option} {text!r}: write HOST:PORT, such as 0.0.0.0:{usual} or [::]:{usual}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _read(config: Path | None) -> Configuration:
    return read_configuration(config, find_policy) if config else Configuration([], [], Settings())


class _OneLine(logging.Formatter):
    """For the terminal: what happened, without the traceback, which is in the log file."""

    def format(self, record: logging.LogRecord) -> str:
        return plain_lines(super().format(record).strip())

    def formatException(self, info: object) -> str:
        return ""


@contextlib.contextmanager
def _saying(home: Path) -> Iterator[Callable[[str], None]]:
    """Log to the terminal and to the data folder; gives what says a line on the terminal."""
    terminal, file = Background(_write), Background(partial(_append, home / "log"))
    handlers = [
        InBackground(terminal, _OneLine("fairlead: %(message)s")),
        InBackground(file, logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")),
    ]
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # what strangers send is no concern of the log
    logging.basicConfig(level=logging.WARNING, handlers=handlers)
    logging.getLogger("fairlead").setLevel(logging.INFO)  # what is revoked for whom
    try:
        yield lambda line: terminal.say(f"fairlead: {line}")
    finally:
        for each in (terminal, file):
            each.close()


def _append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(line + "\n")


def _write(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _ready(
    say: Callable[[str], None],
    home: Path,
    urls: list[str],
    engine: LiveEngine,
    configuration: Configuration,
    everybody: bool,
) -> None:
    gc.freeze()  # what was read to come here stays: to look for garbage in it is a tenth of a second in which nobody is answered
    for node in engine.nodes[:8]:
        capacity = "  ".join(f"{name} {round_quantity(name, amount)}" for name, amount in node.capacity.items())
        say(f"node {node.name}: {capacity}")
    if len(engine.nodes) > 8:
        say(f"and {len(engine.nodes) - 8} nodes more")
    if (
        not engine.elastic
        and not configuration.nodes
        and (keeps := kept(configuration.system, this_machine({}).capacity))
    ):
        amounts = " and ".join(f"{name} {round_quantity(name, amount)}" for name, amount in keeps.items())
        say(f"the machine keeps {amounts} of what it has for itself: `system` in fairlead.toml says how much")
    has: Counter[str] = Counter()
    for node in engine.nodes:
        has.update(node.capacity)
    for doubt in configuration_warnings(configuration, has, Accounts() if everybody else None):
        say(plain_lines(doubt))
    if not engine.limits.get("memory", True):
        say("no cgroups here: memory is watched twice a second, CPU is not limited")
    if not engine.limits.get("tracking", True):
        say("no cgroups here: what a task leaves behind is ended only as long as it keeps its environment")
    if everybody:
        say("everybody who has an account here is let in, and known by it; tasks run as who submitted them")
    else:
        asked = ": who may do what is not asked" if _asks(configuration) else ""
        say(f"{myself().name} alone is let in, and all tasks run as {myself().name}{asked}")
    say(f"ready at {' and '.join(urls)}, data in {home}; Ctrl-C stops")
    _tell_systemd(say)


def _tell_systemd(say: Callable[[str], None]) -> None:
    """That it is ready, where it was started as a unit of `Type=notify` (see sd_notify(3))."""
    if path := os.environ.pop("NOTIFY_SOCKET", None):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            try:
                line.sendto(b"READY=1", "\0" + path[1:] if path.startswith("@") else path)
            except OSError as error:
                say(f"NOTIFY_SOCKET={path}: whoever started this is not told that it is ready: {error.strerror}")


def _asks(configuration: Configuration) -> bool:
    """Whether a configuration says who may do what."""
    says = (queue.submit is not None or queue.admin or queue.private for queue in configuration.queues)
    return bool(configuration.settings.operators) or any(says)


def _stopping(say: Callable[[str], None], running: int) -> None:
    if running:
        say(f"stopping; {running} task{'s' if running != 1 else ''} still to end")


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # who read it may be gone
        _write(f"fairlead: {line}")

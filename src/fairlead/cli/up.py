"""`fairlead up`: checks its options, runs the scheduler, and reports its start and stop."""

import contextlib
import errno
import importlib.util
import logging
import os
import re
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import fairlead
from fairlead.cli.background import Background, BackgroundHandler, append
from fairlead.data_folder import SYSTEM_HOME, SYSTEM_SOCKET, home_folder, make_home, socket_of
from fairlead.engines.contract import EngineError, LiveEngine
from fairlead.engines.local.engine import LocalEngine
from fairlead.engines.local.machine import kept, this_machine
from fairlead.engines.step import GRACE
from fairlead.failure import Failure, WrongUsage
from fairlead.journal import JournalError, head
from fairlead.journal.sql import SqlStore
from fairlead.locks import holding
from fairlead.model.documents import Configuration, DocumentError, read_configuration
from fairlead.model.quantity import round_quantity, total_of
from fairlead.model.specs import Settings
from fairlead.people.accounts import Accounts, myself
from fairlead.plain_text import plain_lines
from fairlead.policies.registry import find_policy
from fairlead.scheduler.admission import Refused
from fairlead.service.configuration_warnings import configuration_warnings
from fairlead.service.connections.listening import DEFAULT_PORT, Where, tls_context
from fairlead.service.serve import EngineMaker, SchedulerFailed, serve
from fairlead.sockets import is_loopback

LOST_AFTER_SECONDS = 30.0
"""Default of --lost-after: silence after which a node ends its tasks."""
TAKE_OVER_SECONDS = 60.0
"""For an older scheduler to end."""


class UpOptions(NamedTuple):
    """The options of `fairlead up`."""

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
    lost_after: float | None = None
    mesos: str | None = None
    mesos_principals: Path | None = None
    nodes: str | None = None


MESOS_PORT = 5050


def run_scheduler(options: UpOptions, started: Callable[[], None]) -> None:
    """Run a scheduler until it is stopped; call `started` when it answers. Raises Failure if it cannot start."""
    if options.system and os.geteuid() != 0:
        raise Failure("only root may start a machine-wide scheduler: use sudo; without --system, `up` starts one of your own")
    home = (options.home or (SYSTEM_HOME if options.system else home_folder())).absolute()
    options = _absolute(options)
    if options.system:
        os.chdir("/")  # users who may write to the current folder must not affect the scheduler
    try:
        where = _where(options, home)
        configuration = _read(options.config)
        with _logging(home) as say:
            _take_over(home / "journal.db", say)

            def on_ready(urls: list[str], engine: LiveEngine) -> None:
                started()
                _ready(say, home, urls, engine, configuration, options.system)

            def on_stopping(running: int) -> None:
                if running:
                    say(f"stopping; waiting for {running} task{'s' if running != 1 else ''} to end")

            serve(
                home,
                configuration,
                where,
                personal=not options.system,
                drop=options.drop_nodes,
                make_engine=_engine(options, home, where, configuration, say),
                read_again=lambda: _read(options.config),
                on_ready=on_ready,
                on_stopping=on_stopping,
            )
    except (DocumentError, JournalError, EngineError, Refused, SchedulerFailed, OSError) as error:
        raise Failure(_text_of(error)) from None
    _say("stopped")


def _text_of(error: Exception) -> str:
    """Return an error's message; of a file, with its path first and a remedy if it is of another kind."""
    if not isinstance(error, OSError) or error.filename is None:
        return str(error)
    kinds = {errno.EEXIST: "is not a folder: move it away", errno.EISDIR: "is a folder, not a file: move it away"}
    return f"{error.filename}: {kinds.get(error.errno or 0, error.strerror)}"


def _take_over(journal: Path, say: Callable[[str], None]) -> None:
    """End the scheduler of an older fairlead that has the journal open; its tasks run on. Raises Refused, JournalError."""
    lock = head.path_of(journal)
    found = [pid for pid in holding(lock) if _has_open(pid, lock.resolve())]
    if not found or not journal.exists():
        return
    with contextlib.closing(SqlStore(journal, to_read=True)) as store:
        writer = store.writer
    if _release(writer) >= _release(fairlead.__version__):
        return  # refused by its lock
    (pid,) = found
    say(f"fairlead {fairlead.__version__} takes over from {writer}, process {pid}; tasks run on")
    os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + TAKE_OVER_SECONDS
    while pid in holding(lock):
        if time.monotonic() > until:
            raise Refused(f"process {pid}, fairlead {writer}, does not end: see {journal.parent}/log, or kill -9 {pid}")
        time.sleep(0.02)


def _has_open(pid: int, file: Path) -> bool:
    """Return True if a process, which may be another user's, has a file open. Its lock alone may be of another disk's file."""
    with contextlib.suppress(OSError):
        return any(each.resolve() == file for each in Path(f"/proc/{pid}/fd").iterdir())
    return False


def _release(version: str) -> list[int]:
    return [int(number) for number in re.findall("[0-9]+", version)[:3]]


def _engine(
    options: UpOptions, home: Path, where: Where, configuration: Configuration, say: Callable[[str], None]
) -> EngineMaker:
    """Return the maker of the engine."""
    if options.engine == "local":
        if options.ray_address is not None:
            raise WrongUsage("--ray-address: needs --engine ray")
        if options.lost_after is not None and options.nodes is None:
            raise WrongUsage("--lost-after: needs --nodes or --engine ray")
        checkpoints = where.socket.with_name(f"{where.socket.name}.checkpoints") if options.system else None
        if options.nodes is not None:
            return _joined_engine(options, home, configuration, checkpoints)
        nodes = configuration.nodes or [this_machine(configuration.system)]
        return lambda wake: LocalEngine(home, nodes, wake, options.system, checkpoints)
    if options.nodes is not None:
        raise WrongUsage("--nodes: with --engine ray the nodes are Ray's: omit one of them")
    if importlib.util.find_spec("ray") is None:
        raise Refused("Ray is not installed here, and --engine ray needs it: pip install 'fairlead[ray]'")
    if configuration.nodes:
        raise Refused(f"{options.config}: [[node]]: with --engine ray the nodes are Ray's: remove these")
    from fairlead.engines.ray import RayEngine, host_towards
    from fairlead.engines.remote.engine import Serving
    from fairlead.engines.remote.members import LeasePolicy

    make_home(home)
    if options.system:
        os.environ["RAY_AUTH_MODE"] = "token"  # else anyone who reaches Ray could run commands as root
    address = _ray_address(options)
    say(f"using the nodes of the Ray cluster at {address}")
    policy = LeasePolicy(options.lost_after or LOST_AFTER_SECONDS, GRACE)
    return lambda wake: RayEngine(Serving(home, wake, policy, (host_towards(address), 0), options.system), address)


def _joined_engine(options: UpOptions, home: Path, configuration: Configuration, checkpoints: Path | None) -> EngineMaker:
    from fairlead.engines.remote.engine import Serving
    from fairlead.engines.remote.joined import JoinedEngine
    from fairlead.engines.remote.joining import DEFAULT_PORT as NODES_PORT
    from fairlead.engines.remote.members import LeasePolicy

    listen = _host_and_port(options.nodes or "", "--nodes", NODES_PORT)
    if len(configuration.nodes) > 1:
        raise Refused(f"{options.config}: [[node]]: with --nodes this machine is one node: name one")
    own = configuration.nodes[0] if configuration.nodes else this_machine(configuration.system)
    policy = LeasePolicy(options.lost_after or LOST_AFTER_SECONDS, GRACE)
    make_home(home)
    return lambda wake: JoinedEngine(Serving(home, wake, policy, listen, options.system), own, myself().name, checkpoints)


def _ray_address(options: UpOptions) -> str:
    """Return the address of Ray's head: as given, or of the cluster started on this machine. Raises Refused."""
    named = options.ray_address or os.environ.get("RAY_ADDRESS", "")
    auto = named == "auto"
    if named == "" or auto:
        started = Path(tempfile.gettempdir(), "ray", "ray_current_cluster")
        named = started.read_text().strip() if started.exists() else ""
    if not named and auto:
        raise Refused(f"auto: `ray start` has left no address in {started}: write the head's HOST:PORT, such as 10.0.0.1:6379")
    if not named:
        raise Refused(
            "--engine ray: which Ray cluster? Name its head with --ray-address HOST:PORT or RAY_ADDRESS, or start one with "
            "`ray start --head`"
        )
    if named.startswith("ray://"):
        raise Refused(
            f"{named}: is the address of Ray's client server: write the head's HOST:PORT, "
            "with the port of `ray start --head --port`, such as 10.0.0.1:6379"
        )
    if not re.fullmatch(".+:[0-9]{1,5}", named) or not 0 < int(named.rpartition(":")[2]) < 65536:
        raise Refused(f"{named}: write the address of Ray's head as HOST:PORT, such as 10.0.0.1:6379")
    return named


def check_start(options: UpOptions) -> UpOptions:
    """Check options without starting a scheduler; return them with absolute paths. Raises DocumentError, Refused."""
    _read(options.config)
    where = _where(options, SYSTEM_HOME)
    if where.certificate is not None:
        tls_context(where.certificate, where.key)
    return _absolute(options)


def _absolute(options: UpOptions) -> UpOptions:
    return UpOptions._make(each.absolute() if isinstance(each, Path) else each for each in options)


def _where(options: UpOptions, home: Path) -> Where:
    """Return where to listen. Raises Refused, also for unencrypted addresses that others can reach."""
    if options.listen is not None and options.port is not None:
        raise WrongUsage("--port is short for --listen 127.0.0.1:PORT: write one of them")
    host, port = _host_and_port(options.listen, "--listen") if options.listen is not None else ("127.0.0.1", options.port)
    if options.tls_cert is None and options.tls_key is not None:
        raise WrongUsage("--tls-key: needs the certificate: name it with --tls-cert")
    if options.names and port is None:
        raise WrongUsage("--name: needs --listen HOST:PORT")
    if options.insecure and ((port is None and options.mesos is None) or options.tls_cert is not None):
        raise WrongUsage("--insecure: needs --listen or --mesos, without --tls-cert")
    if options.tls_cert is not None and port is None and options.mesos is None:
        raise WrongUsage("--tls-cert: for which port? Name it with --listen HOST:PORT")
    if port is not None and not is_loopback(host) and options.tls_cert is None and not options.insecure:
        raise WrongUsage(
            f"--listen {options.listen}: others on the network could read everything, including tokens: "
            "give a certificate with --tls-cert and --tls-key, or --insecure"
        )
    local = options.socket or (SYSTEM_SOCKET if options.system else socket_of(home))
    tls, names = (options.tls_cert, options.tls_key), tuple(name.lower() for name in options.names)
    mesos = (_where_for_frameworks(options), options.mesos_principals)
    return Where(local, options.system, host, port, *tls, names, *mesos)


def _where_for_frameworks(options: UpOptions) -> tuple[str, int] | None:
    """Return where to listen for Mesos frameworks; None without --mesos."""
    if options.mesos is None:
        if options.mesos_principals is not None:
            raise WrongUsage("--mesos-principals: needs --mesos, the address that they connect to")
        return None
    host, port = _host_and_port(options.mesos, "--mesos", MESOS_PORT)
    if not is_loopback(host) and options.tls_cert is None and not options.insecure:
        raise WrongUsage(
            f"--mesos {options.mesos}: others on the network could read everything, including secrets: "
            "give a certificate with --tls-cert and --tls-key, or --insecure"
        )
    if not is_loopback(host) and options.mesos_principals is None:
        raise WrongUsage(f"--mesos {options.mesos}: remote frameworks need secrets: name them with --mesos-principals")
    return host, port


def _host_and_port(text: str, option: str, default: int | None = None) -> tuple[str, int]:
    """Read HOST:PORT; with a default, the port may be missing."""
    match = re.fullmatch(r"(\[[^]]+\]|(?!:(?!:)).+?)(?::([0-9]+))?", text)
    port = match[2] or default if match is not None else None
    if match is None or port is None or int(port) > 65535:
        example = default or DEFAULT_PORT
        raise WrongUsage(f"{option} {text!r}: write HOST:PORT, such as 0.0.0.0:{example} or [::]:{example}")
    return match[1].removeprefix("[").removesuffix("]"), int(port)


def _read(config: Path | None) -> Configuration:
    return read_configuration(config, find_policy) if config else Configuration([], [], Settings())


class _OneLine(logging.Formatter):
    """Formats records for the terminal, without tracebacks, which the log file has."""

    def format(self, record: logging.LogRecord) -> str:
        return plain_lines(super().format(record).strip())

    def formatException(self, info: object) -> str:
        return ""


@contextlib.contextmanager
def _logging(home: Path) -> Iterator[Callable[[str], None]]:
    """Log to the terminal and to the data folder; yield the function that prints a line on the terminal."""
    terminal, file = Background(_write), Background(partial(append, home / "log"))
    handlers = [
        BackgroundHandler(terminal, _OneLine("fairlead: %(message)s")),
        BackgroundHandler(file, logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")),
    ]
    logging.basicConfig(level=logging.WARNING, handlers=handlers)
    logging.getLogger("fairlead").setLevel(logging.INFO)  # reports preemptions
    try:
        yield lambda line: terminal.say(f"fairlead: {line}")
    finally:
        for handler in handlers:
            handler.close()
        for each in (terminal, file):
            each.close()


def _write(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _ready(
    say: Callable[[str], None], home: Path, urls: list[str], engine: LiveEngine, configuration: Configuration, everybody: bool
) -> None:
    for node in engine.nodes[:8]:
        capacity = "  ".join(f"{name} {round_quantity(name, amount)}" for name, amount in node.capacity.items())
        say(f"node {node.name}: {capacity}")
    if len(engine.nodes) > 8:
        say(f"and {len(engine.nodes) - 8} more nodes")
    if not engine.elastic and not configuration.nodes and (keeps := kept(configuration.system, this_machine({}).capacity)):
        amounts = " and ".join(f"{name} {round_quantity(name, amount)}" for name, amount in keeps.items())
        say(f"{amounts} of this machine is kept for the system: `system` in fairlead.toml sets how much")
    has = total_of(node.capacity for node in engine.nodes)
    for doubt in configuration_warnings(configuration, has, Accounts() if everybody else None):
        say(plain_lines(doubt))
    if not engine.limits.get("memory", True):
        say("no cgroups: memory is polled twice a second, CPU is not limited")
    if not engine.limits.get("tracking", True):
        say("no cgroups: leftover processes of a task are found by their environment, and those that change it survive")
    if everybody:
        say("every account of this machine has access; tasks run as the user who submitted them")
    else:
        rules = any(queue.submit is not None or queue.admin or queue.private for queue in configuration.queues)
        has_rules = rules or configuration.settings.operators
        unused = "; the configuration's access rules have no effect" if has_rules else ""
        say(f"only {myself().name} has access, and all tasks run as {myself().name}{unused}")
    say(f"data in {home}, as process {os.getpid()}")
    say(f"ready at {' and '.join(urls)}; Ctrl-C stops")
    _notify_systemd(say)


def _notify_systemd(say: Callable[[str], None]) -> None:
    """Notify systemd that the scheduler is ready, for units of `Type=notify` (see sd_notify(3))."""
    if path := os.environ.pop("NOTIFY_SOCKET", None):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            try:
                line.sendto(b"READY=1", "\0" + path[1:] if path.startswith("@") else path)
            except OSError as error:
                say(f"NOTIFY_SOCKET={path}: cannot report readiness: {error.strerror}")


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        _write(f"fairlead: {line}")

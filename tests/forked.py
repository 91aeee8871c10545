"""`fairlead` as a process of its own, forked from one that has read all that it needs already.

A new interpreter reads fairlead's modules for a fifth of a second, and what a scheduler needs for nearly two; the tests start a
thousand of them. Commands that only ask a scheduler are forked from a process that has not read what a scheduler needs: that is
more memory to map, and to let go of, than they ever touch. What runs is the same `main`, with the same arguments, environment,
folder and descriptors. What a test says of the interpreter itself (how fast it starts, what it preloads) it says of the real
command, `conftest.FAIRLEAD`.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from functools import cache
from pathlib import Path
from types import SimpleNamespace

ASK = (
    "cancel", "checkpointed", "down", "drain", "edit", "fetch", "forget", "frameworks", "hold", "job", "jobs", "log", "logs",
    "nodes", "queues", "release", "reload", "rerun", "resume", "run", "submit", "token", "top", "usage", "wait", "when", "why",
)  # fmt: skip
"""The commands that only ask a scheduler."""


def _socket(asks):
    """The path of the socket of what is forked for commands that only ask, or for others.

    Who comes first starts it, and it ends with that one: the pytest that starts the workers, where there are any.
    """
    name = "FORKED_ASK" if asks else "FORKED_ALL"
    if name not in os.environ:
        os.environ[name] = _start(asks) + "/socket"
    return os.environ[name]


def start():
    """Start both, for the processes that this one starts."""
    for asks in (False, True):
        _socket(asks)


def _start(asks):
    folder = tempfile.TemporaryDirectory(prefix="forked-")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(folder.name + "/socket")
        listener.listen(64)
        command = [sys.executable, str(Path(__file__)), str(listener.fileno()), "ask" if asks else "all"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listener.fileno()], cwd="/")
    _started.append((process, folder))
    return folder.name


_started = []


def end():
    """What this process started is not forked any more."""
    for process, folder in _started:
        process.stdin.close()
        process.wait()
        folder.cleanup()


@cache
def folder_with_command():
    """A folder for PATH, in which `fairlead` is one that is forked."""
    sockets = [_socket(asks) for asks in (False, True)]
    folder = Path(tempfile.mkdtemp(dir=Path(sockets[0]).parent))
    (folder / "fairlead").write_text(_COMMAND.format(python=sys.executable, sockets=sockets, ask=ASK))
    (folder / "fairlead").chmod(0o755)
    return folder


_COMMAND = """\
#!{python} -SEs
import json, os, socket, sys
closed = []
for number in range(3):
    try:
        os.fstat(number)
    except OSError:
        closed.append(os.open("/dev/null", os.O_RDWR))  # which gets this very number
line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
line.connect({sockets}[sys.argv[1:2] != [] and sys.argv[1] in {ask}])
request = os.memfd_create("request")
asked = dict(argv=sys.argv[1:], cwd=os.getcwd(), env=dict(os.environ), new_session=False, closed=closed)
os.write(request, json.dumps(asked).encode())
socket.send_fds(line, [b"run"], [request, 0, 1, 2])
line.recv(32)
sys.exit(int(line.recv(32)))
"""


class Fairlead(subprocess.Popen):
    """`subprocess.Popen` of `fairlead` with these arguments; all that it takes for pipes, folder and environment holds."""

    def __init__(self, arguments, **more):
        super().__init__(list(arguments), **more)

    def _execute_child(self, args, *given):
        cwd, env, new_session = given[4], given[5], given[-2]
        assert given[1] is None, "preexec_fn"
        inherited = given[9:15]
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.connect(_socket(bool(args) and args[0] in ASK))
        chosen = [number if number >= 0 else at for at, number in enumerate((inherited[0], inherited[3], inherited[5]))]
        asked = {
            "argv": [os.fspath(each) for each in args],
            "cwd": os.fspath(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
            "new_session": new_session,
        }
        request = os.memfd_create("request")
        with os.fdopen(request, "wb") as file:
            file.write(json.dumps(asked).encode())
            file.flush()
            socket.send_fds(line, [b"run"], [request, *chosen])
        self._close_pipe_fds(*inherited)
        self.pid = int(line.recv(32))
        self._line, self._child_created = line, True

    def _internal_poll(self, *_, **__):
        with contextlib.suppress(TimeoutError):
            self._ended(0)
        return self.returncode

    def _wait(self, timeout):
        try:
            self._ended(timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired(self.args, timeout) from None
        return self.returncode

    def _ended(self, timeout):
        """Learn the exit status; TimeoutError where there is none within this time."""
        if self.returncode is not None:
            return
        self._line.settimeout(timeout if timeout is None else max(timeout, 1e-6))
        self.returncode = int(self._line.recv(32))
        self._line.close()


def run(arguments, input=None, timeout=None, **more):  # noqa: A002
    """As `subprocess.run` with `capture_output`, `text` and without `check`."""
    more |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    if input is not None:
        more["stdin"] = subprocess.PIPE
    with Fairlead(arguments, **more) as process:
        try:
            printed = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(arguments, process.returncode, *printed)


def _serve(listener):
    """Fork for each request that comes; returns in the child, with what it is to do, and ends with who started it."""
    running = {}
    wake, awake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(awake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at pytest is for pytest
    while True:
        ready, _, _ = select.select([0, listener, wake], [], [])
        if 0 in ready:
            os._exit(0)
        if wake in ready:
            os.read(wake, 512)
            while running and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                with running.pop(ended[0]) as line, contextlib.suppress(OSError):
                    line.send(str(os.waitstatus_to_exitcode(ended[1])).encode())
        if listener not in ready:
            continue
        line, _ = listener.accept()
        _, files, _, _ = socket.recv_fds(line, 8, 4)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            return files
        running[pid] = line
        with contextlib.suppress(OSError):
            line.send(str(pid).encode())
        for number in files:
            os.close(number)


def _become(files):
    """Have the descriptors, the environment and the folder that were asked for, and no others."""
    os.lseek(files[0], 0, os.SEEK_SET)
    with os.fdopen(files[0], "rb") as request:
        asked = json.load(request)
    for number, given in enumerate(files[1:]):
        os.dup2(given, number)
    for number in asked.get("closed", ()):
        os.close(number)
    os.closerange(3, 1 << 16)
    os.environ.clear()
    os.environ.update(asked["env"])
    time.tzset()
    os.chdir(asked["cwd"])
    if asked["new_session"]:
        os.setsid()
    for name, number, how in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if number in asked.get("closed", ()):
            setattr(sys, name, None)
            continue
        stream = os.fdopen(number, how, closefd=False, encoding="utf-8", errors="backslashreplace" if number == 2 else "strict")
        if number == 2 or stream.isatty():
            stream.reconfigure(line_buffering=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv = ["fairlead", *asked["argv"]]


def _read_what_asks():
    """Read what commands read that ask a scheduler."""
    from fairlead.cli.main import main

    needed = [
        "job", "many_jobs", "output", "parsing", "run", "script_options", "submitting", "tables", "top", "usage", "word_lists",
    ]  # fmt: skip
    asking = ["cluster", "configuration", "fairness", "jobs", "journal", "people", "selected_jobs", "traces"]
    commands = [*(f"fairlead.cli.{each}" for each in needed), *(f"fairlead.cli.commands.{each}" for each in asking)]
    for name in [*commands, "rich.progress", "platformdirs.unix", "typer._click.decorators"]:  # which are read at a use
        importlib.import_module(name)
    return main


def _read_all():
    """Read what a scheduler reads when it starts, and other commands."""
    import fairlead.cli
    from fairlead.cli.main import main
    from fairlead.service.api.app import Parts, make_api

    for module in pkgutil.walk_packages(fairlead.cli.__path__, "fairlead.cli."):
        importlib.import_module(module.name)
    api = make_api(SimpleNamespace(loop=None, authenticator=None, wakeups=None), Parts(*[None] * 12))
    api.openapi()  # reads all types; what is kept of them is there for the next
    for name in ("anyio._backends._asyncio", "encodings.ascii", "encodings.utf_8_sig", "numpy.ma", "uvicorn.lifespan.off"):
        importlib.import_module(name)
    return main


def _end_as(main):
    """Run it and end as a program does, without taking all that was read apart first, which takes longer than most commands."""
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        code = 120
    os._exit(code or 0)


if __name__ == "__main__":
    main = _read_what_asks() if sys.argv[2] == "ask" else _read_all()
    gc.freeze()  # what is looked through is copied
    _become(_serve(socket.socket(fileno=int(sys.argv[1]))))
    _end_as(main)

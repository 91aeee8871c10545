"""A process that calls Python functions one after another, for one session, queue and shape, as their owner.

    PYTHON worker.py [elsewhere]

On file descriptor 3 the supervisor sends a JSON message per call, with the files for its output; the worker answers 0 if it
returned and 1 if it raised. File descriptor 4 is the session's folder, which it cannot reach by path. It ends when the
supervisor disconnects or dies; an idle worker is stopped and would not notice the latter itself.

If the session has packed code, it is unpacked in the session's folder and functions are called there. `elsewhere` means another
machine than the program's: import paths that do not exist are skipped.
"""

import fcntl
import json
import os
import pickle
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

LINE, FOLDER = 3, 4
SESSION = Path(f"/proc/self/fd/{FOLDER}")
CODE, UNPACKED = "code", "files"
LONGEST_MESSAGE = 64 * 2**10


def main() -> None:
    _end_with_parent()
    for fd in (LINE, FOLDER):
        os.set_inheritable(fd, False)
    line = socket.socket(fileno=LINE)
    setup = json.loads((SESSION / "setup.json").read_text())
    elsewhere, settled = "elsewhere" in sys.argv[1:], False
    sys.path[:] = _import_path(setup, elsewhere)
    sys.argv = [""]

    def settle() -> None:
        nonlocal settled
        if not settled:
            _settle(setup, elsewhere)
        settled = True

    while True:
        text, files, _, _ = socket.recv_fds(line, LONGEST_MESSAGE, 2, socket.MSG_CMSG_CLOEXEC)
        if not text:
            return
        message = json.loads(text)
        for target, fd in zip((1, 2), files, strict=True):
            os.dup2(fd, target)
            os.close(fd)
        os.environ.update(message["env"])
        failed = _call(message, settle)
        sys.stdout.flush()
        sys.stderr.flush()
        line.send(b"1\n" if failed else b"0\n")


def _import_path(setup: dict[str, Any], elsewhere: bool) -> list[str]:
    """Return the import path; on another machine with another interpreter, this one's path and what else exists here."""
    path = setup["path"]
    if not elsewhere or sys.executable == setup["argv"][0]:
        return list(path)
    code = [each for each in path if not os.path.isabs(each)]
    return code + sys.path + [each for each in path if each not in code + sys.path and os.path.exists(each)]


def _settle(setup: dict[str, Any], elsewhere: bool) -> None:
    """Enter the working directory and unpack the code. Raises whatever prevents that."""
    python, here = setup.get("python", ""), f"{sys.version_info[0]}.{sys.version_info[1]}"
    if elsewhere and python not in ("", here):
        raise RuntimeError(
            f"the program runs Python {python}, and {socket.gethostname()} has {here}: calls need the same version: "
            "install it there at the same path, or exclude the node with on={...}"
        )
    if not setup.get("code"):
        if elsewhere:
            _enter(setup["cwd"])
        return
    _unpack(SESSION / setup["code"])
    os.chdir(SESSION / CODE / UNPACKED)
    code = os.getcwd()
    if not os.access(code, os.R_OK | os.X_OK):  # the folders above are closed to people
        code = f"/proc/{os.getpid()}/fd/{FOLDER}/{CODE}/{UNPACKED}"
    sys.path[:] = [os.path.normpath(os.path.join(code, each)) for each in sys.path]
    if not any((each + "/").startswith(code + "/") for each in sys.path):
        sys.path.insert(0, code)
    os.chdir(setup.get("inside") or ".")


def _enter(folder: str) -> None:
    """Enter the program's folder; if this machine does not have it, an empty one of the session."""
    try:
        os.chdir(folder)
    except OSError:
        os.chdir(SESSION / CODE)


def _unpack(archive: Path) -> None:
    """Unpack the code, unless another worker of the session did."""
    import shutil

    from fairlead.calls.parcel import extract

    folder = SESSION / CODE
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / UNPACKED).exists():
            return
        fresh = folder / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)  # of a killed worker
        fresh.mkdir()  # also if the code is empty
        extract(archive, fresh)
        fresh.rename(folder / UNPACKED)


def _end_with_parent() -> None:
    try:
        import ctypes
    except ImportError:  # this Python has no ctypes: the next supervisor ends what this one leaves
        return
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)


def _call(message: dict[str, Any], settle: Callable[[], None]) -> bool:
    """Call a function and write its result. Return whether it failed. `settle` runs before the first call."""
    from fairlead.calls import payloads

    job, index, payload = message["job"], message["index"], SESSION / message["payload"]
    result = SESSION / payloads.RESULTS / payloads.result_name(job, index)
    try:
        settle()
        pickled = payload.read_bytes() if message.get("alone") else payloads.read_call(payload, index)
        function, arguments, named = pickle.loads(pickled)  # noqa: S301 the user's own
        payloads.write_result(result, function(*arguments, **named))
    except BaseException as error:
        trace = traceback.format_exc()
        print(trace, file=sys.stderr, end="")
        _write_failure(result, error, trace)
        return True
    return False


def _write_failure(result: Path, error: BaseException, trace: str) -> None:
    from fairlead.calls import payloads

    try:
        try:
            payloads.write_result(result, error=error, trace=trace)
        except OSError:
            raise
        except BaseException as why:  # the exception cannot be pickled: send one with the same text
            substitute = RuntimeError(f"{type(error).__name__}: {error} (the exception itself cannot be pickled: {why})")
            payloads.write_result(result, error=substitute, trace=trace)
    except OSError as full:  # the client learns that there is no result; the task's output says why
        print(f"fairlead: the result cannot be written: {full}", file=sys.stderr)


if __name__ == "__main__":
    main()

"""A leased worker: a process that calls Python functions one after another, for one session, queue and shape, as their owner.

    PYTHON worker.py [elsewhere]

On file descriptor 3 the supervisor sends a JSON message per lease, with the files for its output, and one for how many calls it
made; the worker answers 0 if it ended well, else 1. File descriptor 4 is the session's folder, which it cannot reach by path.
It ends when the supervisor disconnects or dies.

It imports the modules of `preload` before its first lease takes calls. If the session has packed code, it is unpacked in the
session's folder and functions are called there. `elsewhere` means another machine than the program's: import paths that do not
exist are skipped.
"""

import fcntl
import importlib
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

LINE, FOLDER = 3, 4
SESSION = f"/proc/self/fd/{FOLDER}"
CODE, UNPACKED = "code", "files"
LONGEST_MESSAGE = 64 * 2**10


def main() -> None:
    for fd in (LINE, FOLDER):
        os.set_inheritable(fd, False)
    line = socket.socket(fileno=LINE)
    with open(f"{SESSION}/setup.json") as file:
        setup = json.load(file)
    elsewhere, settled = "elsewhere" in sys.argv[1:], False
    sys.path[:] = _import_path(setup, elsewhere)
    sys.argv = [""]

    def settle() -> None:
        nonlocal settled
        if not settled:
            _settle(setup, elsewhere)
            for name in setup.get("preload", ()):
                importlib.import_module(name)
        settled = True

    while True:
        text, files, _, _ = socket.recv_fds(line, LONGEST_MESSAGE, 3, socket.MSG_CMSG_CLOEXEC)
        if not text:
            return
        message = json.loads(text)
        *output, counts = files
        for target, fd in zip((1, 2), output, strict=True):
            os.dup2(fd, target)
            os.close(fd)
        os.environ.update(message["env"])
        failed = _serve(message, setup, settle, counts)
        os.close(counts)
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
            try:
                os.chdir(setup["cwd"])
            except OSError:  # this machine does not have it
                os.chdir(f"{SESSION}/{CODE}")
        return
    _unpack(f"{SESSION}/{setup['code']}")
    os.chdir(f"{SESSION}/{CODE}/{UNPACKED}")
    code = os.getcwd()
    if not os.access(code, os.R_OK | os.X_OK):  # the folders above are closed to people
        code = f"/proc/{os.getpid()}/fd/{FOLDER}/{CODE}/{UNPACKED}"
    sys.path[:] = [os.path.normpath(os.path.join(code, each)) for each in sys.path]
    if not any((each + "/").startswith(code + "/") for each in sys.path):
        sys.path.insert(0, code)
    os.chdir(setup.get("inside") or ".")


def _unpack(archive: str) -> None:
    """Unpack the code, unless another worker of the session did."""
    import shutil
    from pathlib import Path

    from fairlead.calls.parcel import extract

    folder = Path(SESSION, CODE)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / UNPACKED).exists():
            return
        fresh = folder / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)  # of a killed worker
        fresh.mkdir()  # also if the code is empty
        extract(Path(archive), fresh)
        fresh.rename(folder / UNPACKED)


def _serve(message: dict[str, Any], setup: dict[str, Any], settle: Callable[[], None], counts: int) -> bool:
    """Take calls of a lease until it ends. Return whether that failed. `settle` runs before the first."""
    from fairlead.calls import lease

    try:
        here = {"unix": setup["relay"], "uid": os.stat(f"{SESSION}/setup.json").st_uid}
        dial = {"relay": setup["secret"], **(message.get("dial") or here)}
        lease.serve(setup["address"], int(message["payload"]), dial, settle, counts)
    except BaseException:
        import traceback

        traceback.print_exc()
        return True
    return False


if __name__ == "__main__":
    main()

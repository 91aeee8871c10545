"""A process that calls Python functions, one after another, for one session, queue and shape, as the person whose these are.

    PYTHON worker.py

The supervisor tells it on file descriptor 3 which: a message of JSON for each call, with the files for what the function prints;
it answers 0 for one that returned and 1 for one that raised. File descriptor 4 is the session's folder, to which it has no other
way. It ends when the supervisor hangs up, or ends: while it waits for a call it is stopped, and would not hear of that.
"""

import json
import os
import pickle
import signal
import socket
import sys
import traceback
from pathlib import Path

LINE, FOLDER = 3, 4
SESSION = Path(f"/proc/self/fd/{FOLDER}")
LONGEST_MESSAGE = 64 * 2**10


def main() -> None:
    _end_with_parent()
    for fd in (LINE, FOLDER):
        os.set_inheritable(fd, False)
    line = socket.socket(fileno=LINE)
    setup = json.loads((SESSION / "setup.json").read_text())
    sys.path[:] = setup["path"]
    sys.argv = [""]
    while True:
        text, files, _, _ = socket.recv_fds(line, LONGEST_MESSAGE, 2, socket.MSG_CMSG_CLOEXEC)
        if not text:
            return
        message = json.loads(text)
        for target, fd in zip((1, 2), files, strict=True):
            os.dup2(fd, target)
            os.close(fd)
        os.environ.update(message["env"])
        failed = _call(SESSION, message["payload"], message["job"], message["index"])
        sys.stdout.flush()
        sys.stderr.flush()
        line.send(b"1\n" if failed else b"0\n")


def _end_with_parent() -> None:
    try:
        import ctypes
    except ImportError:  # this Python was built without it: the next supervisor ends what the last one left
        return
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)


def _call(session: Path, payload: str, job: int, index: int) -> bool:
    """Call a function and write its result; whether it failed."""
    from fairlead.engines import calls

    result = session / calls.RESULTS / calls.result_name(job, index)
    try:
        function, arguments, named = pickle.loads(calls.read_call(session / payload, index))  # noqa: S301 the user's own
        calls.write_result(result, function(*arguments, **named))
    except BaseException as error:
        trace = traceback.format_exc()
        print(trace, file=sys.stderr, end="")
        _write_failure(result, error, trace)
        return True
    return False


def _write_failure(result: Path, error: BaseException, trace: str) -> None:
    from fairlead.engines import calls

    try:
        try:
            calls.write_result(result, error=error, trace=trace)
        except OSError:
            raise
        except BaseException as why:  # an exception that cannot be pickled: one that says the same
            told = RuntimeError(f"{type(error).__name__}: {error} (the exception itself cannot be pickled: {why})")
            calls.write_result(result, error=told, trace=trace)
    except OSError as full:  # the program is told that there is no result; why is in the task's output
        print(f"fairlead: the result cannot be written: {full}", file=sys.stderr)


if __name__ == "__main__":
    main()

"""A process that calls Python functions, one after another, for one session, queue and shape.

    PYTHON worker.py

The supervisor tells it on file descriptor 3 which: a line of JSON for each call; it answers 0 for one that returned and 1 for one
that raised. What the function prints goes to the task's own output files. It ends when the supervisor hangs up.
"""

import json
import os
import pickle
import socket
import sys
import traceback
from pathlib import Path

LINE = 3


def main() -> None:
    os.set_inheritable(LINE, False)
    stream = socket.socket(fileno=LINE).makefile("rwb")
    ready = False
    for line in stream:
        message = json.loads(line)
        session = Path(message["session"])
        if not ready:
            sys.path[:] = json.loads((session / "setup.json").read_text())["path"]
            sys.argv = [""]
            ready = True
        _write_to(message["output"])
        os.environ.update(message["env"])
        failed = _call(session, message["payload"], message["job"], message["index"])
        sys.stdout.flush()
        sys.stderr.flush()
        stream.write(b"1\n" if failed else b"0\n")
        stream.flush()


def _write_to(output: str) -> None:
    for name, target in (("out", 1), ("err", 2)):
        fd = os.open(f"{output}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(fd, target)
        os.close(fd)


def _call(session: Path, payload: str, job: int, index: int) -> bool:
    """Call a function and write its result; whether it failed."""
    from fairlead.engines import calls

    result = session / calls.result_name(job, index)
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

"""Runs a Ray program as a job: makes its placement group, runs it, and ends as it does.

    python -m fairlead.ray.program COMMAND [ARG]...

It is the first task of the job's gang; the others hold room on their nodes. This process is the Ray driver that owns the group,
so Ray removes the group whenever it ends. Signals to the job are for the program; this process ends after it.
"""

import json
import os
import signal
import subprocess
import sys
from typing import Any

from fairlead.ray.names import GROUP, GROUP_WANTED
from fairlead.ray.standstill import ENDED_BY, PATIENCE, Standstill, patience

FIRST_WORD_AFTER, LAST_WORD_AFTER = 5.0, 60.0
"""Seconds of waiting for Ray before the first message, and at most between two messages."""
LOOK_EVERY = 10.0
"""Seconds between two looks whether the program waits in vain."""
STOP_WITHIN = 10.0
"""Seconds between SIGTERM and SIGKILL for a program that does."""
FOR_THE_PROGRAM = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)
"""Signals that a task may be stopped by; the program gets them too."""


def main() -> int:
    """Run the program given as arguments. Return its exit status."""
    wanted = json.loads(os.environ.pop(GROUP_WANTED))
    try:
        may_wait = patience()
    except ValueError:
        sys.stderr.write(f"fairlead: {PATIENCE}={os.environ[PATIENCE]}: write seconds, such as 300, or inf\n")
        return 2
    import ray

    ray.init(address=os.environ["RAY_ADDRESS"], namespace="fairlead", log_to_driver=False, configure_logging=False)
    for number in FOR_THE_PROGRAM:
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    group = make_group(wanted["bundle"], wanted["nodes"])
    for number in FOR_THE_PROGRAM:
        signal.signal(number, lambda number, frame: None)
    try:
        program = subprocess.Popen(sys.argv[1:], env={**os.environ, GROUP: group.id.hex()})
    except OSError as error:
        sys.stderr.write(f"fairlead: {sys.argv[1]}: {error.strerror}\n")
        return 127
    status = wait_for(program, Standstill(group, program.pid), may_wait)
    ray.shutdown()  # the group ends with the driver
    if status < 0:
        end_by(-status)
    return status


def wait_for(program: "subprocess.Popen[bytes]", standstill: Standstill, may_wait: float) -> int:
    """Wait for the program to end; stop it if it waits in vain for too long. Return its wait status."""
    while True:
        try:
            return program.wait(min(LOOK_EVERY, may_wait / 4))
        except subprocess.TimeoutExpired:
            if standstill.seconds() <= may_wait:
                continue
        program.terminate()
        try:
            program.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
        sys.stderr.write(
            f"fairlead: stopped: for {may_wait:g} s this program asked Ray for room outside its placement group, got none, "
            "and used none of the group: have it ask inside, as docs/ray.md says for each of Ray's libraries; "
            f"{PATIENCE} sets how long\n"
        )
        return -signal.Signals[ENDED_BY]


def end_by(number: int) -> None:
    """End by a signal, as the program did."""
    if number != signal.SIGKILL:  # SIGKILL cannot be handled
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)


def make_group(bundle: dict[str, float], nodes: list[str]) -> Any:
    """Make a placement group with one bundle on each of these nodes (repeats allowed); waits until Ray has room."""
    from ray.util.placement_group import placement_group

    where = [{"ray.io/node-id": node} for node in nodes]
    group = placement_group([bundle] * len(nodes), bundle_label_selector=where)
    pause = FIRST_WORD_AFTER
    while not group.wait(pause):
        sys.stderr.write("fairlead: waiting for Ray: something else uses what this job was given\n")
        pause = min(LAST_WORD_AFTER, 2 * pause)
    return group


if __name__ == "__main__":
    sys.exit(main())

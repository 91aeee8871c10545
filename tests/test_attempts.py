"""What a task printed in several attempts, and where each of them begins."""

import os
import pty
import subprocess

from conftest import FAIRLEAD, Live, supervisor_of


def on_a_terminal(world, *command):
    """What a command prints to a terminal."""
    ours, theirs = pty.openpty()
    done = subprocess.Popen([FAIRLEAD, *command], env=world.env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert done.wait(60) == 0
    return shown.decode().replace("\r\n", "\n")


def test_attempts_are_separated_on_a_terminal_and_nowhere_else(tmp_path):
    with Live(tmp_path) as world:
        world.up()
        each = "echo out $FAIRLEAD_NUMBER; echo err $FAIRLEAD_NUMBER >&2; touch ran.$FAIRLEAD_NUMBER; "
        each += "test $FAIRLEAD_NUMBER = 3 || sleep 100"
        job = world.submit("--queue", "A", "--", "sh", "-c", each)
        for number in (1, 2):
            world.until(lambda number=number: (tmp_path / f"ran.{number}").exists())
            (supervisor,) = supervisor_of(world.home)
            supervisor.kill()
        world.ok("wait", str(job))
        assert world.ok("logs", str(job)) == "out 1\nout 2\nout 3\n"
        headed = [f"{name} 1\n--- attempt 2 ---\n{name} 2\n--- attempt 3 ---\n{name} 3\n" for name in ("out", "err")]
        assert on_a_terminal(world, "logs", str(job)) == "".join(headed)
        once = world.submit("--queue", "A", "--", "echo", "once")
        world.ok("wait", str(once))
        assert on_a_terminal(world, "logs", str(once)) == "once\n"
        unended = world.submit("--queue", "A", "--retries", "1", "--", "sh", "-c", "printf $FAIRLEAD_NUMBER; exit 1")
        world.call("wait", str(unended))
        assert on_a_terminal(world, "logs", str(unended)) == "1\n--- attempt 2 ---\n2"
        assert world.ok("logs", str(unended)) == "12"

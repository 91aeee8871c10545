"""Ctrl-C where Python would lose it."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from fairlead.interrupts import defer_interrupts

FINALIZER = """
import time
from fairlead.interrupts import handle_interrupts
handle_interrupts()
class Slow:
    def __del__(self):
        print("now", flush=True)
        nap()
def nap():
    for _ in range(600):  # Python heeds a signal between two calls; one that comes as a sleep begins waits for its end
        time.sleep(0.1)
try:
    slow = Slow()
    del slow
    nap()
except KeyboardInterrupt:
    print("heeded")
"""
ENDED = """
import threading, time
from fairlead.interrupts import handle_interrupts
class Told:
    def end(self):
        print("told")
told, gone = Told(), Told()
handle_interrupts(told.end)
handle_interrupts(gone.end)
del gone
threading._register_atexit(lambda: (print("now", flush=True), [time.sleep(0.1) for _ in range(600)]))
"""


@pytest.mark.parametrize(("program", "said"), [(FINALIZER, "heeded\n"), (ENDED, "told\n")])
def test_an_interrupt_that_python_cannot_raise_is_heeded(program, said):
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "now\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[0] == said


def test_an_interrupt_that_is_put_off_comes_at_the_end_whichever_thread_the_kernel_gives_it_to():
    done, over = [], threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    before = signal.getsignal(signal.SIGINT)

    def interrupted() -> None:
        with defer_interrupts():
            subprocess.run(["kill", "-INT", str(os.getpid())], check=True)
            time.sleep(0.05)
            done.append(1)

    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        over.set()
        other.join()
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()

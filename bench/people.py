"""Start tasks as another user and as oneself: the local engine alone, one `true` after another.

For another user, account and groups are looked up, and files change their owner. That needs root; otherwise only oneself is
measured.
"""

import os
import pwd
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from fairlead.engines.contract import Attempts, Launches
from fairlead.engines.local.engine import LocalEngine
from fairlead.model.specs import Job, Node, Work


def _ends(engine: LocalEngine, person: pwd.struct_passwd, tasks: int) -> list[float]:
    """Return the milliseconds from the start call to the end of each task, sequentially."""
    took = []
    job = Job("q", {"cpu": 1000}, user=person.pw_name, uid=person.pw_uid, work=Work(["true"], "/"))
    for number in range(1, tasks + 1):
        attempts = Attempts(*(np.array([value]) for value in (number, 0, 1)))
        began = time.perf_counter()
        engine.start(Launches(attempts, np.zeros(1, np.int64), ["here"], {number: job}))
        while not len((seen := engine.poll()).ended.code):
            time.sleep(0.0002)
        took.append(1000 * (time.perf_counter() - began))
        if seen.ended.outcome[0] or seen.ended.code[0]:
            raise RuntimeError(f"`true` as {person.pw_name} came out as {seen.ended}")
        engine.acknowledge(attempts)
    return took


def run(tasks: int = 300) -> None:
    """Print both, in turns."""
    me = pwd.getpwuid(os.geteuid())
    people = [(me, False)] if me.pw_uid else [(me, False), (pwd.getpwnam("nobody"), True)]
    for person, as_people in people * 2:
        with tempfile.TemporaryDirectory() as folder:
            engine = LocalEngine(Path(folder), [Node("here", {"cpu": 1000})], as_people=as_people)
            engine.serve("bench", 1)
            while engine.poll().known is None:
                time.sleep(0.001)
            took = sorted(_ends(engine, person, tasks))
            engine.close(leave=True)
            engine.join(10)
        p99 = took[int(len(took) * 0.99)]
        print(
            f"people     `true`, started and ended, as {person.pw_name:<8} p50 {statistics.median(took):.2f} ms  p99 {p99:.2f} ms"
        )

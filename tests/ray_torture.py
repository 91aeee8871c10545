"""Torture over machines: four real raylets, to which is done what happens to machines, while people submit.

`make ray-torture` does each fault once, which takes some minutes; `python tests/ray_torture.py FAULT...` those that are named.
In the end whatever was acknowledged is done, and nothing was done twice, but for a machine that was frozen: what runs there at
that moment may end beside what replaced it.
"""

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import psutil
from bench.ray_trial import Trial

from ray_cluster import SOONER, Cluster, end_supervisors

ATTEMPT = "$FAIRLEAD_JOB.$FAIRLEAD_INDEX"
TASK = f"echo start {ATTEMPT}.$FAIRLEAD_NUMBER >> ran; sleep 2; echo end {ATTEMPT} >> ran"
NODES = [f"try-{number}" for number in range(1, 5)]
VICTIM = "try-3"


def a_node_is_killed(cluster):
    """Its raylet; the machine lives, and its supervisor ends what runs there."""
    cluster.raylet(VICTIM).kill()
    cluster.until(lambda: VICTIM in cluster.nodes("lost"), 120)


def a_node_is_stopped_and_thawed(cluster):
    """All of it, until its tasks run elsewhere."""
    supervisor = cluster.supervisor_on(VICTIM)
    all_of_it = [each for top in (cluster.raylet(VICTIM), supervisor) for each in (top, *top.children(recursive=True))]
    for process in all_of_it:
        process.send_signal(signal.SIGSTOP)
    cluster.until(lambda: VICTIM in cluster.nodes("lost"), 120)
    time.sleep(2)
    for process in all_of_it:
        if process.is_running():
            process.send_signal(signal.SIGCONT)


def the_head_is_gone_for_5_s(cluster):
    the_head_is_gone(cluster, 5)
    assert sorted(cluster.nodes("up")) == NODES, "nobody noticed"


def the_head_is_gone_for_70_s(cluster):
    """Raylets end after 60; the scheduler's own lines hold what runs until the head is back and says that they are dead."""
    the_head_is_gone(cluster, 70)


def the_head_is_gone(cluster, seconds):
    head = cluster.process_of("gcs_server")
    head.suspend()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert cluster.ok("run", "--cpu", "1", "--priority", "1", "--", "echo", "meanwhile") == "meanwhile\n"
    head.resume()


def the_head_is_killed_and_started_again(cluster):
    """With its node. What it knew is in memory: it finds none of the others, and what ran there runs again."""
    kill_the_head_and_start_it_again(cluster)
    cluster.until(lambda: sorted(cluster.nodes("lost")) == NODES[1:], 120)


def the_head_is_killed_and_started_again_with_its_storage_on_disk(cluster):
    """With its node: it finds all others as they were, and their tasks have not noticed."""
    kill_the_head_and_start_it_again(cluster)
    cluster.until(lambda: is_whole(cluster), 120)
    assert sorted(cluster.nodes("up")) == NODES


def kill_the_head_and_start_it_again(cluster):
    cluster.raylet(NODES[0]).kill()
    cluster.process_of("gcs_server").kill()
    for _ in range(5):
        assert cluster.ok("run", "--cpu", "1", "--priority", "1", "--", "echo", "meanwhile") == "meanwhile\n"
    Trial(cluster.home).start_node_again(1, len(NODES))


def is_whole(cluster):
    """Whether the head answers, and has all nodes."""
    found = {each["thing"]: each for each in json.loads(cluster.call("doctor", "--json").stdout)["found"]}
    return found["ray"]["how"] != "wrong" and f"{len(NODES)} nodes" in found["ray"]["what"]


FAULTS = [
    a_node_is_killed,
    a_node_is_stopped_and_thawed,
    the_head_is_gone_for_5_s,
    the_head_is_gone_for_70_s,
    the_head_is_killed_and_started_again,
    the_head_is_killed_and_started_again_with_its_storage_on_disk,
]


def mend(cluster):
    """Start raylets again where they have ended."""
    trial = Trial(cluster.home)
    until = time.monotonic() + 180
    while sorted(cluster.nodes("up")) != NODES:
        assert time.monotonic() < until, (cluster.ask("nodes"), cluster.log.read_text())
        time.sleep(3)
        for number, name in enumerate(NODES, 1):
            if name not in cluster.nodes("up") and not runs(cluster, name):
                trial.start_node_again(number, len(NODES))


def runs(cluster, name):
    try:
        return cluster.raylet(name).status() != psutil.STATUS_ZOMBIE
    except (AssertionError, psutil.NoSuchProcess):
        return False


def submit(cluster, over, acknowledged):
    while not over.is_set():
        acknowledged.append(cluster.submit("--cpu", "1", "-n", "4", "--cwd", str(cluster.folder), "--", "sh", "-c", TASK))
        over.wait(2)


def check(cluster, acknowledged, frozen):
    """Each task ended well, and once."""
    for job in acknowledged:
        cluster.until(lambda job=job: cluster.job(job)["succeeded"] == 4, 300)
    lines = [line.split() for line in (cluster.folder / "ran").read_text().splitlines()]
    starts = Counter(what for how, what in lines if how == "start")
    ends = Counter(what for how, what in lines if how == "end")
    assert max(starts.values()) == 1, f"an attempt ran twice: {starts.most_common(3)}"
    assert set(ends) == {f"{job}.{index}" for job in acknowledged for index in range(4)}
    twice = [task for task, count in ends.items() if count > 1]
    assert not twice or frozen, f"done twice: {twice}"
    return len(ends), len(starts) - len(ends), len(twice)


def main():
    os.environ["PYTHONPATH"] = ""
    chosen = [fault for fault in FAULTS if not sys.argv[1:] or fault.__name__ in sys.argv[1:]]
    for fault in chosen:
        with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder)) as cluster:
            on_disk = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": f"{folder}/head"}
            for name in on_disk:
                os.environ.pop(name, None)
            more = on_disk if "on_disk" in fault.__name__ else {}
            os.environ |= SOONER | more
            cluster.env |= more
            os.environ["FAIRLEAD_HOME"] = str(cluster.home)  # of raylets that are started again
            cluster.lost_after = "10"
            try:
                cluster.start_up()
                over, acknowledged = threading.Event(), []
                person = threading.Thread(target=submit, args=(cluster, over, acknowledged))
                person.start()
                try:
                    time.sleep(3)
                    fault(cluster)
                    mend(cluster)
                finally:
                    over.set()
                    person.join()
                done, again, twice = check(cluster, acknowledged, "thawed" in fault.__name__)
                said = f"{done} tasks done, {again} begun anew, {twice} ended beside their replacement"
                print(f"{fault.__name__.replace('_', ' ')}: {said}", flush=True)
            finally:
                cluster.kill()
                Trial(cluster.home).end()
                end_supervisors(cluster)


if __name__ == "__main__":
    main()

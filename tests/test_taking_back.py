"""Taking back with real processes: what is told to stop keeps what it has done, and goes on with it when it is its turn again."""

import re
import time

import pytest

import fairlead
from conftest import FAIRLEAD, Live
from fairlead import Client

CONFIG = """
[[queue]]
name = "vision"
guarantee = { gpu = 1 }
guarantee_timeout = 0.2

[[queue]]
name = "batch"
grace = "30s"

[[node]]
name = "n1"
capacity = { cpu = 8, memory = "8Gi", gpu = 2 }
"""

KEEPS = f"""
n=$(cat kept.$FAIRLEAD_INDEX 2>/dev/null || echo 0)
echo "attempt $FAIRLEAD_NUMBER ${{FAIRLEAD_RESUMED:-new}} from $n"
trap 'echo $n > kept.$FAIRLEAD_INDEX; exit 0' USR1
if [ $FAIRLEAD_INDEX = 0 ]; then {FAIRLEAD} checkpointed; fi
while [ ! -e go ]; do n=$((n + 1)); sleep 0.02; done
"""
"""Counts, and keeps how far it came when it is told to stop. The first says once that it has kept all so far."""

HOLDS_OUT = "trap '' TERM; echo $FAIRLEAD_NUMBER; touch up.$FAIRLEAD_INDEX; [ $FAIRLEAD_NUMBER = 2 ] || sleep 300 & wait"
"""Does not end when it is told to; the second time at once."""

WAITS = "while [ ! -e vision-done ]; do sleep 0.02; done"


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    with Live(tmp_path_factory.mktemp("taking-back")) as live:
        live.config.write_text(CONFIG)
        live.up()
        yield live


@pytest.fixture
def world(there, tmp_path):
    """The scheduler of the file, and a folder of the test's own."""
    there.folder = tmp_path
    yield there
    for queue in ("batch", "vision"):
        there.call("cancel", "-q", queue)
    there.until(lambda: not any(queue["running"] for queue in there.ask("queues")["queues"]))


def task(live, job, index=0):
    return live.ask(f"jobs/{job}/tasks")["tasks"][index]


def submit(live, queue, script, *more):
    return live.submit("-q", queue, "--gpu", "1", "--cpu", "1", *more, "--", "sh", "-c", script)


def test_who_has_kept_what_it_did_is_revoked_and_goes_on_with_it(world):
    batch = submit(world, "batch", KEEPS, "-n", "2", "--signal", "usr1")
    world.until(lambda: task(world, batch)["checkpointed_at"] is not None)
    assert world.job(batch)["signal"] == "SIGUSR1"
    vision = submit(world, "vision", WAITS)
    world.until(lambda: world.job(vision)["running"] == 1)
    assert re.search(
        r"^revoked +at \d\d:\d\d for vision, which had 0 of its 1 guaranteed gpu$", world.ok("job", str(batch)), re.MULTILINE
    )
    assert [task(world, batch, k)["status"] for k in (0, 1)] == ["waiting", "running"]
    kept = int((world.folder / "kept.0").read_text())
    (world.folder / "vision-done").touch()
    world.until(lambda: task(world, batch)["status"] == "running")
    (world.folder / "go").touch()
    world.until(lambda: world.job(batch)["status"] == "succeeded")
    assert world.ok("logs", f"{batch}.0").splitlines() == ["attempt 1 new from 0", f"attempt 2 1 from {kept}"]
    assert [task(world, batch, k)["attempt"] for k in (0, 1)] == [2, 1]
    assert f"revoked 1 task of job {batch} for vision, which had 0" in world.log.read_text()


def test_what_is_asked_for_is_kept_and_a_wrong_signal_is_told(world):
    job = submit(world, "batch", "true", "--revocable", "--signal", "INT", "--hold")
    told = world.job(job)
    assert (told["revocable"], told["signal"]) == (True, "SIGINT")
    assert re.search(r"^revocable +before jobs that are not$", world.ok("job", str(job)), re.MULTILINE)
    again = int(world.ok("rerun", str(job)))
    assert (world.job(again)["revocable"], world.job(again)["signal"]) == (True, "SIGINT")
    for name in ("KILL", "soon"):
        refused = world.call("submit", "-q", "batch", "--signal", name, "--", "true")
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert f"{name!r} is not a signal that a program can handle: use one such as TERM, INT or USR1" in refused.stderr
    with Client(world.home) as client:
        mine = client.submit_job(["true"], queue="batch", signal="USR2", revocable=True, grace=1.5)
        assert [mine.info()[what] for what in ("signal", "revocable", "grace")] == ["SIGUSR2", True, 1.5]
        mine.wait(60)


def test_a_scheduler_that_is_killed_during_the_grace_goes_on_with_it(world):
    """The grace goes on without it: when it is back, what it told to stop is gone, and who was to have the room has it."""
    batch = submit(world, "batch", HOLDS_OUT, "-n", "2", "--grace", "0.5s")
    world.until(lambda: all((world.folder / f"up.{k}").exists() for k in (0, 1)))
    vision = submit(world, "vision", WAITS)
    world.until(lambda: world.job(batch)["revoked"] is not None)
    world.kill()
    world.up()
    world.until(lambda: world.job(vision)["running"] == 1)
    told = world.job(batch)
    assert (told["revoked"]["tasks"], told["failed"], told["waiting"], told["running"]) == (1, 0, 1, 1)
    (world.folder / "vision-done").touch()
    world.until(lambda: world.job(batch)["succeeded"] == 1)
    found = sorted(task(world, batch, k)["attempt"] for k in (0, 1))
    assert found == [1, 2]
    (back,) = [k for k in (0, 1) if task(world, batch, k)["attempt"] == 2]
    assert world.ok("logs", f"{batch}.{back}") == "1\n2\n"


def keeps(folder):
    fairlead.checkpointed()
    (folder / "kept").touch()
    while not (folder / "enough").exists():
        time.sleep(0.02)
    return 7


def test_a_function_says_that_it_has_kept_what_it_did(world):
    with Client(world.home, queue="batch", memory="256Mi") as client:
        future = client.submit(keeps, world.folder)
        world.until((world.folder / "kept").exists)
        job = world.newest()
        world.until(lambda: task(world, job)["checkpointed_at"] is not None)
        (world.folder / "enough").touch()
        assert future.result(60) == 7


@pytest.mark.parametrize("variable", ["", "/nowhere/at/all"])
def test_who_is_no_task_is_told_so(monkeypatch, variable):
    monkeypatch.setenv("FAIRLEAD_CHECKPOINT", variable)
    with pytest.raises(fairlead.ServiceError, match="FAIRLEAD_CHECKPOINT"):
        fairlead.checkpointed()

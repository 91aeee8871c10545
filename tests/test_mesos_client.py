"""The real pymesos, unchanged, as a client: tasks by the hundred, kills, reconciliation, failover; with a secret and without."""

import threading
import time

import pytest
from bench import real_pymesos

from conftest import Live
from mesos_wire import Wire
from test_mesos_wire import CONFIG, port_of

TASKS = 300
"""Commands of the long run; 1,000 take the same path, and three times as long."""


@pytest.fixture(scope="module")
def pymesos():
    return real_pymesos.load()


@pytest.fixture
def live(tmp_path):
    with Live(tmp_path) as world:
        world.config.write_text(CONFIG)
        yield world


class Scheduler:
    """Launches commands in whatever it is offered, and notes what becomes of them."""

    def __init__(self, commands):
        self.commands, self.waiting = commands, list(commands.items())
        self.states, self.heard = {}, []
        self.changed = threading.Condition()
        self.registered_as, self.came_back, self.errors = None, 0, []

    def __getattr__(self, name):
        """What is not listened to."""
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: self.heard.append(name)

    def registered(self, driver, framework, master):
        self.registered_as = framework["value"]

    def reregistered(self, driver, master):
        self.came_back += 1

    def error(self, driver, message):
        self.errors.append(message)

    def resourceOffers(self, driver, offers):
        for offer in offers:
            left = {each["name"]: each["scalar"]["value"] for each in offer["resources"] if "scalar" in each}
            tasks = []
            while self.waiting and left.get("cpus", 0) >= 0.1 and left.get("mem", 0) >= 16:
                name, command = self.waiting.pop()
                left["cpus"], left["mem"] = round(left["cpus"] - 0.1, 3), left["mem"] - 16
                tasks.append(_task(name, command, offer))
            driver.launchTasks(offer["id"], tasks, {"refuse_seconds": 0 if self.waiting else 3600})

    def statusUpdate(self, driver, status):
        task = status["task_id"]["value"]
        with self.changed:
            self.states.setdefault(task, []).append(status["state"])
            if self.states[task] == ["TASK_LOST"]:  # its offer was rescinded meanwhile: launched in another one
                del self.states[task]
                self.waiting.append((task, self.commands[task]))
                driver.reviveOffers()
            self.changed.notify_all()

    def wait(self, condition, seconds=60):
        deadline = time.monotonic() + seconds
        with self.changed:
            while not condition():
                left = deadline - time.monotonic()
                assert left > 0, (self.states, self.errors)
                self.changed.wait(min(left, 0.5))

    def ended(self, state):
        return [task for task, states in self.states.items() if states[-1] == state]


def _task(name, command, offer):
    amounts = {"cpus": 0.1, "mem": 16}
    resources = [{"name": key, "type": "SCALAR", "scalar": {"value": value}} for key, value in amounts.items()]
    named = {"task_id": {"value": name}, "agent_id": offer["agent_id"], "name": name}
    return {**named, "resources": resources, "command": {"value": command}}


def driver_of(pymesos, scheduler, port, framework, **more):
    return pymesos.MesosSchedulerDriver(scheduler, framework, f"127.0.0.1:{port}", timeout=60, **more)


def framework():
    capabilities = [{"type": "MULTI_ROLE"}]
    return {"user": "", "name": "pymesos", "roles": ["A", "B"], "capabilities": capabilities, "failover_timeout": 100.0}


def test_hundreds_of_commands_kills_and_reconciliation(live, pymesos):
    live.up("--mesos", "127.0.0.1:0")
    commands = {f"t{n}": "sleep 600" if n < 5 else "true" for n in range(TASKS)}
    scheduler = Scheduler(commands)
    driver = driver_of(pymesos, scheduler, port_of(live), framework())
    driver.start()
    try:
        scheduler.wait(lambda: scheduler.registered_as)
        job = live.submit("-q", "B", "--cpu", "1", "--", "sleep", "600")
        scheduler.wait(lambda: len(scheduler.ended("TASK_FINISHED")) == TASKS - 5)
        scheduler.wait(lambda: len(scheduler.ended("TASK_RUNNING")) == 5)
        assert live.job(job)["status"] == "running"
        for n in range(3):
            driver.killTask({"value": f"t{n}"})
        scheduler.wait(lambda: len(scheduler.ended("TASK_KILLED")) == 3)
        before = {task: len(states) for task, states in scheduler.states.items()}
        driver.reconcileTasks([])
        scheduler.wait(lambda: all(len(scheduler.states[f"t{n}"]) > before[f"t{n}"] for n in (3, 4)))
        assert all(states[-1] == "TASK_RUNNING" for task, states in scheduler.states.items() if task in ("t3", "t4"))
        whole = {tuple(dict.fromkeys(states)) for task, states in scheduler.states.items() if task not in ("t3", "t4")}
        assert whole <= {("TASK_STARTING", "TASK_RUNNING", end) for end in ("TASK_FINISHED", "TASK_KILLED")}
        assert not scheduler.errors
    finally:
        driver.stop()
        driver.join()
    live.until(lambda: not Wire(port_of(live)).get("/frameworks")["frameworks"])


def test_both_sides_fail_over(live, pymesos, tmp_path):
    secrets = tmp_path / "principals.toml"
    secrets.write_text('[[principal]]\nname = "me"\nsecret = "mine"\n')
    secrets.chmod(0o600)
    options = ("--mesos-principals", str(secrets))
    live.up("--mesos", "127.0.0.1:0", *options)
    port = port_of(live)
    described = framework()
    first = Scheduler({"a": "sleep 600", "b": "true"})
    driver = driver_of(pymesos, first, port, described, principal="me", secret="mine")
    driver.start()
    first.wait(lambda: first.ended("TASK_FINISHED") == ["b"] and first.ended("TASK_RUNNING") == ["a"])
    driver.stop(failover=True)
    driver.join()
    second = Scheduler({"c": "true"})
    driver = driver_of(pymesos, second, port, {**described, "id": {"value": first.registered_as}}, principal="me", secret="mine")
    driver.start()
    try:
        second.wait(lambda: second.ended("TASK_FINISHED") == ["c"])
        driver.reconcileTasks([])
        second.wait(lambda: second.ended("TASK_RUNNING") == ["a"])
        live.kill()
        live.up("--mesos", f"127.0.0.1:{port}", *options)
        second.wait(lambda: second.came_back >= 2)
        driver.killTask({"value": "a"})
        second.wait(lambda: second.ended("TASK_KILLED") == ["a"])
        assert second.registered_as is None
        assert not second.errors
    finally:
        driver.stop()
        driver.join()

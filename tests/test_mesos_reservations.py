"""Reservations and volumes over Mesos' wire: made, used, kept while the scheduler is away, destroyed; by sockets and pymesos."""

import json
import threading

import pytest
from bench import real_pymesos

from conftest import Live
from mesos_wire import Wire, task
from test_mesos_executors import offer_on
from test_mesos_wire import CONFIG, port_of


def reserved(name, value, role="B", **more):
    """An amount as it is reserved, in the way of those who know no stacks."""
    return {
        "name": name,
        "type": "SCALAR",
        "scalar": {"value": value},
        "role": role,
        "reservation": {"labels": {"labels": [{"key": "k", "value": "v"}]}},
        **more,
    }


def volume(name="vol", path="data", size=64):
    disk = {"persistence": {"id": name}, "volume": {"container_path": path, "mode": "RW"}}
    return reserved("disk", size, disk=disk)


def operation(kind, *resources, **more):
    field = "volumes" if kind in ("CREATE", "DESTROY") else "resources"
    return {"type": kind, kind.lower(): {field: list(resources), **more}, "id": {"value": kind.lower()}}


def launch(*tasks):
    return {"type": "LAUNCH", "launch": {"task_infos": list(tasks)}}


def using(name, command, offer, *resources):
    made = task(name, command, offer)
    return {**made, "resources": [*resources, *made["resources"]]}


def answer(framework, offer, *operations):
    """Accept an offer, or several; what became of each operation with an id."""
    ids = [each["id"] for each in (offer if isinstance(offer, list) else [offer])]
    body = {"offer_ids": ids, "operations": list(operations), "filters": {"refuse_seconds": 0}}
    assert framework.call("ACCEPT", **body).status == 202
    known = [each for each in operations if "id" in each]
    told = [framework.wait_for("UPDATE_OPERATION_STATUS")["status"] for _ in known]
    return [(each["state"], each.get("message", "")) for each in told]


def of_role(offer, role="B"):
    """What of an offer is reserved, by name and the id of a volume."""
    found = [each for each in offer["resources"] if each.get("role") == role]
    return {(each["name"], each.get("disk", {}).get("persistence", {}).get("id")): each for each in found}


DONE = ("OPERATION_FINISHED", "")


@pytest.fixture
def live(tmp_path):
    with Live(tmp_path) as world:
        world.config.write_text(CONFIG)
        world.up("--mesos", "127.0.0.1:0")
        yield world


def test_a_volume_outlives_its_task_and_the_scheduler(live):
    info = {"failover_timeout": 600.0, "roles": ["B"]}
    keep, rest = reserved("disk", 36), reserved("cpus", 1)
    with Wire(port_of(live)).subscribed(info) as framework:
        offer = offer_on(framework.welcome(), "n2")
        write = using("writer", "echo kept > data/file && pwd -P > data/where", offer, volume(), reserved("cpus", 0.5))
        made = operation("RESERVE", reserved("disk", 100), rest), operation("CREATE", volume()), launch(write)
        assert answer(framework, offer, *made) == [DONE, DONE]
        assert framework.last("writer")["state"] == "TASK_FINISHED"
        identity = framework.id
        live.kill()
    live.up("--mesos", "127.0.0.1:0")
    wire = Wire(port_of(live))
    with wire.subscribed({**info, "id": {"value": identity}}) as framework:
        offer = offer_on(framework.welcome(), "n2")
        there = of_role(offer)
        assert there["disk", "vol"]["disk"] == volume()["disk"]
        assert there["disk", None]["scalar"] == keep["scalar"]
        assert there["cpus", None]["reservation"] == rest["reservation"]
        elsewhere = volume(path="a/b")
        read = using("reader", "test $(cat a/b/file) = kept && rm a/b/file", offer, elsewhere)
        again = using("again", "true", offer, volume())
        assert answer(framework, offer, launch(read, again)) == []
        assert framework.status("again")["state"] == "TASK_ERROR"
        assert framework.last("reader")["state"] == "TASK_FINISHED"
        (agent,) = [each for each in wire.get("/slaves")["slaves"] if each["id"] == "n2"]
        assert agent["reserved_resources"]["B"] == {"cpus": 1.0, "mem": 0, "disk": 100.0, "gpus": 0}
        (folder,) = [each for each in (live.home / "volumes").iterdir() if each.name != "aside"]
        assert (folder / "where").exists()
        offer = whole(framework)
        back = operation("DESTROY", volume()), operation("UNRESERVE", reserved("disk", 100), rest)
        assert answer(framework, offer, *back) == [DONE, DONE]
        assert not folder.exists()
        offer = offer_on(framework, "n2")
        assert not of_role(offer)
        assert framework.call("TEARDOWN").status == 202


def whole(framework):
    """Offers of n2 with all that is reserved there."""
    offers = [offer_on(framework, "n2")]
    while len({key for offer in offers for key in of_role(offer)}) < 3:
        offers.append(offer_on(framework, "n2"))
    return offers


def test_operators_reserve_and_give_back_what_nobody_else_would(live):
    wire = Wire(port_of(live))

    def ask(kind, *resources, node="n2"):
        things = "volumes" if kind.endswith("VOLUMES") else "resources"
        call = {"type": kind, kind.lower(): {"agent_id": {"value": node}, things: list(resources)}}
        return wire.post(call, path="/api/v1").status

    assert ask("RESERVE_RESOURCES", reserved("disk", 100), reserved("cpus", 1)) == 202
    assert ask("CREATE_VOLUMES", volume()) == 202
    with wire.subscribed({"roles": ["B"]}) as framework:
        offer = offer_on(framework.welcome(), "n2")
        assert {*of_role(offer)} == {("disk", None), ("disk", "vol"), ("cpus", None)}
        framework.launch(offer, using("writer", "touch data/file", offer, volume()))
        assert framework.last("writer")["state"] == "TASK_FINISHED"
        assert whole(framework)
        (folder,) = [each for each in (live.home / "volumes").iterdir() if each.name != "aside"]
        assert ask("UNRESERVE_RESOURCES", reserved("disk", 100)) == 400, "some of it is a volume"
        assert ask("DESTROY_VOLUMES", volume()) == 202
        assert framework.wait_for("RESCIND"), "what is offered changes"
        assert not folder.exists()
        assert ask("UNRESERVE_RESOURCES", reserved("disk", 100), reserved("cpus", 1)) == 202
        assert not of_role(offer_without(framework))
        assert framework.call("TEARDOWN").status == 202
    for wrong in (reserved("cpus", 100), reserved("cpus", 1, "a/"), {**reserved("cpus", 1), "role": "*"}):
        assert ask("RESERVE_RESOURCES", wrong) == 400
    assert ask("RESERVE_RESOURCES", reserved("cpus", 1), node="n7") == 404
    assert ask("UNRESERVE_RESOURCES", reserved("cpus", 1)) == 400


def offer_without(framework):
    """An offer of n2 with nothing in it that is reserved."""
    while of_role(offer := offer_on(framework, "n2")):
        pass
    return offer


WRONG = [
    (operation("RESERVE", reserved("cpus", 100)), "the offers contain less than that"),
    (operation("RESERVE", reserved("cpus", 1, "A")), "it is reserved for role 'A', and was offered to 'B'"),
    (operation("RESERVE", {**reserved("cpus", 1), "role": "*"}), "reservations for role '*' are not possible"),
    (operation("UNRESERVE", reserved("cpus", 1)), "the offers contain less than that"),
    (operation("RESERVE", volume()), "a volume cannot be reserved or unreserved"),
    (operation("CREATE", reserved("disk", 1)), "it is not a volume"),
    (operation("CREATE", volume()), "the offers contain less than that"),
    (operation("DESTROY", volume()), "the offers contain less than that"),
    (operation("CREATE", volume("a/b")), "is not a valid id of a volume"),
    (operation("CREATE", volume(path="../../x")), "is not a path in the sandbox"),
    (operation("CREATE", volume(path="/tmp/x")), "leave out the first /"),
]


def test_what_cannot_be_reserved_and_where_no_volume_can_be(live):
    with Wire(port_of(live)).subscribed({"roles": ["B"]}) as framework:
        offer = offer_on(framework.welcome(), "n2")
        paths = ("/data", "../data", "a//b", "")
        bad = [using(f"t{k}", "true", offer, volume(f"v{k}", path, 1)) for k, path in enumerate(paths)]
        made = [operation("CREATE", volume(f"v{k}", "data", 1)) for k in range(len(paths))]
        wrong = [each for each, _ in WRONG]
        told = answer(framework, offer, *wrong, operation("RESERVE", reserved("disk", 50)), *made, launch(*bad))
        for (state, message), (_, why) in zip(told, WRONG, strict=False):
            assert state == "OPERATION_ERROR", message
            assert why in message
        assert told[len(WRONG) :] == [DONE] * 5
        for k in range(len(paths)):
            found = framework.status(f"t{k}")
            assert found["state"] == "TASK_ERROR"
            assert "container_path" in found["message"]
        assert framework.call("TEARDOWN").status == 202


def ports(*ranges):
    return {"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": b, "end": e} for b, e in ranges]}}


def offered_ports(offer):
    found = [each["ranges"]["range"] for each in offer["resources"] if each["name"] == "ports"]
    return [(each["begin"], each["end"]) for ranges in found for each in ranges]


def test_ports_are_given_by_number(live):
    with Wire(port_of(live)).subscribed({"roles": ["B"]}) as framework:
        offer = offer_on(framework.welcome(), "n2")
        assert offered_ports(offer) == [(31000, 32000)]
        tasks = [
            using("a", "sleep 60", offer, ports((31000, 31001), (31005, 31005))),
            using("b", "true", offer, ports((31001, 31001))),
            using("c", "true", offer, ports((31010, 31009))),
            using("d", "true", offer, {**ports((31011, 31011)), "role": "B", "reservation": {}}),
        ]
        assert answer(framework, offer, launch(*tasks)) == []
        for name, why in (("b", "ports 31001-31001 are not offered"), ("c", "a range must go"), ("d", "reserved")):
            found = framework.status(name)
            assert found["state"] == "TASK_ERROR"
            assert why in found["message"]
        assert offered_ports(offer_on(framework, "n2")) == [(31002, 31004), (31006, 32000)]
        taken, left = "[31000-31001, 31005-31005]", "[31002-31004, 31006-32000]"
        wire = framework.wire
        (agent,) = [each for each in wire.get("/slaves")["slaves"] if each["id"] == "n2"]
        kinds = ("resources", "unreserved_resources", "used_resources", "offered_resources")
        assert [agent[kind]["ports"] for kind in kinds] == ["[31000-32000]", "[31000-32000]", taken, left]
        assert wire.get("/frameworks")["frameworks"][0]["used_resources"]["ports"] == taken
        assert next(each for each in wire.get("/tasks")["tasks"] if each["id"] == "a")["resources"]["ports"] == taken
        agents = wire.post({"type": "GET_AGENTS"}, path="/api/v1").json()["get_agents"]["agents"]
        (agent,) = [each for each in agents if each["agent_info"]["id"]["value"] == "n2"]
        told = [agent[f"{kind}_resources"] for kind in ("total", "allocated", "offered")]
        assert [len(ranges["ranges"]["range"]) for each in told for ranges in each if ranges["name"] == "ports"] == [1, 2, 2]
        assert framework.call("TEARDOWN").status == 202


class Reserving:
    """A scheduler for pymesos that reserves, makes a volume, and runs one task that writes into it and one that reads."""

    def __init__(self):
        self.offers, self.states, self.over = 0, {}, threading.Event()

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: None

    def resourceOffers(self, driver, offers):
        for offer in offers:
            if offer["agent_id"]["value"] != "n2" or self.over.is_set():
                driver.declineOffer(offer["id"], {"refuse_seconds": 3600})
                continue
            has = ("disk", "vol") in of_role(offer)
            name, command = ("reader", "grep -q hello data/file") if has else ("writer", "echo hello > data/file")
            makes = [] if has else [operation("RESERVE", reserved("disk", 64)), operation("CREATE", volume())]
            made = [] if name in self.states else [launch(using(name, command, offer, volume()))]
            self.states.setdefault(name, "")
            driver.acceptOffers([offer["id"]], [*makes, *made], {"refuse_seconds": 0})

    def statusUpdate(self, driver, status):
        self.states[status["task_id"]["value"]] = status["state"]
        if status["task_id"]["value"] == "reader" and status["state"] not in ("TASK_STARTING", "TASK_RUNNING"):
            self.over.set()


def test_pymesos_reserves_and_keeps_what_it_writes(live):
    scheduler, pymesos = Reserving(), real_pymesos.load()
    info = {"user": "", "name": "pymesos", "roles": ["B"], "capabilities": [{"type": "MULTI_ROLE"}]}
    driver = pymesos.MesosSchedulerDriver(scheduler, info, f"127.0.0.1:{port_of(live)}", timeout=60)
    driver.start()
    try:
        assert scheduler.over.wait(90), scheduler.states
        assert scheduler.states == {"writer": "TASK_FINISHED", "reader": "TASK_FINISHED"}, json.dumps(scheduler.states)
    finally:
        driver.stop()
        driver.join()

"""How busy cards are, from NVML's face to the API: with a library of NVIDIA's that a test plays."""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from conftest import end_tasks
from fairlead.cli.tables import node_table
from fairlead.cli.top_screen import page_rows
from fairlead.engines.local import card_use, supervisor_connections
from fairlead.engines.local.card_use import CardWatch
from fairlead.engines.local.engine import LocalEngine
from fairlead.engines.remote.members import Member
from fairlead.html_page import blocks
from fairlead.model.specs import Node
from fairlead.service import metrics
from fairlead.service.api import cluster
from fairlead.text_tables import printed

NVML = """
import sys, types, time
class NVMLError(Exception): pass
nvml = types.ModuleType("pynvml")
class card:
    def __init__(self, index): self.index = index
def handle(index):
    if index == 2: raise NVMLError("lost")
    return card(index)
def rates(card):
    if card.index == 1: raise NVMLError("not supported")
    return types.SimpleNamespace(gpu=97, memory=3)
nvml.NVMLError, nvml.nvmlInit, nvml.nvmlDeviceGetCount = NVMLError, lambda: None, lambda: 3
nvml.nvmlDeviceGetHandleByIndex, nvml.nvmlDeviceGetUtilizationRates = handle, rates
nvml.nvmlDeviceGetMemoryInfo = lambda card: types.SimpleNamespace(used=5 << 30, total=80 << 30, free=0)
sys.modules["pynvml"] = nvml
"""
SEEN = [[0, 97, 5 << 30, 80 << 30], [1, None, 5 << 30, 80 << 30]]
"""What that is: the second card does not say how busy it is, and the third is lost."""
WATCHED = f"{NVML}\nfrom fairlead.engines.local import card_use\ncard_use.EVERY = 0.05\ncard_use.main()"


@pytest.fixture
def nvml(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    exec(NVML, {})


def test_cards_that_do_not_say_all_are_listed_with_what_they_say(nvml):
    assert card_use.measured() == SEEN


def watching(monkeypatch, code):
    """A watch over what a process prints, and what it reported."""
    monkeypatch.setattr(CardWatch, "command", (sys.executable, "-c", code))
    selector, seen = selectors.DefaultSelector(), []
    return CardWatch(selector, seen.append), selector, seen


def pump(selector, until):
    deadline = time.monotonic() + 60
    while not until():
        for key, _ in selector.select(0.1):
            key.data()
        assert time.monotonic() < deadline


def test_it_is_measured_again_and_again_until_it_ends(monkeypatch):
    watch, selector, seen = watching(monkeypatch, WATCHED)
    watch.begin()
    watch.begin()
    pump(selector, lambda: len(seen) >= 3)
    assert seen[:3] == [SEEN] * 3
    pid = watch._pid
    watch.end()
    watch.end()
    assert os.waitpid(pid, 0)[1]
    assert not selector.get_map()


@pytest.mark.parametrize("code", ["", "raise SystemExit(3)", "print('[]'); print('x' * (1 << 21))"])
def test_without_the_library_nothing_is_reported_and_the_next_inventory_tries_again(monkeypatch, code):
    watch, selector, seen = watching(monkeypatch, code)
    for _ in range(2):
        watch.begin()
        pump(selector, lambda: not selector.get_map())
        os.waitpid(watch._pid, 0)
    assert seen in ([], [[], []])


def test_engines_know_it_by_node(tmp_path):
    line = json.dumps({"saw": "cards", "cards": SEEN}).encode()
    engine = LocalEngine(tmp_path, [Node("n1", {"gpu": 1000}), Node("n2", {"gpu": 1000})])
    engine._hear("", [line])
    assert [engine.card_use(node)[1].memory_used for node in ("n1", "n2")] == [5 << 30] * 2
    assert engine.card_use("n1")[0].busy == 0.97
    assert Member("n", None, 0.0).card_use == {}
    engine.close()


def test_what_was_measured_long_ago_is_unknown(nvml):
    now = time.monotonic()
    use = SimpleNamespace(at=now, busy=0.5, memory_used=1, memory=2)
    assert cluster._use_of(use) == {"busy": 0.5, "memory_used": 1, "memory": 2}
    use.at = now - cluster.MEASURED_SECONDS - 1
    assert set(cluster._use_of(use).values()) == set(cluster._use_of(None).values()) == {None}


def test_a_supervisor_measures_for_a_scheduler_that_asks_and_for_no_other(tmp_path, monkeypatch):
    """One that greets and does not ask, as those of older versions, is sent nothing that it cannot read."""

    def spawn(place, *flags):
        code = (
            f"import sys\nfrom fairlead.engines.local.card_use import CardWatch\nfrom fairlead.engines.local import supervisor\n"
            f"CardWatch.command = (sys.executable, '-c', {WATCHED!r})\n"
            f"sys.argv = ['', *{[*flags, str(place)]!r}]\nsupervisor.main()"
        )
        place.mkdir(mode=0o700, exist_ok=True)
        return subprocess.Popen([sys.executable, "-c", code], start_new_session=True, cwd="/")

    monkeypatch.setattr(supervisor_connections, "spawn", spawn)
    for epoch, gpus in enumerate((0, 2), 1):
        engine = LocalEngine(tmp_path, [Node("n1", {"gpu": 1000 * gpus})])
        engine.serve("cards", epoch)
        try:
            deadline = time.monotonic() + 60
            while not engine.limits or (gpus and not engine.card_use("n1")):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            if not gpus:
                time.sleep(0.3)
            assert {card: use.busy for card, use in engine.card_use("n1").items()} == ({0: 0.97, 1: None} if gpus else {})
        finally:
            engine.close(leave=gpus > 0)
            engine.join(10)
    end_tasks(tmp_path)


def test_it_is_shown_and_where_nothing_is_known_that_is_said():
    free = {"status": "free", "job": None, "task": None, "queue": None, "user": None}
    unknown = {**free, "card": 1, "busy": None, "memory_used": None, "memory": None}
    known = {**free, "card": 0, "busy": 0.97, "memory_used": 5 << 30, "memory": 80 << 30}
    node = {
        "name": "n1",
        "status": "up",
        "tasks": 0,
        "silent": None,
        "unheard": None,
        "capacity": {"gpu": 2000},
        "used": {},
        "labels": {},
    }
    for cards, busy in (([known, unknown], "97%"), ([unknown], "unknown")):
        shown = {**node, "cards": cards}
        assert busy in printed(node_table([shown]), width=200)
        assert busy in "\n".join(row.plain for row in page_rows("gpus", {"nodes": [shown]}, 0, 200, 50))
        page = blocks("node.html", {"node": shown}, only=("state",))["state"]
        assert busy in page
    text = metrics.exposition([], [{**node, "version": None, "cards": [known, unknown]}]).decode()
    assert 'fairlead_node_card_busy{card="0",node="n1"} 0.97\n' in text
    assert 'fairlead_node_card_memory_used_bytes{card="0",node="n1"} 5.36870912e+09\n' in text
    assert 'busy{card="1"' not in text


def test_a_live_scheduler_without_the_library_says_unknown(live):
    live.config.write_text(live.config.read_text().replace("capacity = { ", "capacity = { gpu = 2, "))
    live.end(signal.SIGTERM)
    live.up()
    assert [(c["busy"], c["memory_used"], c["memory"]) for c in live.ask("nodes")["nodes"][0]["cards"]] == [
        (None, None, None)
    ] * 2
    assert "unknown" in live.ok("nodes")

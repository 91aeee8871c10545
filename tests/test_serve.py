"""Putting a scheduler together: what keeps it from starting is said in one line."""

import subprocess
import sys

import pytest

from fairlead.engines.contract import EngineError
from fairlead.journal import JournalFull
from fairlead.journal.sql import SqlStore
from fairlead.model.documents import Configuration
from fairlead.model.specs import Node, Settings
from fairlead.service.listening import Where
from fairlead.service.serve import serve


def start(home):
    def ready(*told):
        raise AssertionError("it started")

    configuration = Configuration([], [Node("n", {"cpu": 1000})], Settings())
    serve(
        home,
        configuration,
        Where(home / "socket"),
        personal=True,
        read_again=lambda: configuration,
        on_ready=ready,
        on_stopping=ready,
    )


def test_a_supervisor_that_cannot_be_started(tmp_path):
    (tmp_path / "supervisor" / "log").mkdir(parents=True)  # where a file is wanted
    with pytest.raises(EngineError, match=r"no supervisor could be started: .* see .*supervisor/log"):
        start(tmp_path)


def test_a_disk_that_is_full(tmp_path, monkeypatch):
    def full(journal, *what):
        raise JournalFull("there is no room: make some")

    monkeypatch.setattr(SqlStore, "append", full)
    with pytest.raises(JournalFull, match="make some"):
        start(tmp_path)


LATER = """
import sys
import numpy as np
from fairlead.model.specs import Framework, Job, Node, Queue, Settings
from fairlead.scheduler import admission
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.decide import decide
from fairlead.scheduler.reports.explain import explain
from fairlead.scheduler.facts import Configured, NodeJoined, NodeLost
from fairlead.scheduler.reports.frameworks import list_frameworks
from fairlead.scheduler.state import State

def compiled():
    modules = [module for name, module in sys.modules.items() if name.startswith("fairlead.")]
    kernels = {each for module in modules for each in vars(module).values() if hasattr(each, "nopython_signatures")}
    return {f"{kernel.__module__}.{kernel.__name__}{signature}" for kernel in kernels for signature in kernel.signatures}

before = compiled()
state = new_state()
def happen(facts):
    for fact in facts:
        apply(state, fact)
queues = [Queue("x", guarantee={"cpu": 1000}, guarantee_timeout=0.0), Queue("y"), Queue("z")]
nodes = [NodeJoined(at=0.0, node=Node(name, {"cpu": 2000, "memory": 2**32, "gpu": 1000})) for name in "no"]
happen([Configured(at=0.0, queues=queues, settings=Settings()), *nodes])
happen(admission.submit(state, [Job("y", {"cpu": 1000}, 9), Job("x", {"gpu": 9000}), Job("x", {"cpu": 2000}, gang=True)], 1.0))
happen(frameworks.subscribe(state, Framework("f", roles=["z"]), "f", [], 1.0))
for now in (2.0, 3, 4.0):
    happen(decide(state, now).facts)
    for job in (1, 2, 3):
        explain(state, job, now)
    list_frameworks(state, now)
    happen(frameworks.decline(state, "f", state.offers.id[: state.offers.n].tolist(), 0.5, now))
happen([NodeLost(at=np.float64(5), node="o")])
decide(state, 5)
assert type(state.at) is float
print(*(compiled() - before), sep="\\n", end="")
assert "scipy.linalg" not in sys.modules, "it takes a quarter of a second to read"
"""


def test_what_may_happen_to_a_scheduler_is_compiled_before_it_answers():
    """Why a job waits, offers and what becomes of them, a machine that is lost; and moments that are whole numbers."""
    done = subprocess.run([sys.executable, "-c", LATER], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == ""

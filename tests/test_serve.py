"""Putting a scheduler together: what keeps it from starting is said in one line."""

import pytest

from fairlead.engines.contract import EngineError
from fairlead.engines.local.engine import LocalEngine
from fairlead.journal import JournalFull
from fairlead.journal.sql import SqlStore
from fairlead.model.documents import Configuration
from fairlead.model.specs import Node, Settings
from fairlead.service.connections.listening import Where
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
        make_engine=lambda wake: LocalEngine(home, configuration.nodes, wake),
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

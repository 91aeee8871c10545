"""The scheduler's clock: setting the machine's ends nothing early or never, and people see the clock as it is set."""

import json
import logging
import time

import pytest

from conftest import Live
from fairlead.service import clock as clocks
from fairlead.service.clock import Clock


@pytest.fixture
def wall(monkeypatch):
    """A wall clock that can be set: `wall["set"]` seconds ahead."""
    step = {"set": 0.0}
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() + step["set"])
    return step


@pytest.mark.parametrize("seconds", [3600.0, -86400.0, 1e9, -1e9])
def test_it_goes_on_when_the_wall_clock_is_set(tmp_path, wall, seconds):
    clock = Clock(tmp_path / "clock.json")
    before = clock()
    assert before == pytest.approx(time.time(), abs=60)
    assert clock.wall(before) == before
    wall["set"] = seconds
    assert before <= clock() < before + 60
    assert clock.wall(before) == before + seconds


def test_after_a_restart_in_the_same_boot_it_goes_on_where_it_was(tmp_path, wall):
    first = Clock(tmp_path / "clock.json")
    wall["set"] = -7200.0
    second = Clock(tmp_path / "clock.json", first())
    assert second() == pytest.approx(first(), abs=0.001)
    assert (tmp_path / "clock.json").stat().st_mode & 0o777 == 0o600


def test_a_digit_that_is_another_is_not_believed(tmp_path, wall, caplog):
    first = Clock(tmp_path / "clock.json")
    told = json.loads((tmp_path / "clock.json").read_text())
    told["begin"] += 2e9
    (tmp_path / "clock.json").write_text(json.dumps(told))
    assert Clock(tmp_path / "clock.json", first())() == pytest.approx(first(), abs=1)
    assert "the checksum does not match" in caplog.text


def test_after_a_boot_it_goes_by_the_wall_clock_but_never_back(tmp_path, wall, monkeypatch):
    first = Clock(tmp_path / "clock.json")
    another = tmp_path / "boot_id"
    another.write_text("another\n")
    monkeypatch.setattr(clocks, "_BOOT", another)
    wall["set"] = 1000.0
    assert Clock(tmp_path / "clock.json", first())() == pytest.approx(first() + 1000, abs=1)
    another.write_text("a third\n")
    wall["set"] = -1000.0
    last = first() + 1000
    assert last <= Clock(tmp_path / "clock.json", last)() < last + 60


@pytest.mark.parametrize(
    "content", ["", "null", "[]", '{"boot": "BOOT", "begin": "x"}', '{"begin": 1}', '{"boot": "BOOT", "begin": NaN}']
)
def test_a_file_that_says_nothing_is_not_believed(tmp_path, caplog, content):
    path = tmp_path / "clock.json"
    path.write_text(content.replace("BOOT", Clock.boot()))
    assert Clock(path)() == pytest.approx(time.time(), abs=60)
    assert json.loads(path.read_text())["boot"] == Clock.boot()


def test_it_runs_though_it_can_keep_nothing(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "fairlead"):
        assert Clock(tmp_path / "nowhere" / "clock.json")() == pytest.approx(time.time(), abs=60)
    assert "cannot be written" in caplog.text


SETTABLE = """import time
true = time.time
def now():
    with open(WHERE) as file:
        return true() + float(file.read())
time.time = now
"""


def test_time_limits_hold_while_the_clock_is_set(tmp_path):
    """An hour forward ends no task early; a day back, over a restart too, and its limit still comes."""
    ahead = tmp_path / "ahead"
    ahead.write_text("0")
    (tmp_path / "sitecustomize.py").write_text(SETTABLE.replace("WHERE", repr(str(ahead))))
    with Live(tmp_path) as live:
        live.env["PYTHONPATH"] = str(tmp_path)
        live.up()
        long = live.submit("-q", "A", "--time-limit", "600s", "--", "sleep", "600")
        short = live.submit("-q", "B", "--time-limit", "4s", "--", "sleep", "600")
        live.until(lambda: live.job(long)["running"] == live.job(short)["running"] == 1)
        submitted = live.job(long)["submitted_at"]
        ahead.write_text("3600")
        time.sleep(1.5)  # a step of the scheduler, with nothing to wake it
        assert live.job(long)["status"] == live.job(short)["status"] == "running"
        assert live.job(long)["submitted_at"] == submitted + 3600
        ahead.write_text("-86400")
        live.kill()
        live.up()
        live.until(lambda: live.job(short)["status"] == "failed")
        assert live.job(long)["status"] == "running"
        assert live.job(short)["finished_at"] - live.job(short)["submitted_at"] < 60
        live.ok("cancel", str(long))

"""What a test forgets is found at the end of the run, told, and ended."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

FORGETS = """
import subprocess
from pathlib import Path

def test_that_forgets(tmp_path):
    # The shell's child has an environment of its own, as a task has.
    process = subprocess.Popen(["sh", "-c", "env -i sleep 60 & echo $!; sleep 60"], stdout=subprocess.PIPE, text=True)
    Path("forgotten").write_text(f"{process.pid} {process.stdout.readline()}")

def test_that_does_not():
    subprocess.run(["true"], check=True)
"""


@pytest.mark.parametrize("processes", ["0", "1"])
def test_what_a_test_forgot_fails_the_run(tmp_path, processes):
    (tmp_path / "test_it.py").write_text(FORGETS)
    run = run_in(tmp_path, "-n", processes, patience="1")
    assert run.returncode == 1, run.stdout
    assert "2 passed" in run.stdout
    told = [line for line in run.stdout.splitlines() if "left behind" in line]
    assert any("test_it.py::test_that_forgets (call): process " in line and "sleep 60" in line for line in told), told
    assert [pid for pid in (tmp_path / "forgotten").read_text().split() if runs(int(pid))] == []


def test_a_run_that_left_nothing_is_as_it_was(tmp_path):
    (tmp_path / "test_it.py").write_text(FORGETS)
    run = run_in(tmp_path, "-k", "does_not")
    assert (run.returncode, "left behind" in run.stdout) == (0, False), run.stdout


def runs(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def run_in(folder, *options, patience="30"):
    """A run of pytest of its own, without this project's settings."""
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "leftovers", *options, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment["LEFTOVERS_PATIENCE"] = patience
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)

"""No process outlives a test run: what is left at its end is told with the test that started it, ended, and fails the run.

Loaded by conftest.py. Whatever a test starts has two things in its environment: the mark of this run, and, from pytest itself,
the name of the test. Fixtures end what they started; this is for what they forgot.
"""

import contextlib
import os
import time
import uuid

import psutil
import pytest

MARK = "FAIRLEAD_TEST_RUN"
PATIENCE = float(os.environ.get("LEFTOVERS_PATIENCE", "30"))
"""Seconds for what is on its way out."""


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        os.environ[MARK] = uuid.uuid4().hex


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session):
    yield  # xdist ends its processes here
    if hasattr(session.config, "workerinput"):
        return
    until = time.monotonic() + PATIENCE
    while (left := left_behind()) and time.monotonic() < until:
        time.sleep(0.5)
    for process in left:
        session.config.get_terminal_writer().line(f"left behind, and ended now: {told(process)}", red=True)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=PATIENCE)
    if left and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def left_behind():
    """The processes of this run that still run, but for this one."""
    found = set(filter(is_marked, psutil.process_iter()))
    for parent in [psutil.Process(), *found]:  # what these started may have another environment
        with contextlib.suppress(psutil.NoSuchProcess):
            found.update(parent.children(recursive=True))
    return [process for process in found if runs(process)]


def is_marked(process):
    try:
        return process.environ().get(MARK) == os.environ[MARK]
    except psutil.Error:  # it has ended, or is somebody else's
        return False


def runs(process):
    """Whether it has not ended, and is not multiprocessing's own, which ends with pytest."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE and "resource_tracker" not in " ".join(process.cmdline())
    except psutil.Error:
        return False


def told(process):
    """Which process, and which test started it."""
    try:
        test = process.environ().get("PYTEST_CURRENT_TEST", "a test")
        return f"{test}: process {process.pid}: {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return f"process {process.pid}"

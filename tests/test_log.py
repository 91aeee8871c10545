"""The log of a running scheduler: bounded on disk, with repeated lines folded."""

import logging

import pytest

from fairlead.cli import background
from fairlead.cli.background import BackgroundHandler, append
from fairlead.cli.up import _OneLine


class Lines:
    """Stands for a Background: keeps the lines."""

    def __init__(self):
        self.said = []

    def say(self, line):
        self.said.append(line)


@pytest.fixture
def log():
    lines = Lines()
    logger = logging.Logger("test")
    logger.addHandler(BackgroundHandler(lines, logging.Formatter("%(levelname)s %(message)s")))
    return logger, lines.said


def test_the_log_file_rotates_and_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(background, "LARGEST_LOG_BYTES", 1000)
    path = tmp_path / "log"
    for number in range(500):
        append(path, f"line {number} \N{EURO SIGN}")
    append(path, "x" * 5000)
    append(path, "last \udcff")
    sizes = {each.name: each.stat().st_size for each in tmp_path.iterdir()}
    assert set(sizes) == {"log", "log.1"}
    assert max(sizes.values()) <= 1000
    assert path.read_text() == "last \\udcff\n"


def test_what_was_logged_before_is_kept(tmp_path, monkeypatch):
    path = tmp_path / "log"
    for line in ("one", "two"):
        append(path, line)
    assert path.read_text() == "one\ntwo\n"
    monkeypatch.setattr(background, "LARGEST_LOG_BYTES", 10)
    append(path, "three")
    assert (path.with_name("log.1").read_text(), path.read_text()) == ("one\ntwo\n", "three\n")


def failing(logger, what):
    try:
        raise RuntimeError(what)
    except RuntimeError:
        logger.exception("it failed")


def test_repeated_lines_are_folded(log):
    logger, said = log
    for _ in range(1000):
        failing(logger, "full")
    failing(logger, "empty")
    for name in "a", "a", "b", "b", "b":
        logger.warning("node %s", name)
    logger.handlers[0].close()
    assert [line.splitlines()[0] for line in said] == [
        "ERROR it failed",
        "ERROR last line repeated 999 times",
        "ERROR it failed",
        "WARNING node a",
        "WARNING last line repeated 1 time",
        "WARNING node b",
        "WARNING last line repeated 2 times",
    ]
    assert said[0].endswith("RuntimeError: full")


def test_the_terminal_has_no_traceback_for_it():
    lines, file = Lines(), Lines()
    logger = logging.Logger("test")
    logger.addHandler(BackgroundHandler(lines, _OneLine("%(message)s")))
    logger.addHandler(BackgroundHandler(file, logging.Formatter("%(message)s")))
    failing(logger, "full")
    assert lines.said == ["it failed"]
    assert "Traceback" in file.said[0]


def test_a_line_that_goes_on_is_counted_now_and_then(log, monkeypatch):
    logger, said = log
    logger.warning("again")
    logger.warning("again")
    monkeypatch.setattr(background, "FOLD_SECONDS", 0.0)
    logger.warning("again")
    logger.warning("again")
    assert said[1:] == ["WARNING last line repeated 2 times", "WARNING last line repeated 1 time"]

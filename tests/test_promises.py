"""SECURITY.md and docs/reliability.md: each promise names the tests that hold it, and these exist."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")


@cache
def names_in(file):
    return set(re.findall(r"^def (test_\w+)\(", (ROOT / "tests" / file).read_text(), re.MULTILINE))


def promises(path, title):
    """The items of the section with this title; each begins with `- `, and ends before the next one."""
    section = re.split(r"^## ", (ROOT / path).read_text(), flags=re.MULTILINE)
    (found,) = [part for part in section if part.startswith(title)]
    items = re.split(r"^- ", found, flags=re.MULTILINE)[1:]
    return [item.split("\n\n")[0] for item in items]


ALL = [*promises("SECURITY.md", "What is promised"), *promises("docs/reliability.md", "What is promised")]


def test_there_are_promises():
    assert len(ALL) >= 25


@pytest.mark.parametrize("promise", ALL, ids=lambda promise: promise[:40])
def test_a_promise_names_tests_that_exist(promise):
    named = NAMED.findall(promise)
    assert named, promise
    assert [f"{file}::{name}" for file, name in named if name not in names_in(file)] == []


@pytest.mark.parametrize("word", ["arguments", "quota", "/dev/shm", "network", "I/O", "convention"])
def test_what_is_not_promised_is_said(word):
    found = (ROOT / "SECURITY.md").read_text()
    assert word in found[found.index("## What is not promised") :]

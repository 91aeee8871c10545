"""Machine code is kept by what went into it: a kernel's file, and all that this imports, directly or through others."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fairlead

SHOW = """
import sys
from pathlib import Path
from fairlead.kernel_cache import digest_of
import fairlead
for name in sys.argv[1:]:
    print(digest_of(Path(fairlead.__file__).parent / name))
"""
RUN = """
from fairlead.scheduler.probe import told
print(told(0), told(1))
"""
PROBE = """
from fairlead.kernel_cache import compiled
from fairlead.scheduler.statuses import RUNNING, STOPPING


@compiled
def told(which: int) -> int:
    return STOPPING if which else RUNNING
"""


INDICES = """
import numba
import numpy as np
from fairlead.scheduler.compiled_view import Arrays


class Few(Arrays):
    ARRAYS = {"one": ("i8", 1), "wide": ("i8", 2), "rows": ([("a", "i8"), ("b", "i1")], 1)}


@numba.njit
def read(few, i):
    return few.one[i], few.wide[i, 1], few.rows.b[i], few.wide[i][0]


@numba.njit
def write(few, i):
    few.one[i] = few.wide[i, 1] = few.rows.b[i] = 7
    few.wide[i] = few.wide[i] + few.one[:2]


few = Few(one=np.arange(3), wide=np.arange(6).reshape(3, 2), rows=np.ones(3, np.dtype(Few.ARRAYS["rows"][0])))
print(*read(few, 1))
write(few, 2)
print(*few.one, *few.wide.ravel(), *few.rows["b"])
for kernel in (read, write):
    try:
        kernel(few, -1)
    except IndexError:
        print("refused")
"""


@pytest.fixture
def copy(tmp_path):
    """A copy of the package, which may be changed."""
    source = Path(fairlead.__file__).parent
    return Path(shutil.copytree(source, tmp_path / "src" / "fairlead", ignore=shutil.ignore_patterns("__pycache__")))


def python(copy, program, *arguments):
    """What a program prints that uses the copy, with a cache of its own."""
    env = {**os.environ, "PYTHONPATH": str(copy.parent), "XDG_CACHE_HOME": str(copy.parent / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.split()


def digests(copy):
    kernels = ["scheduler/kernel_account.py", "scheduler/kernel_keys.py", "scheduler/kernel_search.py"]
    return dict(zip(("account", "keys", "search"), python(copy, SHOW, *kernels), strict=True))


@pytest.mark.parametrize(
    ("changed", "others"),
    [
        ("scheduler/kernel_account.py", {"account"}),
        ("scheduler/statuses.py", {"account"}),
        ("outcomes.py", {"account"}),
        ("policies/arithmetic.py", {"account", "keys", "search"}),  # account imports the order, and that the keys
        ("scheduler/tables.py", {"account", "keys", "search"}),
        ("kernel_cache.py", {"account", "keys", "search"}),
        ("policies/linear_programs.py", set()),
        ("policies/ceei.py", set()),
        ("scheduler/report.py", set()),
    ],
)
def test_a_kernels_digest_is_of_all_that_goes_into_it_and_of_nothing_else(copy, changed, others):
    before = digests(copy)
    with (copy / changed).open("a") as file:
        file.write("# changed\n")
    after = digests(copy)
    assert {name for name in before if before[name] != after[name]} == others


def test_kernels_have_the_numbers_that_the_files_have_now(copy):
    (copy / "scheduler" / "probe.py").write_text(PROBE)
    assert python(copy, RUN) == ["2", "3"]
    cached = copy.parent / "cache" / "fairlead" / "kernels"
    assert len(list(cached.iterdir())) == 1
    assert python(copy, RUN) == ["2", "3"]
    assert len(list(cached.iterdir())) == 1
    statuses = copy / "scheduler" / "statuses.py"
    statuses.write_text(statuses.read_text().replace("RUNNING, STOPPING, EXPIRING", "STOPPING, RUNNING, EXPIRING", 1))
    assert python(copy, RUN) == ["3", "2"]
    assert len(list(cached.iterdir())) == 2


def test_arrays_of_a_view_are_indexed_from_0_on(copy, monkeypatch):
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
    assert " ".join(python(copy, INDICES)) == "1 3 1 2 0 1 7 0 1 2 3 4 8 1 1 7 refused refused"

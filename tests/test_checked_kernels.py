"""Histories over kernels with each access checked, as `make check-memory` has them; and a wrong access, which is reported."""

import os
import subprocess
import sys

import pytest

from checked_kernels import ROOT, environment, library

BUILD = "import checked_kernels; checked_kernels.build(checked_kernels.SCHEDULING)"
HISTORIES = """
import checked_kernels
from fairlead.scheduler.kernel import scheduling
from test_crash import histories, run

for history in histories(0):
    state = run(history).scheduler.state
print("the last has a bucket:", state.groups.n > 0, flush=True)
scheduling.waiting_tasks(state.view(), state.groups.n - 1, 1)
print("no access was wrong", flush=True)
scheduling.waiting_tasks(state.view(), state.groups.n, 1)
"""


@pytest.mark.timeout(400)  # it compiles
def test_histories_read_and_write_inside_arrays_and_an_index_outside_ends_the_process():
    if not library():
        pytest.skip("there is no GCC with AddressSanitizer here")
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT}"}
    subprocess.run([sys.executable, "-c", BUILD], cwd=ROOT, env=env, check=True)
    over = subprocess.run(
        [sys.executable, "-c", HISTORIES],
        cwd=ROOT, env=environment(FAIRLEAD_FUZZ="40"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert over.stdout == "the last has a bucket: True\nno access was wrong\n", over.stderr
    assert over.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in over.stderr
    assert "scheduling_waiting_tasks" in over.stderr

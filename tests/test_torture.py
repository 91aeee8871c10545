"""Each fault of the torture once, against a real scheduler: what was promised is kept."""

import pytest

from torture import FAULTS, small_disk, torture


@pytest.mark.timeout(400)  # it starts five schedulers, one after another
def test_each_fault_is_survived_or_said(tmp_path):
    with small_disk(tmp_path) as disk:
        record = torture(tmp_path, disk, 0, once=True)
    assert {fault["injected"] for fault in record["faults"].values()} == {1}
    assert set(record["faults"]) == set(FAULTS)
    assert record["tasks"] > 0
    assert record["twice"] == 0

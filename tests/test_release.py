"""What a release is made with, and what the README shows."""

import importlib.util
import os
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import forked
from test_docs import of_docs

ROOT = Path(__file__).parent.parent


def test_what_is_installed_passes_the_check_of_a_release(tmp_path):
    env = {**os.environ, "PATH": f"{forked.folder_with_command()}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        ["sh", ROOT / "tests" / "smoke.sh"], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, ["it runs", "the scheduler is down"]), done.stderr
    assert [*tmp_path.iterdir()] == []


@pytest.mark.skipif(not importlib.util.find_spec("yaml"), reason="PyYAML is not installed")
@pytest.mark.parametrize("path", sorted(ROOT.glob(".github/workflows/*.yml")), ids=lambda p: p.name)
def test_a_workflow_waits_for_jobs_that_it_has_and_may_write_only_where_it_publishes(path):
    import yaml

    flow = yaml.safe_load(path.read_text())
    for name, job in flow["jobs"].items():
        assert {*([job["needs"]] if "needs" in job else [])} <= {*flow["jobs"]}
        assert "timeout-minutes" in job
        assert "write" not in str(job.get("permissions", flow["permissions"])) or name == "publish"


def test_the_recording_shows_each_line_in_turn_and_needs_nothing_from_elsewhere():
    module = of_docs("recording.py")
    screens = [
        [module.Line("$ fairlead up", "command", 0.0), module.Line("a < b & c", pause=1.0)],
        [module.Line("last", pause=1.0)],
    ]
    picture = ET.fromstring(module.picture(screens, 10.0))
    texts = [each for each in picture if each.tag.endswith("text")]
    assert [each.text for each in texts] == ["$ fairlead up", "a < b & c", "last"]
    stored = (ROOT / "docs" / "recording.svg").read_text()
    shown = [each.text for each in ET.fromstring(stored) if each.tag.endswith("text")]
    assert [line for line in shown if line.startswith("$ kill -9 ")]
    assert shown[-1].startswith("# 50 tasks, 50 starts")
    assert stored.count("://") == 1, "the namespace of SVG, and no other address"
    assert len(stored) < 20_000

"""What a release is made with, and what the README shows."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from typing_extensions import TypeAliasType

import fairlead
import forked
from fairlead.scheduler.tables import Table
from test_docs import of_docs

ROOT = Path(__file__).parent.parent


def test_what_is_installed_passes_the_check_of_a_release(tmp_path):
    env = {
        **os.environ,
        "PATH": f"{forked.folder_with_command()}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path),
        "PYTHON": sys.executable,
    }
    done = subprocess.run(
        ["sh", ROOT / "tests" / "smoke.sh"], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
    )
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, ["it runs", "32", "the scheduler is down"]), done.stderr
    assert [*tmp_path.iterdir()] == []


def test_a_column_has_the_same_type_before_numpy_2_5_and_after():
    scalar = TypeVar("scalar", bound=np.generic)
    before = np.ndarray[Any, np.dtype[scalar]]
    after = TypeAliasType("after", before, type_params=(scalar,))
    for alias in (before, after):
        table = type("Numbers", (Table,), {"__annotations__": {"number": alias[np.int16], "sure": alias[np.bool_]}})
        assert np.dtype([("number", np.int16), ("sure", np.bool_)], align=True) == table.FIELDS


@pytest.mark.skipif(not importlib.util.find_spec("yaml"), reason="PyYAML is not installed")
@pytest.mark.parametrize("path", sorted(ROOT.glob(".github/workflows/*.yml")), ids=lambda p: p.name)
def test_a_workflow_waits_for_jobs_that_it_has_and_may_write_only_where_it_publishes(path):
    import yaml

    assert not re.findall(r"uses: \S+@(?![0-9a-f]{40}  # v)", path.read_text()), "an action is named by its commit"
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


def test_all_that_names_the_version_names_the_same_one():
    version = fairlead.__version__
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    locked = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    assert pyproject["project"]["version"] == version
    assert [each["version"] for each in locked if each["name"] == "fairlead"] == [version]
    assert re.findall(r"^## (.*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] in (version, "Unreleased")
    assert f"/v{version}/fairlead-{version}-cp311-abi3-manylinux_2_28_x86_64.whl" in (ROOT / "docs" / "install.md").read_text()
    assert f"| {version.rpartition('.')[0]} | " in (ROOT / "docs" / "upgrades.md").read_text()


def test_the_news_of_a_version_are_twenty_lines():
    news = (ROOT / "CHANGELOG.md").read_text().partition("\n## ")[2].partition("\n### ")[0]
    assert len(re.findall(r"^- ", news, re.MULTILINE)) <= 20, "what is less important goes below"

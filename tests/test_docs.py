"""The documents' examples, run: the README's transcript line by line, and the configuration page's file."""

import re
import time
from pathlib import Path

import pytest

from fairlead.model.documents import read_configuration

ROOT = Path(__file__).parent.parent


def transcripts():
    """(command, what it prints) of the README, in order."""
    blocks = re.findall(r"<!-- transcript -->\n```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    steps = []
    for line in "".join(blocks).splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], []))
        else:
            steps[-1][1].append(line)
    return steps


def alike(expected, printed):
    """Whether the lines are the same, but for white space and what stands for ``...``."""
    pattern = "\n".join(
        r"\s*" + r"\s*".join(re.escape(word).replace(r"\.\.\.", r"\S+") for word in line.split()) + r"\s*"
        for line in expected
    )
    return re.fullmatch(pattern.replace(r"\S+", r"\S.*?") + r"\s*", printed.strip("\n")) is not None


def test_the_first_session_goes_as_the_readme_says(live):
    live.end()
    live.config = ROOT / "examples" / "lab.toml"
    live.home = live.folder / "another"
    live.env["FAIRLEAD_HOME"] = str(live.home)
    live.up()
    steps = transcripts()
    assert len(steps) >= 9
    for command, expected in steps:
        # Shares settle within a few seconds, as tasks end; what a person sees after a moment is what counts.
        for attempt in range(
            1 if not command.startswith(("fairlead queues", "fairlead nodes", "fairlead jobs")) else 150
        ):
            time.sleep(0.1 * bool(attempt))
            result = live.shell(command)
            if alike(expected, result.stdout):
                break
        else:
            pytest.fail(f"$ {command}\n{result.stdout}{result.stderr}")


def test_every_command_of_the_readme_is_in_the_makefile_or_the_program():
    text = (ROOT / "README.md").read_text()
    targets = re.findall(r"^make (\w+)", text, re.MULTILINE)
    assert targets[:2] == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{target}:" in makefile for target in targets)


def test_the_configuration_page_shows_a_valid_file(tmp_path):
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "configuration.md").read_text(), re.DOTALL)
    (tmp_path / "fairlead.toml").write_text(block)
    configuration = read_configuration(tmp_path / "fairlead.toml")
    assert [n.name for n in configuration.nodes] == ["gpu-0", "gpu-1"]
    assert "research/*" in [q.name for q in configuration.queues]


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]), ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target

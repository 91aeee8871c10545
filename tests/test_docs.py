"""The documents' examples, run line by line on a scheduler of their own; and the site, built."""

import importlib.util
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

import forked
from conftest import FAIRLEAD, Live
from fairlead.cli.main import COMMANDS, app
from fairlead.model import documents
from fairlead.model.documents import read_configuration
from fairlead.policies.registry import find_policy

ROOT = Path(__file__).parent.parent


PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
ALONE = ("allocate.md", "research.md", "fair.md", "simulate.md", "over-time.md", "yarn.md", "import.md", "diff.md")
"""The pages that need no scheduler."""
LISTS = ("fairlead queues", "fairlead nodes", "fairlead job", "fairlead why", "fairlead when", "fairlead top")


def steps_of(page):
    """What a person does on a page, in order: (command, what it prints), or (Python program, what it prints)."""
    steps = []
    text = page.read_text()
    blocks = re.compile(
        r"<!-- transcript -->\n```console\n(?P<console>.*?)```|```python\n(?P<python>.*?)```\n\n```text\n(?P<text>.*?)```",
        re.DOTALL,
    )
    for block in blocks.finditer(text):
        if block["python"]:
            steps.append(("python", block["python"], block["text"].splitlines()))
            continue
        for line in block["console"].splitlines():
            if line.startswith("$ "):
                steps.append(("shell", line[2:], []))
            elif line.startswith("> ") and "<<" in steps[-1][1]:
                steps[-1] = ("shell", f"{steps[-1][1]}\n{line[2:]}", [])
            else:
                steps[-1][2].append(line)
    return steps


def alike(expected, printed):
    """Whether the lines are the same, but for white space and what stands for ``...``."""
    pattern = "\n".join(
        r"\s*" + r"\s*".join(re.escape(word).replace(r"\.\.\.", r"\S+") for word in line.split()) + r"\s*" for line in expected
    )
    pattern = re.sub("─+", "─+", pattern.replace(r"\S+", r"\S.*?"))  # a table is as wide as what is in it
    return re.fullmatch(pattern + r"\s*", printed.strip("\n")) is not None


@pytest.mark.parametrize("page", [p for p in PAGES if steps_of(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_the_examples_of_a_page_do_what_it_says(page, tmp_path, command, monkeypatch):
    with Live(tmp_path) as world:
        for name, value in world.env.items():
            monkeypatch.setenv(name, value)
        world.config = ROOT / "examples" / "lab.toml"
        if page.name not in ALONE:
            world.up()
        (tmp_path / "examples").symlink_to(ROOT / "examples")
        exports = ""
        for kind, what, expected in steps_of(page):
            if what.startswith("export "):  # for the lines after it, as in one shell
                exports += what + "; "
                continue
            # Shares settle within a few seconds, as tasks end; what a person sees after a moment is what counts.
            for attempt in range(150 if what.startswith(LISTS) else 1):
                time.sleep(0.1 * bool(attempt))
                if attempt and not exports and re.fullmatch(r"[\w ./-]+", what):  # a process of its own once, not for each look
                    again = command(*what.split()[1:])
                    printed = again.stdout + again.stderr
                else:
                    printed = shell(world, exports + what) if kind == "shell" else python(world, what)
                if alike(expected, printed):
                    break
            else:
                pytest.fail(f"{page.name}: $ {what}\n{printed}")


def shell(world, line):
    """A line as a person types it, and all that it prints."""
    path = f"{forked.folder_with_command()}:{world.env['PATH']}"
    command = ["bash", "-c", line]
    result = subprocess.run(
        command, env={**world.env, "PATH": path}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
        check=False, cwd=world.folder,
    )  # fmt: skip
    return re.sub("waiting for .*\n", "", result.stdout)  # there may be nothing to wait for


def python(world, program):
    command = [sys.executable, "-"]
    result = subprocess.run(
        command,
        cwd=world.folder,
        input=program,
        env=world.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return result.stdout


def names_of(group):
    """The commands of a group, and those of the groups in it."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        yield from (f"{name} {below}" for below in names_of(command)) if hasattr(command, "list_commands") else [name]


def test_each_command_has_a_page():
    group = typer.main.get_command(app)
    told = "".join(path.read_text() for path in ROOT.glob("docs/commands/*.md"))
    for name in names_of(group):
        assert f"<!-- options: {name} -->" in told, f"`make docs` needs a page for {name}"


def of_docs(name):
    """A module that writes pages."""
    spec = importlib.util.spec_from_file_location(f"docs_{name.removesuffix('.py')}", ROOT / "docs" / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_command_says_what_it_does_and_takes_in_a_line(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for group in ([], ["token"], ["service"], ["journal"], ["import"]):
        told = command(*group, "--help").stdout
        assert not [line for line in told.partition("Commands:")[2].splitlines() if line.endswith("...")], told
    told = command("simulate", "--help").stdout.partition("Options:")[2]
    assert "--nodes N " in told
    assert "<" not in re.sub(r"\S+<=x\S+", "", told), "no types of the program's own"


def test_the_help_lists_each_command_with_the_first_sentence_of_its_own():
    group = typer.main.get_command(app)
    assert {name: group.get_command(None, name).get_short_help_str(80) for name in COMMANDS} == {
        name: text for name, (_, text) in COMMANDS.items()
    }


def test_the_manual_page_and_the_completions_are_installed_as_the_program_says_them():
    module = of_docs("share.py")
    pages = module.pages()
    for place, page in pages.items():
        assert (ROOT / "share" / place).read_text("utf-8") == page, f"{place}: `make docs` brings it up to date"
    there = {str(path.relative_to(ROOT / "share")) for path in (ROOT / "share").rglob("*") if path.is_file()}
    columns = {name for name in there if name.startswith("fairlead/columns/")}
    assert there - columns == {*pages}
    for name in names_of(typer.main.get_command(app)):
        heading = ".SS fairlead " + name.replace("-", "\\-")
        assert f"{heading}\n" in pages["man/man1/fairlead.1"]
    installed = Path(sys.prefix, "share")
    for place in there:
        page = (ROOT / "share" / place).read_text("utf-8")
        assert (installed / place).read_text("utf-8") == page, f"{place}: `make kernels` installs it"
    if shutil.which("groff"):
        command = ["groff", "-man", "-ww", "-z", str(ROOT / "share/man/man1/fairlead.1")]
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert found.stderr == ""


def test_what_the_program_says_is_in_the_pages():
    module = of_docs("site.py")
    for page in ROOT.glob("docs/**/*.md"):
        assert module.filled(page.read_text()) == page.read_text(), f"{page}: `make docs` brings it up to date"


def test_the_site_is_built_without_a_warning(tmp_path):
    for name in ("docs", "src"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    command = [Path(FAIRLEAD).with_name("zensical"), "build", "--strict", "--config-file", "mkdocs.yml"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "submit_job" in (tmp_path / "site" / "python" / "index.html").read_text()


def test_each_line_for_who_comes_from_slurm_names_commands_and_options_that_there_are():
    group = typer.main.get_command(app)
    rows = [line.split(" | ")[1] for line in (ROOT / "docs" / "slurm.md").read_text().splitlines() if line.startswith("| `")]
    assert len(rows) > 25
    for row in rows:
        for words in map(str.split, re.findall(r"`([^`]*)`", row)):
            name, *options = words[1:] if words[0] == "fairlead" else ("submit", *words)
            assert name in group.list_commands(None), row
            known = {option for parameter in group.get_command(None, name).params for option in parameter.opts}
            end = options.index("--") if "--" in options else len(options)
            assert {option for option in options[:end] if re.match("--?[a-zA-Z]", option)} <= known, row


def test_every_command_of_the_readme_is_in_the_makefile_or_the_program():
    text = (ROOT / "README.md").read_text()
    targets = re.findall(r"^make (\w+)", text, re.MULTILINE)
    assert targets[:2] == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{target}:" in makefile for target in targets)


def test_the_configuration_page_shows_a_valid_file(tmp_path):
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "configuration.md").read_text(), re.DOTALL)
    (tmp_path / "fairlead.toml").write_text(block)
    configuration = read_configuration(tmp_path / "fairlead.toml", find_policy)
    assert [n.name for n in configuration.nodes] == ["gpu-0", "gpu-1"]
    assert "research/*" in [q.name for q in configuration.queues]


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]), ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target


def test_the_configuration_page_has_every_key():
    text = (ROOT / "docs" / "configuration.md").read_text()
    tables = [each for each in vars(documents).values() if isinstance(each, type) and issubclass(each, documents.Table)]
    assert [key for each in tables for key in each.model_fields if not re.search(rf"\b{key}\b", text)] == []


def test_the_problem_of_the_research_page_is_the_example():
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "research.md").read_text(), re.DOTALL)
    assert block == (ROOT / "examples" / "three-groups.toml").read_text()

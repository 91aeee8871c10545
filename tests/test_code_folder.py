"""What of a program's folder travels: what git would not ignore there."""

import io
import random
import subprocess
import tarfile

import pytest

from fairlead.client.code_folder import pack_folder


def packed(folder):
    with tarfile.open(fileobj=io.BytesIO(pack_folder(folder).data)) as tar:
        return set(tar.getnames())


def write(top, files):
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)


def git(folder, *words):
    return subprocess.run(["git", "-C", folder, *words], check=False, capture_output=True, text=True)


def test_patterns_above_the_folder_count_up_to_the_root_of_its_repository(tmp_path):
    repository = tmp_path / "above" / "repository"
    write(
        repository,
        {
            "../.gitignore": "*.py\n",
            ".git/config": "",
            ".gitignore": "*.dat\n/made\nlog/\n",
            "group/.gitignore": "!kept.dat\nprogram/*.tmp\n/once\n",
            "group/program/.gitignore": "!second.tmp\n",
            **dict.fromkeys([f"group/program/{name}" for name in ("x.py", "a.dat", "kept.dat", "log/x", "made")], ""),
            **dict.fromkeys([f"group/program/{name}" for name in ("first.tmp", "second.tmp", "sub/a.tmp", "once")], ""),
        },
    )
    program = repository / "group" / "program"
    left = {".gitignore", "x.py", "kept.dat", "made", "second.tmp", "sub/a.tmp", "once"}
    assert packed(program) == left
    (program / ".fairleadignore").write_text("*.py\n")
    assert packed(program) >= {"a.dat", "log/x", "first.tmp"}, "it counts alone"
    (program / ".fairleadignore").unlink()
    (repository / ".git").rename(repository / "none")
    assert packed(program) >= {"a.dat", "log/x", "first.tmp"}, "there is no repository"


@pytest.mark.parametrize("pattern", ["*", "/group/", "program"])
def test_a_folder_that_git_leaves_out_was_named_all_the_same(tmp_path, pattern):
    write(tmp_path, {".git/config": "", ".gitignore": f"{pattern}\n*.dat\n", "group/program/a.dat": ""})
    assert packed(tmp_path / "group" / "program") == {"a.dat"}


NAMES = ["a", "b", "keep", "x.dat", "y.py"]
PATTERNS = ["*", "*.dat", "!*.dat", "/a", "a/", "!a/", "!a", "keep/", "!keep", "*/", "!*/", "a/b", "a/**", "**/b", "!**/keep"]
PATTERNS += ["/*", "!/a", "a/*", "!a/b", "**/", "!a/**", "a/**/keep", "[ab]", "!y.py", "*.py", "b/**", "!b/keep"]


def plant(draw, folder, depth):
    for name in draw.sample(NAMES, draw.randint(2, 4)):
        if depth and "." not in name:
            (folder / name).mkdir()
            plant(draw, folder / name, depth - 1)
        else:
            (folder / name).touch()
    if draw.random() < 0.5:
        (folder / ".gitignore").write_text("\n".join(draw.choices(PATTERNS, k=draw.randint(1, 4))))


@pytest.mark.parametrize("seed", range(40))
def test_what_travels_is_what_git_does_not_ignore(tmp_path, seed):
    draw = random.Random(seed)
    git(tmp_path, "init", "--quiet")
    plant(draw, tmp_path, 3)
    folders = [path for path in sorted(tmp_path.glob("[!.]*/**")) if git(path, "check-ignore", "-q", path).returncode]
    for folder in [tmp_path, *draw.sample(folders, min(2, len(folders)))]:
        shown = git(folder, "ls-files", "--others", "--exclude-standard").stdout
        assert packed(folder) == set(shown.splitlines())

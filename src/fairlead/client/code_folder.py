"""Packs the folder of a program's code, to send it with its calls.

Files that `.gitignore` excludes are left out, as in git: by the files in the folder and below, and by those above it in the same
repository, unless these exclude the folder itself. If the folder has a `.fairleadignore`, of the same syntax, only that counts.
Packing is deterministic, so the archive's name is the hash of its content.
"""

import gzip
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

MOST_BYTES = 256 * 2**20
"""Total size of a folder's files, at most."""
NEVER = {".git", "__pycache__"}
OWN = ".fairleadignore"


class PackedCode(NamedTuple):
    """A packed folder: its name (a hash), the archive, and the path of the folder."""

    name: str
    data: bytes
    root: Path

    def within(self, path: Path | str) -> str | None:
        """Return a path relative to the folder; None if it is elsewhere."""
        real = Path(path).resolve()
        return str(real.relative_to(self.root)) if real.is_relative_to(self.root) else None


class _Rules(NamedTuple):
    """The patterns of an ignore file, last first, and the folder to which they apply."""

    folder: Path
    patterns: list[GitIgnoreSpecPattern]


def pack_folder(folder: Path | str) -> PackedCode:
    """Pack a folder. Symbolic links stay links. Raises ValueError if it is no folder or too large."""
    root = Path(folder).expanduser().resolve()
    if not root.is_dir():
        raise ValueError(f"working_dir {str(folder)!r}: no such folder: name an existing one")
    files = sorted(_files(root))
    _check_size(root, files)
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1, mtime=0) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in files:
            _add(tar, root, name)
    data = packed.getvalue()
    return PackedCode(hashlib.sha256(data).hexdigest()[:32], data, root)


def _files(root: Path) -> Iterator[str]:
    own = root / OWN
    rules = [_Rules(root, _patterns(own))] if own.exists() else _rules_above(root)
    yield from _files_below(root, root, rules, nested=not own.exists())


def _files_below(root: Path, folder: Path, rules: list[_Rules], nested: bool) -> Iterator[str]:
    ignore = folder / ".gitignore"
    if nested and ignore.is_file():
        rules = [*rules, _Rules(folder, _patterns(ignore))]
    for entry in os.scandir(folder):
        path, is_folder = Path(entry.path), entry.is_dir(follow_symlinks=False)
        if entry.name in NEVER or _is_left_out(path, is_folder, rules):
            continue
        if is_folder:
            yield from _files_below(root, path, rules, nested)
        elif entry.is_symlink() or entry.is_file():
            yield str(path.relative_to(root))


def _rules_above(root: Path) -> list[_Rules]:
    """Return the rules above a folder, from its repository's root on; none if they exclude the folder itself."""
    above = [root, *root.parents]
    top = next((i for i, folder in enumerate(above) if (folder / ".git").exists()), 0)
    rules: list[_Rules] = []
    for folder, below in zip(above[top:0:-1], above[top - 1 :: -1], strict=False):
        if (folder / ".gitignore").is_file():
            rules.append(_Rules(folder, _patterns(folder / ".gitignore")))
        if _is_left_out(below, True, rules):
            return []
    return rules


def _patterns(path: Path) -> list[GitIgnoreSpecPattern]:
    """Read the patterns of a file, last first; like git, skip a byte order mark and invalid patterns."""
    good = []
    for line in path.read_text(encoding="utf-8-sig", errors="surrogateescape").split("\n"):
        with suppress(GitIgnorePatternError):
            good.append(GitIgnoreSpecPattern(line))
    return good[::-1]


def _is_left_out(path: Path, is_folder: bool, rules: list[_Rules]) -> bool:
    """Return True if a path is ignored: the last matching pattern of the deepest ignore file decides."""
    for folder, patterns in reversed(rules):
        name = f"{path.relative_to(folder)}{'/' * is_folder}"
        for pattern in patterns:
            if pattern.include is not None and _matches(pattern, name):
                return bool(pattern.include)
    return False


def _matches(pattern: GitIgnoreSpecPattern, name: str) -> bool:
    """Return True if a pattern matches this very name, as in git; in pathspec, `a` also matches `a/b`, and `a/**` `a/`.

    A group of the regular expression ends at the end of a folder's name; without a group, the match must be shorter.
    """
    assert pattern.regex is not None
    found = pattern.regex.search(name)
    if found is None or found.lastgroup is None:
        return found is not None and (found.end() < len(name) or not name.endswith("/"))
    return any(each.end() == len(name) for each in pattern.regex.finditer(name))


def _check_size(root: Path, files: list[str]) -> None:
    sizes: dict[str, int] = {}
    for name in files:
        top = name.split("/")[0]
        sizes[top] = sizes.get(top, 0) + (root / name).lstat().st_size
    total = sum(sizes.values())
    if total > MOST_BYTES:
        largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
        raise ValueError(
            f"working_dir {root}: its files are {total >> 20} MiB, at most {MOST_BYTES >> 20} MiB are sent: most are in "
            f"{', '.join(f'{name} ({sizes[name] >> 20} MiB)' for name in largest)}: exclude what is not needed, in "
            f".gitignore or {OWN}"
        )


def _add(tar: tarfile.TarFile, root: Path, name: str) -> None:
    """Add a file or a link, without owner and times, so that packing is deterministic."""
    path = root / name
    found = tarfile.TarInfo(name)
    if path.is_symlink():
        found.type, found.linkname = tarfile.SYMTYPE, str(path.readlink())
        tar.addfile(found)
        return
    with path.open("rb") as file:
        there = os.fstat(file.fileno())
        found.size, found.mode = there.st_size, 0o755 if there.st_mode & stat.S_IXUSR else 0o644
        tar.addfile(found, file)

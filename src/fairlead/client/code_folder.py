"""The folder of a program's code, packed so that it travels with its calls.

What `.gitignore` files leave out is left out, as by git; where the folder has a `.fairleadignore`, written alike, that alone
counts. Packed twice it is the same, byte by byte, if nothing has changed, so its name says what is in it.
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

import pathspec
from pathspec.patterns.gitignore import GitIgnorePatternError

LARGEST = 256 * 2**20
"""Bytes of the files of one folder."""
NEVER = {".git", "__pycache__"}
OWN = ".fairleadignore"


class PackedCode(NamedTuple):
    """A folder, packed: its name, what is in it, and where it was."""

    name: str
    data: bytes
    root: Path


def pack_folder(folder: Path | str) -> PackedCode:
    """Pack a folder. Links go as links. Raises ValueError where it is none, or too large."""
    root = Path(folder).expanduser().resolve()
    if not root.is_dir():
        raise ValueError(f"working_dir {str(folder)!r}: there is no such folder: name one that there is")
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
    """The names of files and links, from the root on, that are not left out."""
    own = root / OWN
    specs = [("", _spec(own))] if own.exists() else []
    yield from _files_below(root, "", specs, nested=not specs)


def _files_below(
    root: Path, below: str, specs: list[tuple[str, pathspec.GitIgnoreSpec]], nested: bool
) -> Iterator[str]:
    ignore = root / below / ".gitignore"
    if nested and ignore.is_file():
        specs = [*specs, (below, _spec(ignore))]
    for entry in os.scandir(root / below):
        name, is_folder = below + entry.name, entry.is_dir(follow_symlinks=False)
        if entry.name in NEVER or _is_left_out(name + "/" * is_folder, specs):
            continue
        if is_folder:
            yield from _files_below(root, f"{name}/", specs, nested)
        elif entry.is_symlink() or entry.is_file():
            yield name


def _spec(path: Path) -> pathspec.GitIgnoreSpec:
    """The patterns of a file; as git does, without a byte order mark, and without those that are none."""
    good = []
    for line in path.read_text(encoding="utf-8-sig", errors="surrogateescape").splitlines():
        with suppress(GitIgnorePatternError):
            pathspec.GitIgnoreSpec.from_lines([line])
            good.append(line)
    return pathspec.GitIgnoreSpec.from_lines(good)


def _is_left_out(name: str, specs: list[tuple[str, pathspec.GitIgnoreSpec]]) -> bool:
    """Whether it is; of several files that speak of it the deepest counts."""
    for below, spec in reversed(specs):
        said = spec.check_file(name.removeprefix(below)).include
        if said is not None:
            return said
    return False


def _check_size(root: Path, files: list[str]) -> None:
    sizes: dict[str, int] = {}
    for name in files:
        top = name.split("/")[0]
        sizes[top] = sizes.get(top, 0) + (root / name).lstat().st_size
    total = sum(sizes.values())
    if total > LARGEST:
        largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
        raise ValueError(
            f"working_dir {root}: its files are {total >> 20} MiB, and at most {LARGEST >> 20} MiB travel: most are in "
            f"{', '.join(f'{name} ({sizes[name] >> 20} MiB)' for name in largest)}: leave out what is not needed, in "
            f".gitignore or {OWN}"
        )


def _add(tar: tarfile.TarFile, root: Path, name: str) -> None:
    """Add a file or a link, with what makes a difference where it is unpacked, and nothing else."""
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

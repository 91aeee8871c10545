"""How the kernels are compiled, and where the machine code is kept.

numba's own cache looks at one file only: it would keep old code when what a kernel takes from another file changes there. So each
file of kernels has a cache folder of its own, named after a digest of that file and of all files of fairlead that it imports, and
those import.
"""

import hashlib
import importlib
import platform
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import platformdirs
from numba.core import config
from numba.core.caching import _CacheLocator
from numba.np import linalg

F = TypeVar("F", bound=Callable[..., object])

_PACKAGE = Path(__file__).parent
_IMPORT = re.compile(r"^(?:from|import) fairlead([\w.]*)(?: import (\([^)]*\)|.*))?", re.MULTILINE)
KERNELS = Path(platformdirs.user_cache_dir("fairlead")) / "kernels"


def _leave_scipy_out() -> None:
    """Have numba not look for a BLAS, for which it would read all of scipy.linalg when the first kernel is compiled or loaded.

    That takes a quarter of a second, and is for `np.convolve` and `np.correlate` alone, which have code of their own without one
    (and round otherwise, in the last digit).
    """

    def is_not_there() -> None:
        raise ImportError

    before = linalg.ensure_blas
    linalg.ensure_blas = is_not_there
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = before


_leave_scipy_out()


def compiled(function: F) -> F:
    """Compile a function when it is first called; keep the result for the next process."""
    return _compile(function, nogil=False)


def unlocked(function: F) -> F:
    """The same, for what may take long: the interpreter's other threads go on meanwhile."""
    return _compile(function, nogil=True)


def _compile(function: F, nogil: bool) -> F:
    source = Path(cast(str, sys.modules[function.__module__].__file__))
    before = config.CACHE_DIR  # type: ignore[attr-defined]
    config.CACHE_DIR = str(KERNELS / digest_of(source))  # type: ignore[attr-defined]
    try:
        kernel: Any = numba.njit(cache=True, nogil=nogil)(function)
    finally:
        config.CACHE_DIR = before  # type: ignore[attr-defined]
    return cast(F, kernel)


@cache
def digest_of(source: Path) -> str:
    """Name all that goes into the kernels of a file: its text, that of what it imports, and whether indices are checked."""
    found, new = {Path(__file__)}, [source]
    while new:
        path = new.pop()
        if path not in found:
            found.add(path)
            new += _imported(path)
    checked = config.BOUNDSCHECK  # type: ignore[attr-defined]
    digest = hashlib.sha256(f"{numba.__version__} {platform.python_version()} {checked}".encode())
    for path in sorted(found):
        digest.update(_text_of(path))
    return digest.hexdigest()[:16]


@cache
def _text_of(source: Path) -> bytes:
    return source.read_bytes()


@cache
def _imported(source: Path) -> list[Path]:
    """The files of fairlead that a file imports; what is imported from a package may be a file of it, too."""
    found = []
    for module, names in _IMPORT.findall(_text_of(source).decode()):
        place = _PACKAGE.joinpath(*module.split("."))
        for part in [place, *(place / name for name in re.findall(r"\w+", names))]:
            found += [file for file in (part.with_suffix(".py"), part / "__init__.py") if file.is_file()]
    return found


def is_cached() -> bool:
    """Tell whether the kernels were compiled before, so that starting takes no time."""
    source = _PACKAGE / "scheduler" / "kernel_cycle.py"
    mine = _CacheLocator.get_suitable_cache_subpath(str(source))  # type: ignore[no-untyped-call]
    return any((KERNELS / digest_of(source) / mine).glob("*.nbi"))  # each installation has its own

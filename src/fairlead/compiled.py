"""How the kernels are compiled, and where the machine code is kept.

numba's own cache looks at one file only and would keep old code when a function that a kernel calls changes in another
file. So the cache lives in a folder named after a digest of everything that goes into the kernels.
"""

import hashlib
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import platformdirs
from numba.core import config

F = TypeVar("F", bound=Callable[..., object])

_PACKAGE = Path(__file__).parent


def _digest() -> str:
    digest = hashlib.sha256(f"{numba.__version__} {platform.python_version()}".encode())
    for path in sorted([*_PACKAGE.glob("scheduler/kernel_*.py"), *_PACKAGE.glob("policies/*.py"), Path(__file__)]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


CACHE = Path(platformdirs.user_cache_dir("fairlead")) / f"kernels-{_digest()}"


def compiled(function: F) -> F:
    """Compile a function when it is first called; keep the result for the next process."""
    before = config.CACHE_DIR  # type: ignore[attr-defined]
    config.CACHE_DIR = str(CACHE)  # type: ignore[attr-defined]
    try:
        kernel: Any = numba.njit(cache=True)(function)
    finally:
        config.CACHE_DIR = before  # type: ignore[attr-defined]
    return cast(F, kernel)


def is_cached() -> bool:
    """Tell whether the kernels were compiled before, so that starting takes no time."""
    return any(CACHE.rglob("*.nbi"))

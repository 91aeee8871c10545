"""Which variables of this terminal go with a job: those that programs need, and those that somebody has named.

What is sent is in the scheduler's journal, where it stays for a while; the rest of an environment often has secrets in it. Names
may be patterns, such as ``LC_*``. ``env = [...]`` in `client.toml` of the person's or the system's configuration adds to them.
"""

import os
import tomllib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

NEEDED = (
    "PATH", "LANG", "LANGUAGE", "LC_*", "TERM", "COLORTERM", "TZ", "SHELL",
    "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH", "LD_LIBRARY_PATH",
)  # fmt: skip
"""What always goes. HOME, USER and LOGNAME are the account's where the task runs."""

SYSTEM_CONFIGURATION = Path("/etc/fairlead/client.toml")


class BadConfiguration(ValueError):
    """A client.toml that cannot be used: which, and what would be right."""


def needed_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Of an environment, what programs need, and what the configuration names. Raises BadConfiguration."""
    return _matching(environment, [*NEEDED, *configured_names()])


def configured_names() -> list[str]:
    """The names that the system's configuration and the person's add. Raises BadConfiguration."""
    import platformdirs

    own = Path(platformdirs.user_config_dir("fairlead")) / "client.toml"
    return [name for path in (SYSTEM_CONFIGURATION, own) for name in _names_in(path)]


def _matching(environment: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    plain, patterns = set(), []
    for name in names:
        patterns.append(name) if "*" in name else plain.add(name)
    return {
        name: value
        for name, value in environment.items()
        if name in plain or any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def _names_in(path: Path) -> list[str]:
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise BadConfiguration(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    names = found.pop("env", [])
    if found:
        raise BadConfiguration(f"{path}: {min(found)}: no such key here: there is env")
    if not isinstance(names, list) or not all(isinstance(name, str) and name and "=" not in name for name in names):
        raise BadConfiguration(f'{path}: env: write a list of names, such as ["HF_HOME", "CUDA_*"]')
    return names

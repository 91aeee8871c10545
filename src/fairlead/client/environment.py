"""Selects the environment variables that are sent with a job: those that programs need, and configured ones.

Sent variables stay in the scheduler's journal for a while, and an environment often contains secrets, so the rest is not sent.
`env = [...]` in `client.toml` of the user's or the system's configuration adds names; patterns such as ``LC_*`` are allowed.
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
"""Variables that are always sent. HOME, USER and LOGNAME are those of the account that runs the task."""

SYSTEM_CONFIGURATION = Path("/etc/fairlead/client.toml")


class BadConfiguration(ValueError):
    """A client.toml is invalid; the message names the file and the remedy."""


def needed_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables to send. Raises BadConfiguration."""
    return _matching(environment, [*NEEDED, *configured_names()])


def configured_names() -> list[str]:
    """Return the names that the system's and the user's configuration add. Raises BadConfiguration."""
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
        raise BadConfiguration(f"{path}: {min(found)}: unknown key: the only key is env")
    if not isinstance(names, list) or not all(isinstance(name, str) and name and "=" not in name for name in names):
        raise BadConfiguration(f'{path}: env: write a list of names, such as ["HF_HOME", "CUDA_*"]')
    return names

"""Selects the environment variables that are sent with a job: those that programs need, and configured ones.

Sent variables stay in the scheduler's journal for a while, and an environment often contains secrets, so the rest is not sent.
`env = [...]` in `client.toml` of the user's or the system's configuration adds names; patterns such as ``LC_*`` are allowed.
`notify = "..."` there is the recipient of notifications that name none.
"""

import os
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

from fairlead.failure import Failure

NEEDED = (
    "PATH", "LANG", "LANGUAGE", "LC_*", "TERM", "COLORTERM", "TZ", "SHELL",
    "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH", "LD_LIBRARY_PATH",
)  # fmt: skip
"""Variables that are always sent. HOME, USER and LOGNAME are those of the account that runs the task."""
SYSTEM_CONFIGURATION = Path("/etc/fairlead/client.toml")


class BadConfiguration(Failure, ValueError):
    """A client.toml is invalid; the message names the file and the remedy."""


def needed_environment() -> dict[str, str]:
    names = [*NEEDED, *(name for configured, _ in map(_read, _configurations()) for name in configured)]
    return {name: value for name, value in os.environ.items() if any(fnmatchcase(name, each) for each in names)}


def configured_recipient() -> str | None:
    """Return who is notified if nobody is named, by the user's configuration or the system's. Raises BadConfiguration."""
    return next((to for _, to in map(_read, reversed(_configurations())) if to), None)


def _configurations() -> list[Path]:
    import platformdirs

    return [SYSTEM_CONFIGURATION, Path(platformdirs.user_config_dir("fairlead")) / "client.toml"]


def _read(path: Path) -> tuple[list[str], str]:
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return [], ""
    except (OSError, ValueError) as error:
        raise BadConfiguration(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    names, to = found.pop("env", []), found.pop("notify", "")
    if found:
        raise BadConfiguration(f"{path}: {min(found)}: unknown key: the keys are env and notify")
    if not isinstance(to, str):
        raise BadConfiguration(f'{path}: notify: write what --notify takes, such as "ada@example.org"')
    if not isinstance(names, list) or not all(isinstance(name, str) and name and "=" not in name for name in names):
        raise BadConfiguration(f'{path}: env: write a list of names, such as ["HF_HOME", "CUDA_*"]')
    return names, to

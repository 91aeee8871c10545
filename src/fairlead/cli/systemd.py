"""The systemd unit of a scheduler for all of a machine: written, enabled, started; and all of that undone."""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fairlead.cli.failure import Failure

RUNNING = Path("/run/systemd/system")
"""Is there where systemd runs."""

_UNIT = """\
[Unit]
Description=fairlead, a fair scheduler for everybody on this machine
After=network-online.target nss-user-lookup.target
Wants=network-online.target

[Service]
ExecStart={command}
ExecReload={program} --url unix:///run/fairlead/socket reload
# A restart of the scheduler leaves the tasks alone: they run on under their supervisor, and are adopted.
KillMode=process
Delegate=yes
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
"""


def install_unit(unit: Path, config: Path, more: Sequence[str]) -> None:
    """Write, enable and start it; print it and the commands where there is no systemd. A Failure where that cannot be."""
    program = str(Path(sys.argv[0]).absolute())
    command = [program, "up", "--system", *([f"--config={config.absolute()}"] if config.exists() else []), *more]
    text = _UNIT.format(command=shlex.join(command).replace("%", "%%"), program=program)
    if not RUNNING.is_dir():
        print(f"# systemd does not run here. Where it does, this is {unit}:")
        print(text)
        print(f"# and then: systemctl daemon-reload && systemctl enable --now {unit.name}")
        print(f"# Here: {shlex.join(command)}")
        return
    _check_root()
    unit.write_text(text)
    _systemctl("daemon-reload")
    _systemctl("enable", "--now", unit.name)
    print(f"{unit} is written, and {unit.name} runs")


def remove_unit(unit: Path) -> None:
    """Stop, disable and remove it; print the commands where there is no systemd. A Failure where that cannot be."""
    if not RUNNING.is_dir():
        print("# systemd does not run here. Where it does:")
        print(f"systemctl disable --now {unit.name} && rm {unit} && systemctl daemon-reload")
        return
    _check_root()
    if not unit.exists():
        raise Failure(f"{unit}: there is no such unit: nothing to remove")
    _systemctl("disable", "--now", unit.name)
    unit.unlink()
    _systemctl("daemon-reload")
    print(f"{unit.name} is stopped, and {unit} is removed; its data stays in /var/lib/fairlead")


def _check_root() -> None:
    if os.geteuid() != 0:
        raise Failure("a service of the system is root's to change: say it with sudo")


def _systemctl(*words: str) -> None:
    try:
        done = subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False)  # noqa: S607
    except OSError as error:
        raise Failure(f"systemctl: {error.strerror}") from None
    if done.returncode != 0:
        raise Failure(
            f"systemctl {' '.join(words)}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'failed'}"
        )

"""The systemd unit of a scheduler for all of a machine: written, enabled, started; and all of that undone."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from fairlead.cli.failure import Failure
from fairlead.cli.up import Asked, check_start
from fairlead.model.documents import DocumentError
from fairlead.scheduler.admission import Refused

RUNNING = Path("/run/systemd/system")
"""Is there where systemd runs."""

_UNIT = """\
[Unit]
Description=fairlead, a fair scheduler for everybody on this machine
After=network-online.target nss-user-lookup.target
Wants=network-online.target

[Service]
# Started when it answers; the first start compiles for a minute or two.
Type=notify
TimeoutStartSec=15min
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


def install_unit(unit: Path, asked: Asked) -> None:
    """Write, enable and start it, or start it anew; print it and the commands where there is no systemd.

    A Failure where that cannot be, or what was asked for is nothing that `fairlead up` would start with.
    """
    if asked.config is None or not asked.config.exists():
        raise Failure(
            f"{asked.config}: there is no such file: write it first; an empty one gives everybody a queue of their own"
        )
    try:
        asked = check_start(asked)
    except (DocumentError, Refused) as error:
        raise Failure(str(error)) from None
    program = str(Path(sys.argv[0]).absolute())
    command = [program, "up", "--system", *_options(asked)]
    text = _UNIT.format(command=shlex.join(command).replace("%", "%%"), program=program)
    if not RUNNING.is_dir():
        print(f"# systemd does not run here. Where it does, this is {unit}:")
        print(text)
        print(f"# and then: systemctl daemon-reload && systemctl enable {unit.name} && systemctl restart {unit.name}")
        print(f"# Here: {shlex.join(command)}")
        return
    _check_root()
    unit.write_text(text)
    _systemctl("daemon-reload")
    _systemctl("enable", unit.name)
    _systemctl("restart", unit.name)  # `enable --now` leaves one that runs as it was
    print(f"{unit} is written, and {unit.name} is started: `systemctl status {unit.name}` says how it is")


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


def _options(asked: Asked) -> list[str]:
    said = {"config": asked.config, "listen": asked.listen, "tls-cert": asked.tls_cert, "tls-key": asked.tls_key}
    return [f"--{name}={value}" for name, value in said.items() if value is not None] + [
        f"--name={name}" for name in asked.names
    ]


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

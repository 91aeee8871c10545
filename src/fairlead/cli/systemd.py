"""Installs and removes the systemd unit of the machine-wide scheduler."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from fairlead.cli.up import UpOptions, check_start
from fairlead.data_folder import home_folder
from fairlead.failure import Failure, failing

RUNNING = Path("/run/systemd/system")
"""Exists where systemd runs."""
_UNIT = """\
[Unit]
Description=fairlead, {what}
After=network-online.target nss-user-lookup.target
Wants=network-online.target

[Service]
{how}
KillMode=process
Delegate=yes
Restart={restart}

[Install]
WantedBy=multi-user.target
"""

_SCHEDULER = """\
# Started when it answers; a large journal is read first.
Type=notify
TimeoutStartSec=15min
ExecStart={command}
ExecReload={program} --url unix:///run/fairlead/socket reload
# A restart of the scheduler leaves the tasks alone: they run on under their supervisor, and are adopted."""


def install_unit(unit: Path, options: UpOptions) -> None:
    """Write, enable and restart the unit; without systemd, print it and the commands.

    Raises Failure, also for options that `fairlead up` would refuse.
    """
    if options.config is None or not options.config.exists():
        raise Failure(f"{options.config}: no such file: write it first; an empty file gives everybody a queue of their own")
    options = check_start(options)
    program = str(Path(sys.argv[0]).absolute())
    given = {name: getattr(options, name) for name in ("config", "listen", "tls_cert", "tls_key", "nodes")}
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value is not None]
    command = [program, "up", "--system", *arguments, *(f"--name={name}" for name in options.names)]
    how = _SCHEDULER.format(command=_in_a_unit(command), program=program)
    what = "a fair scheduler for everybody on this machine"
    _install(unit, _UNIT.format(what=what, how=how, restart="always\nRestartSec=2"), command)


def install_node_unit(unit: Path, address: str, home: Path | None, config: Path | None, any_uid: bool) -> None:
    """Write, enable and start the unit of a node that has joined; without systemd, print it. Raises Failure."""
    where = {"home": home or home_folder(), "config": config}
    given = [f"--{name}={path.absolute()}" for name, path in where.items() if path is not None]
    given += ["--any-uid"] * any_uid
    command = [str(Path(sys.argv[0]).absolute()), "node", "join", address, *given]
    how = f"ExecStart={_in_a_unit(command)}\n# Tasks run on under their supervisor."
    what = "this machine as a node of a scheduler elsewhere"
    _install(unit, _UNIT.format(what=what, how=how, restart="on-failure\nRestartSec=5"), command)


def _in_a_unit(command: list[str]) -> str:
    return shlex.join(command).replace("%", "%%")


def _install(unit: Path, text: str, command: list[str]) -> None:
    if not RUNNING.is_dir():
        print(f"# systemd does not run here. Where it does, write {unit}:")
        print(text)
        print(f"# and run: systemctl daemon-reload && systemctl enable {unit.name} && systemctl restart {unit.name}")
        print(f"# Here, run: {shlex.join(command)}")
        return
    _check_root()
    unit.write_text(text)
    _systemctl("daemon-reload")
    _systemctl("enable", unit.name)
    _systemctl("restart", unit.name)  # `enable --now` would not restart a running unit
    print(f"{unit} is written, and {unit.name} is started: `systemctl status {unit.name}` shows its state")


def remove_unit(unit: Path) -> None:
    """Stop, disable and remove the unit; without systemd, print the commands. Raises Failure."""
    if not RUNNING.is_dir():
        print("# systemd does not run here. Where it does, run:")
        print(f"systemctl disable --now {unit.name} && rm {unit} && systemctl daemon-reload")
        return
    _check_root()
    if not unit.exists():
        raise Failure(f"{unit}: no such unit: nothing to remove")
    _systemctl("disable", "--now", unit.name)
    unit.unlink()
    _systemctl("daemon-reload")
    print(f"{unit.name} is stopped, and {unit} is removed; its data stays in /var/lib/fairlead")


def _check_root() -> None:
    if os.geteuid() != 0:
        raise Failure("only root may change a system service: use sudo")


def _systemctl(*words: str) -> None:
    with failing("systemctl: ", OSError):
        done = subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False)  # noqa: S607
    if done.returncode != 0:
        raise Failure(f"systemctl {' '.join(words)}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'failed'}")

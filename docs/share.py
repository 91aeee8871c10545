"""Writes the manual page and the completions of three shells into share/, which the wheel includes: `python docs/share.py`."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import typer.main
from typer import Context

import fairlead
from fairlead.cli.main import app

SHARE = Path(__file__).parent.parent / "share"
SHELLS = {
    "bash": "bash-completion/completions/fairlead",
    "zsh": "zsh/site-functions/_fairlead",
    "fish": "fish/vendor_completions.d/fairlead.fish",
}
NO_FILES = """    if [ "${COMPREPLY[*]}" = " " ]; then compopt +o default; COMPREPLY=(); fi
"""
"""Bash offers file names for an empty completion; a single blank stands for no completion at all."""
FILES = """.SH FILES
.TP
.I fairlead.toml
The queues and nodes: named with \\fBfairlead up \\-\\-config\\fR.
.TP
.I ~/.local/share/fairlead
The data folder, unless \\fBFAIRLEAD_HOME\\fR names another; of the machine-wide scheduler, \\fI/var/lib/fairlead\\fR.
.SH ENVIRONMENT
.TP
.B FAIRLEAD_URL
The scheduler to ask: unix:///path, https://host:port. \\fBFAIRLEAD_TOKEN\\fR is the token for a remote
scheduler, and \\fBFAIRLEAD_CA\\fR the CA of its certificate.
.SH EXIT STATUS
0 for success, 1 for an error, 2 for wrong usage; \\fBfairlead run\\fR exits with the status of its command.
"""


def pages() -> dict[str, str]:
    """Return the files by their paths in share/."""
    return {"man/man1/fairlead.1": manual()} | {path: completion(shell) for shell, path in SHELLS.items()}


def completion(shell: str) -> str:
    """Return a shell's completion script, as the program prints it."""
    program = Path(sys.executable).with_name("fairlead")
    env = {**os.environ, "_FAIRLEAD_COMPLETE": f"source_{shell}"}
    script = subprocess.run([program], env=env, capture_output=True, text=True, check=True).stdout
    return (script.replace("    return 0\n", NO_FILES + "    return 0\n") if shell == "bash" else script).strip() + "\n"


def manual() -> str:
    """Return the manual page: each command with its options."""
    group: Any = typer.main.get_command(app)
    lines = [
        f'.TH FAIRLEAD 1 "" "fairlead {fairlead.__version__}" "User Commands"',
        ".SH NAME",
        "fairlead \\- run many people's work on shared machines, fairly",
        ".SH SYNOPSIS",
        ".B fairlead",
        '.RI [ options ] " command " [ arguments ]',
        ".SH DESCRIPTION",
        *roff(group.help),
        ".SH OPTIONS",
        *parameters(group),
        ".SH COMMANDS",
    ]
    for name, command in commands(group, []):
        lines += [f".SS fairlead {roff(name)[0]}", *roff(command.help), *parameters(command)]
    return "\n".join(lines) + "\n" + FILES


def commands(group: Any, above: list[str]) -> list[tuple[str, Any]]:
    """Return all commands with their names; groups are flattened."""
    found = []
    for name in group.list_commands(Context(group)):
        command = group.get_command(Context(group), name)
        inner = hasattr(command, "list_commands")
        found += commands(command, [*above, name]) if inner else [(" ".join([*above, name]), command)]
    return found


def parameters(command: Any) -> list[str]:
    """Format the arguments and options of a command, a paragraph each."""
    lines = []
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            label = f"\\fI{roff(parameter.metavar or parameter.name.upper())[0]}\\fR"
        else:
            value = (
                ""
                if getattr(parameter, "is_flag", False)
                else f" \\fI{roff(parameter.metavar or '|'.join(parameter.type_descriptor.choices or ['VALUE']))[0]}\\fR"
            )
            label = ", ".join(f"\\fB{roff(name)[0]}\\fR" for name in parameter.opts) + value
        lines += [".TP", label, *(roff(getattr(parameter, "help", None) or "") or [""])]
    return lines


def roff(text: str) -> list[str]:
    """Escape text for roff; an empty line begins a paragraph."""
    plain = re.sub(r"[ \t]*\n[ \t]*", "\n", text.strip()).replace("\\", "\\e").replace("-", "\\-")
    return [".PP" if not line else "\\&" * line.startswith((".", "'")) + line for line in plain.split("\n")] if plain else []


if __name__ == "__main__":
    for place, page in pages().items():
        path = SHARE / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, "utf-8")

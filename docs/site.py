"""Writes into the pages what the program itself says: the options of each command, the paths of the API, what becomes of a task.

`python docs/site.py` does it, from `<!-- options: NAME -->`, `<!-- endpoints -->` or `<!-- transitions -->` to `<!-- end -->`.
"""

import re
from pathlib import Path
from types import SimpleNamespace

import typer.main
from typer import Context

from fairlead.cli.main import app
from fairlead.scheduler.statuses import EVENT_NAMES, IMPOSSIBLE, STATUS_NAMES, TRANSITIONS


def filled(page: str) -> str:
    """A page with what the program says put in."""
    page = re.sub(
        r"(<!-- options: (\w+) -->\n).*?(<!-- end -->)", lambda m: m[1] + options(m[2]) + m[3], page, flags=re.DOTALL
    )
    page = re.sub(
        r"(<!-- endpoints -->\n).*?(<!-- end -->)", lambda m: m[1] + endpoints() + m[2], page, flags=re.DOTALL
    )
    return re.sub(
        r"(<!-- transitions -->\n).*?(<!-- end -->)", lambda m: m[1] + transitions() + m[2], page, flags=re.DOTALL
    )


def options(name: str) -> str:
    """The arguments and options of a command, as a table."""
    group = typer.main.get_command(app)
    command = group.get_command(Context(group), name)
    lines = ["", f"## Options of `{name}`", "", "| option | what |", "| --- | --- |"]
    for parameter in command.params:
        told = (getattr(parameter, "help", None) or "").replace("|", "\\|")
        if parameter.param_type_name == "argument":
            label = parameter.metavar or parameter.name.upper()
        else:
            flag = getattr(parameter, "is_flag", False)
            label = ", ".join(parameter.opts) + ("" if flag else " " + (parameter.metavar or "VALUE").upper())
        default = parameter.default
        shown = "" if default in (None, False, "", [], ()) or callable(default) else f" Default: `{default}`."
        lines.append(f"| `{label}` | {told}{shown} |")
    return "\n".join(lines) + "\n\n"


def endpoints() -> str:
    """The paths of the API, as a table."""
    from fairlead.service.api.app import make_api

    api = make_api(SimpleNamespace(loop=None), None, None, None, "", None, None, None)
    lines = ["", "| request | what |", "| --- | --- |"]
    for path, methods in api.openapi()["paths"].items():
        for method, operation in methods.items():
            told = operation.get("description", "").split("\n\n")[0].replace("\n", " ")
            lines.append(f"| `{method.upper()} {path}` | {told} |")
    return "\n".join(lines) + "\n\n"


def transitions() -> str:
    """What a task is after each event, as a table with a column for each status in which something can still happen."""
    columns = [(name, row) for name, row in zip(STATUS_NAMES, TRANSITIONS, strict=True) if set(row) != {IMPOSSIBLE}]
    lines = ["", f"| | {' | '.join(name for name, _ in columns)} |", "| --- |" + " --- |" * len(columns)]
    for event, told in enumerate(EVENT_NAMES):
        after = ["" if row[event] == IMPOSSIBLE else STATUS_NAMES[row[event]] for _, row in columns]
        lines.append(f"| **{told}** | {' | '.join(after)} |")
    return "\n".join(lines) + "\n\n"


if __name__ == "__main__":
    for path in Path(__file__).parent.rglob("*.md"):
        path.write_text(filled(path.read_text()))

"""Writes into the pages what the program itself says: options of commands, paths of the API, metrics, statuses of a task.

`python docs/site.py` does it, from `<!-- options: NAME -->`, or a comment with the name of a function below, to `<!-- end -->`.
"""

import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace

import typer.main
from typer import Context

from fairlead.cli.main import COMMANDS, app
from fairlead.scheduler.statuses import EVENT_NAMES, IMPOSSIBLE, LIFECYCLES, STATUS_NAMES, TRANSITIONS


def filled(page: str) -> str:
    """A page with what the program says put in."""
    made = "|".join(each.__name__ for each in (commands, endpoints, access, reliability, lifecycles, transitions, metrics))
    page = re.sub(rf"(<!-- ({made}) -->\n).*?(<!-- end -->)", lambda m: m[1] + globals()[m[2]]() + m[3], page, flags=re.DOTALL)
    return re.sub(
        r"(<!-- options: ([\w ]+) -->\n).*?(<!-- end -->)", lambda m: m[1] + options(m[2]) + m[3], page, flags=re.DOTALL
    )


def commands() -> str:
    """Each command with the first sentence of its help and its page, as a table."""
    pages = {path.name: path.read_text() for path in sorted((Path(__file__).parent / "commands").glob("*.md"))}
    lines = ["", "| command | what |", "| --- | --- |"]
    for name, (_, told) in COMMANDS.items():
        page = next(page for page, text in pages.items() if re.search(rf"<!-- options: {name}[ >]", text))
        lines.append(f"| [`fairlead {name}`]({page}) | {told} |")
    return "\n".join(lines) + "\n\n"


def options(name: str) -> str:
    """The arguments and options of a command, as a table."""
    command = typer.main.get_command(app)
    for word in name.split():
        command = command.get_command(Context(command), word)
    lines = ["", f"## Options of `{name}`", "", "| option | what |", "| --- | --- |"]
    for parameter in command.params:
        told = (getattr(parameter, "help", None) or "").replace("|", "\\|")
        if parameter.param_type_name == "argument":
            label = parameter.metavar or parameter.name.upper()
        else:
            flag = getattr(parameter, "is_flag", False)
            label = ", ".join(parameter.opts) + (
                "" if flag else " " + (parameter.metavar or "|".join(parameter.type_descriptor.choices or ["VALUE"]))
            )
        label = label.replace("|", "\\|")
        default = ",".join(parameter.default) if isinstance(parameter.default, list) else parameter.default
        shown = "" if default in (None, False, "", [], ()) or callable(default) else f" Default: `{default}`."
        lines.append(f"| `{label}` | {told}{shown} |")
    return "\n".join(lines) + "\n\n"


def endpoints() -> str:
    """The paths of the API, as a table."""
    from fairlead.service.api.access import ROUTES
    from fairlead.service.api.app import Parts, make_api

    api = make_api(SimpleNamespace(loop=None, authenticator=None, wakeups=None), Parts(*[None] * 12))
    lines = ["", "| request | for | what |", "| --- | --- | --- |"]
    for path, methods in api.openapi()["paths"].items():
        for method, operation in methods.items():
            told = operation.get("description", "").split("\n\n")[0].replace("\n", " ")
            who = ROUTES[method.upper(), path].who.value
            lines.append(f"| `{method.upper()} {path}` | {who} | {told} |")
    return "\n".join(lines) + "\n\n"


def metrics() -> str:
    """The metrics of a scheduler, as a table."""
    from fairlead.service.metrics import exposition

    lines = ["", "| metric | type | what |", "| --- | --- | --- |"]
    told = dict(re.findall(r"^# HELP (\S+) (.*)", exposition([], []).decode(), re.MULTILINE))
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)", exposition([], []).decode(), re.MULTILINE):
        if not name.endswith("_created"):
            lines.append(f"| `{name}` | {kind} | {told[name]} |")
    return "\n".join(lines) + "\n\n"


def access() -> str:
    """Who may call which route and which command, as the tests try it."""
    spec = importlib.util.spec_from_file_location("access", Path(__file__).parent.parent / "tests" / "access.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return f"\n## Commands\n{module.table(module.COMMANDS)}## Routes of the API\n{module.table(module.ROUTES)}"


def reliability() -> str:
    """What was done to a scheduler, what was promised and what was seen, from the record of the last torture."""
    record = json.loads((Path(__file__).parent / "reliability.json").read_text())
    lines = ["", "| fault | how often | promised | seen |", "| --- | ---: | --- | --- |"]
    for name, told in sorted(record["faults"].items()):
        seen = "; ".join(f"{what} ({count})" for what, count in sorted(told["seen"].items()))
        lines.append(f"| {name} | {told['injected']} | {told['promised']} | {seen} |")
    minutes, tasks, twice = record["seconds"] / 60, record["tasks"], record["twice"]
    told = f"In {minutes:.0f} minutes {tasks:,} tasks were acknowledged. All of them were done; {twice} ran to their end twice."
    return "\n".join([*lines, "", told]) + "\n\n"


def transitions() -> str:
    """What a task is after each event, as a table with a column for each status in which something can still happen."""
    columns = [(name, row) for name, row in zip(STATUS_NAMES, TRANSITIONS, strict=True) if set(row) != {IMPOSSIBLE}]
    lines = ["", f"| | {' | '.join(name for name, _ in columns)} |", "| --- |" + " --- |" * len(columns)]
    for event, told in enumerate(EVENT_NAMES):
        after = ["" if row[event] == IMPOSSIBLE else STATUS_NAMES[row[event]] for _, row in columns]
        lines.append(f"| **{told}** | {' | '.join(after)} |")
    return "\n".join(lines) + "\n\n"


def lifecycles() -> str:
    """What jobs, offers, reservations and claims are after each event, as a table of each."""
    found = []
    for name, lifecycle in LIFECYCLES.items():
        statuses = lifecycle.statuses[:-1] if lifecycle.statuses[-1] in ("over", "forgotten") else lifecycle.statuses
        lines = ["", f"| {name} | {' | '.join(statuses)} |", "| --- |" + " --- |" * len(statuses)]
        for event, after in lifecycle.events.items():
            lines.append(f"| **{event}** | {' | '.join(' or '.join(after.get(status, ())) for status in statuses)} |")
        found.append("\n".join(lines) + "\n")
    return "".join(found) + "\n"


if __name__ == "__main__":
    for path in Path(__file__).parent.rglob("*.md"):
        path.write_text(filled(path.read_text()))

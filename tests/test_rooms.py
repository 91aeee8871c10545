"""The rooms of the architecture: each may import those above it in the list, never one below. No circles; short functions."""

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "fairlead"

ROOMS = [
    "failure",
    "outcomes",
    "descriptors",
    "data_folder",
    "disk_room",
    "sockets",
    "tls",
    "interrupts",
    "locks",
    "processes",
    "plain_text",
    "text_tables",
    "charts",
    "model",
    "html_page",
    "policies",
    "imports",
    "audit",
    "calls",
    "scheduler",
    "journal",
    "ray",
    "engines",
]
ROOMS += ["simulate", "people", "service", "client", "cli"]

LINES = 70
TOO_LONG: set[str] = set()
"""Files with functions that are yet to be taken apart."""

FILES = sorted(SOURCE.rglob("*.py"))


def name_of(path):
    """The dotted name of a module."""
    parts = ["fairlead", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


class Imports(ast.NodeVisitor):
    """The modules of fairlead that a module imports: when it is loaded, later, or for types only."""

    def __init__(self):
        self.found = set()

    def visit_Import(self, node):
        self.found |= {alias.name for alias in node.names if alias.name in MODULES}

    def visit_ImportFrom(self, node):
        assert not node.level, "an import says the whole name"
        within = {f"{node.module}.{alias.name}" for alias in node.names}
        self.found |= within & set(MODULES)
        if node.module in MODULES and within - set(MODULES):
            self.found.add(node.module)


@cache
def nodes_of(path):
    """All nodes of a module's syntax; the first is the module."""
    return [*ast.walk(ast.parse(path.read_text()))]


@cache
def imports_of(path):
    imports = Imports()
    imports.visit(nodes_of(path)[0])
    return imports.found


def names_imported(path):
    """All that a module imports, wherever in it."""
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_arrows_point_one_way():
    wrong = []
    for path in FILES:
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        if room not in ROOMS:
            wrong.append(f"{path}: {room} is no room")
            continue
        for name in names_imported(path):
            parts = name.split(".")
            if parts[0] == "fairlead" and len(parts) > 1 and ROOMS.index(parts[1]) > ROOMS.index(room):
                wrong.append(f"{path} imports {name}")
    assert not wrong, "\n".join(wrong)
    assert not {"utils", "helpers", "common", "base", "manager"} & {*ROOMS}


def test_no_circle_of_imports():
    """Not even one that hides in functions or behind TYPE_CHECKING: a module can be read without those that need it."""
    try:
        TopologicalSorter({name: imports_of(path) for name, path in MODULES.items()}).prepare()
    except CycleError as error:
        raise AssertionError(" <- ".join(error.args[1])) from None


FLOORS, ARROWS = 12, 130
"""Of the scheduler's room: floors of files and folders, and pairs that know each other, at most."""


def test_the_scheduler_s_room_stays_one_to_live_in():
    """Reports, decide, effects, state, order, kernel, tables: each knows those after it only. A folder counts as one file."""
    arrows = {}
    for name, path in MODULES.items():
        if name.startswith("fairlead.scheduler."):
            known = {each.split(".")[2] for each in imports_of(path) if each.startswith("fairlead.scheduler.")}
            arrows.setdefault(name.split(".")[2], set()).update(known - {name.split(".")[2]})
    floors = {}
    for file in TopologicalSorter(arrows).static_order():  # which fails where there is a circle
        floors[file] = 1 + max((floors[known] for known in arrows[file]), default=0)
    assert max(floors.values()) <= FLOORS
    assert sum(map(len, arrows.values())) <= ARROWS
    order = ["reports", "decide", "effects", "state", "order", "kernel", "tables"]
    assert sorted(order, key=floors.get, reverse=True) == order
    assert all(floors["effects"] > floors[file] > floors["state"] for file in ("frameworks", "preemption"))


def is_long(node):
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.end_lineno - node.lineno + 1 <= LINES:
        return False
    return not any(line.strip().startswith("Long because") for line in (ast.get_docstring(node) or "").splitlines())


def test_a_function_fits_on_a_screen():
    """Or its docstring says in a line that begins "Long because" why it cannot."""
    found = {str(path.relative_to(SOURCE)): [node.name for node in nodes_of(path) if is_long(node)] for path in FILES}
    long = {path: names for path, names in found.items() if names}
    wrong = [f"{path}: longer than {LINES} lines: {', '.join(names)}" for path, names in long.items() if path not in TOO_LONG]
    assert not wrong, "\n".join(wrong)
    assert {*long} >= TOO_LONG, "these have no long function any more: take them from TOO_LONG"


def test_each_rule_of_preemption_is_cited_where_it_is_applied():
    table = ast.get_docstring(ast.parse((SOURCE / "scheduler" / "preemption" / "claims.py").read_text()))
    rules = re.findall(r"^([a-z]+(?:-[a-z]+)*)  +[A-Z]", table, re.MULTILINE)
    assert len(rules) == 18
    scheduler = [path for path in (SOURCE / "scheduler").rglob("*") if path.suffix in (".py", ".pxi")]
    cited = " ".join(re.sub(r'^"""The code cites.*', "", path.read_text()) for path in scheduler)
    found = {rule for some in re.findall(r"[Rr]ules?: ([a-z, -]+)", cited) for rule in some.replace(" ", "").split(",")}
    assert not {*rules} - found

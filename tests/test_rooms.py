"""The rooms of the architecture: each may import those above it in the list, never one below."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "fairlead"

ROOMS = [
    "outcomes",
    "home",
    "compiled",
    "processes",
    "text",
    "page",
    "model",
    "policies",
    "audit",
    "scheduler",
    "journal",
    "engines",
]
ROOMS += ["simulate", "service", "client", "cli"]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_arrows_point_one_way(path):
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if room == "__init__":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "fairlead" and len(parts) > 1:
                assert ROOMS.index(parts[1]) <= ROOMS.index(room), f"{path} imports {name}"
    assert room not in {"utils", "helpers", "common", "base", "manager"}

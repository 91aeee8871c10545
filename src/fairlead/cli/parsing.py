"""The command line, parsed as Typer does, but sooner: only the command that is asked for is put together, and pydantic, which
takes longer to import than most commands do, is left to values that Typer has to convert.
"""

import copy
import sys
from typing import Any

import typer
import typer.core
from typer.main import get_command, get_command_name

_typers = getattr(typer.core, "build_runtime_param", None)
"""Makes what converts the values of one option or argument; older versions of Typer do without, and without pydantic."""


def run(app: typer.Typer) -> None:
    """Run what this process was asked for, as ``app()`` would."""
    get_command(_with_what_is_asked(app, "".join(sys.argv[1:2])))()


def _with_what_is_asked(app: typer.Typer, word: str) -> typer.Typer:
    """The application with the command or the group of this name only; with all where there is none."""
    commands = [each for each in app.registered_commands if _name_of(each) == word]
    groups = [each for each in app.registered_groups if each.name == word]
    if not commands and not groups:
        return app
    part = copy.copy(app)
    part.registered_commands, part.registered_groups = commands, groups
    return part


def _name_of(command: Any) -> str:
    return command.name or get_command_name(command.callback.__name__)


class _Plain:
    """Converts what is given for one option or argument: text as it is, and else what has a reader of its own."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        kind, reader = self._kind, self._kind.parameter_info.parser
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if reader is not None and not kind.is_list:
            return reader(value)
        if reader is None and kind.annotation is str and isinstance(value, str):
            return value
        if reader is None and kind.annotation == list[str] and isinstance(value, list | tuple):
            return list(value)
        assert _typers is not None
        return _typers(kind).coerce(value, param=param, ctx=ctx)


if _typers is not None:
    typer.core.build_runtime_param = _Plain  # type: ignore[attr-defined, assignment]

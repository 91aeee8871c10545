"""Builds a command from its function, as Typer does, but reads the values of its options itself.

Typer reads each value with pydantic, and importing that takes 85 ms of CPU, more than most commands.
"""

from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from typer.main import get_command
from typer.models import OptionInfo, ParameterInfo

from fairlead.cli.option_values import no_files
from fairlead.failure import failing

USAGE: type[Any] = typer.BadParameter.__mro__[1]
"""UsageError, which Typer does not export."""
HELP_OPTIONS = ["-h", "--help"]
FILES = ("FILE", "COMMAND")
"""Words in the metavar of a value that may be a file."""
METAVARS = {int: "N", float: "NUMBER", Path: "FILE"}
"""The metavar of an option by its type; text has that of `NAMED_METAVARS`, else the option's name."""
TIMES = "time_limit grace timeout since until expires over starved_after start end history begin retry_delay warm_up"
NAMED_METAVARS = {
    **dict.fromkeys(("home", "cwd", "out"), "FOLDER"),
    **dict.fromkeys(("cpu", "memory", "gpu"), "QUANTITY"),
    **dict.fromkeys(TIMES.split(), "TIME"),
    "policy": "POLICIES",
    "drop_node": "NODE",
    "by": "user|queue|job|day|week",
    "placement": "first|best|worst",
    "node": "NAME=QUANTITY,...",
    "offers": "QUEUES",
    "framework": "KEY=VALUE,...",
    "revoke": "on|off|on,off",
    "scale": "NUMBER",
    "nodes": "N",
    "seed": "N",
    "show": "POLICY/PROPERTY",
}


def new_group(name: str, text: str) -> typer.Typer:
    """Return an empty group of commands, whose help is `text`."""
    return typer.Typer(name=name, help=text, no_args_is_help=True, rich_markup_mode=None, add_completion=False)


def build(name: str, declared: Callable[..., Any] | typer.Typer) -> Any:
    """Build the command of a function, or the group of a Typer."""
    if not isinstance(declared, typer.Typer):
        function, declared = declared, new_group(name, "")
        declared.command(name)(function)
    for each in declared.registered_commands:
        describe(each.callback)
    command = get_command(declared)
    for built in (command, *getattr(command, "commands", {}).values()):
        read_values(built)
    return command


def _declared(function: Any) -> dict[str, tuple[Any, ParameterInfo]]:
    """The type of each parameter, without None, and its option or argument."""
    found = {}
    for name, hint in (get_type_hints(function, include_extras=True) if function else {}).items():
        if get_origin(hint) is Annotated:
            kind, *extras = get_args(hint)
            if get_origin(kind) in (Union, UnionType):
                kind = next(each for each in get_args(kind) if each is not type(None))
            found[name] = kind, next(each for each in extras if isinstance(each, ParameterInfo))
    return found


def describe(function: Any) -> None:
    """Give each option of a function its metavar, and have shells offer no file names for a value that is no file."""
    for name, (kind, info) in _declared(function).items():
        may_be_file = any(word in (info.metavar or "") for word in FILES)
        if kind in (int, float, str, list[str], list[int]) and info.autocompletion is None and not may_be_file:
            info.autocompletion = no_files
        if info.metavar is None and kind is not bool and get_origin(kind) is not Literal:
            named = NAMED_METAVARS.get(name) or METAVARS.get(kind) if isinstance(info, OptionInfo) else None
            info.metavar = named or name.upper()


def read_values(command: Any) -> None:
    """Have the options and arguments of a command read their values as :func:`_read` does."""
    declared = _declared(command.callback)
    context = typer.Context(command, help_option_names=HELP_OPTIONS)
    for param in command.get_params(context):
        if param.name in declared and declared[param.name][0] is not bool:
            param.process_value = _processor(param, *declared[param.name])
        elif param.default is None:
            param.default = False  # Typer reads None with pydantic, but not True and False
        if param.param_type_name == "argument":
            _show_plainly(param)


def _show_plainly(argument: Any) -> None:
    """Show an argument as NAME, or [NAME] if it may be missing, without the type that it has in Python."""
    word = argument.metavar + "..." * (argument.nargs != 1)
    argument.display_type_rich = lambda ctx: ""
    argument.get_usage_pieces = lambda ctx: [word if argument.required else f"[{word}]"]


def _processor(param: Any, kind: Any, info: ParameterInfo) -> Callable[[Any, Any], Any]:
    typers = param.process_value

    def process_value(ctx: typer.Context, value: Any) -> Any:
        if param.required and param.value_is_missing(value):
            return typers(ctx, value)  # which reports it
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        return _read(kind, info, value)

    return process_value


def _read(kind: Any, info: ParameterInfo, value: Any) -> Any:
    """Convert a value as it was typed, or a default, to its type. Raises typer.BadParameter."""
    if kind in (int, float) and isinstance(value, str):
        from fairlead.model.quantity import read_number

        with failing("", ValueError, to=typer.BadParameter):
            return read_number(value, kind, info.min, info.max)
    if kind == list[int]:
        return [_read(int, info, each) for each in value]
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise typer.BadParameter(f"write {' or '.join(get_args(kind))}, not {value!r}")
    if kind is Path:
        return Path(value)
    return list(value) if kind == list[str] else value

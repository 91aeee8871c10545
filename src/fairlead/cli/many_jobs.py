"""Reads a file of jobs, one per line: JSON objects or CSV, whose keys are the options of `fairlead submit`."""

import csv
import io
import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairlead.failure import Failure, failing
from fairlead.model.faults import check_digits, no_json, parse_json, repeated, shortened
from fairlead.model.quantity import read_number

LISTS = ("resource", "on", "prefer", "after", "env")
SWITCHES = ("gang", "led", "exit_done", "revocable", "export_all", "strict", "hold", "pack", "spread", "ray", "singleton")
NUMBERS = ("tasks", "nodes", "priority", "retries", "at_most", "bundles")
TEXTS = (
    "queue", "cpu", "memory", "gpu", "name", "time_limit", "grace", "signal", "cwd", "bundle", "group", "array", "notify_on",
    "begin", "retry_delay",
)  # fmt: skip
KNOWN = {"command", "notify", *LISTS, *SWITCHES, *NUMBERS, *TEXTS}


SHELL_SIGNS = ("|", "||", "&&", ";", "&", ">", ">>", "<")
"""Words that only a shell understands."""


def read_jobs(path: str, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Read the options of each job, with its place as `where`; an option that a line omits is that of `given`.

    `path` is ``-`` for standard input. Raises Failure, which names the line.
    """
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None
    check_digits(path, text, Failure)
    begins = text.lstrip()[:1]
    if begins == "[":
        raise Failure(f"{path}:1: begins with [: write one object per line, without brackets or commas around them")
    rows = _of_json(path, text) if begins == "{" else _of_csv(path, text)
    jobs = []
    for number, row in rows:
        where = f"{path}:{number}"
        asked = {**given, **{name: _value(where, name, value) for name, value in row.items()}, "where": where}
        if not asked["command"]:
            raise Failure(f"{where}: no command: write it after `--`, or as `command` here")
        jobs.append(asked)
    if not jobs:
        raise Failure(f"{path}: contains no job")
    return jobs


def _of_json(path: str, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                row = parse_json(line)
            except json.JSONDecodeError as error:
                raise Failure(f"{path}:{number}: {no_json(error)}") from None
            except (ValueError, RecursionError) as error:  # a repeated key, a number too long, brackets too deep
                raise Failure(f"{path}:{number}: {shortened(str(error))}") from None
            if not isinstance(row, dict):
                raise Failure(f'{path}:{number}: a job is an object, such as {{"command": ["echo", "hello"]}}')
            yield number, {name.replace("-", "_"): value for name, value in row.items()}


def _of_csv(path: str, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader, line = csv.DictReader(io.StringIO(text, newline=""), strict=True), 1
    try:
        names = [name.strip().replace("-", "_") for name in reader.fieldnames or []]
        if (twice := repeated(names)) is not None:
            raise Failure(f"{path}:1: two columns are named {shortened(twice)!r}: keep one of them")
        for name in names:
            _check_name(f"{path}:{reader.line_num}", name)
        line = reader.line_num + 1
        for row in reader:
            line = reader.line_num + 1
            if None in row or None in row.values():
                raise Failure(f"{path}:{reader.line_num}: must have as many cells as the first line")
            yield reader.line_num, {name.strip().replace("-", "_"): cell for name, cell in row.items() if cell.strip()}
    except csv.Error as error:
        why = "a quote is not closed" if "unexpected end" in str(error) else error
        raise Failure(f"{path}:{line}: not CSV: {why}") from None


def _value(where: str, name: str, value: Any) -> Any:
    _check_name(where, name)
    if name in ("command", "notify", *LISTS):
        if isinstance(value, str):
            if name == "notify":
                return [value]
            try:
                words = shlex.split(value)
            except ValueError as error:
                why = "a quote is not closed" if "quotation" in str(error) else "nothing follows the last backslash"
                raise Failure(f"{where}: {name}: {why}: {shortened(value)}") from None
            with suppress(ValueError):
                if name == "command" and (signs := [word for word in shlex.split(value, posix=False) if word in SHELL_SIGNS]):
                    message = f"{where}: command: no shell reads {signs[0]}: write {shortened(f'sh -c {shlex.quote(value)}')}"
                    raise Failure(message)
            return words
        if isinstance(value, dict) and name in LISTS and all(isinstance(each, str) for each in value.values()):
            return [f"{key}={each}" for key, each in value.items()]
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return value
        raise Failure(f"{where}: {name}: write text, or a list of texts")
    if name in SWITCHES:
        if str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        raise Failure(f"{where}: {name}: write true or false, not {shortened(repr(value))}")
    if name in NUMBERS:
        if type(value) is int:
            return value
        if not isinstance(value, str):
            raise Failure(f"{where}: {name}: write a whole number, not {shortened(repr(value))}")
        with failing(f"{where}: {name}: ", ValueError):
            return read_number(value, int)
    if isinstance(value, str) or (type(value) in (int, float) and name in ("cpu", "memory", "gpu", "time_limit", "retry_delay")):
        return str(value)
    raise Failure(f"{where}: {name}: write text, not {shortened(repr(value))}")


def _check_name(where: str, name: str) -> None:
    if name not in KNOWN:
        raise Failure(f"{where}: {shortened(name)}: unknown option: the known ones are {', '.join(sorted(KNOWN))}")

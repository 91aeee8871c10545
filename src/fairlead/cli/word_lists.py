"""Lists of words for the tasks of a job, as GNU parallel takes them: ``gzip {} ::: a b``, and ``:::: FILE`` for a word a line."""

import re
import sys
from itertools import pairwise
from pathlib import Path

from fairlead.failure import Failure, WrongUsage, failing

MARKS = (":::", "::::")
OWN = ("parallel", "sem")
"""Programs for which the marks are arguments."""
_PLACE = re.compile(r"\{(//|/\.|/|\.)?\}")
_NUMBERED = re.compile(r"\{([0-9]{1,3})(//|/\.|/|\.)?\}")


def with_lists(command: list[str]) -> tuple[list[str], list[list[str]]]:
    """Split a command into the command of a task, in which ``{1}``, ``{2}``, ... stand for words, and the lists of words.

    ``{}`` is the word of the one list, or becomes those of all. Without any such place they come last. Raises Failure.
    """
    if not command or Path(command[0]).name in OWN or not any(word in MARKS for word in command):
        return command, []
    begin = next(place for place, word in enumerate(command) if word in MARKS)
    lists = list(_lists(command[begin:]))
    own, numbers = command[:begin], range(1, len(lists) + 1)
    for word in own:
        for unknown, instead in (("{#}", ", or {index}, which counts from 0"), ("{%}", "")):
            if unknown in word:
                raise WrongUsage(f"{word!r}: {unknown} is unknown: write {{}}, {{1}} or {{1.}}{instead}")
        if len(lists) > 1 and (wrong := [found for found in _NUMBERED.finditer(word) if int(found[1]) not in numbers]):
            raise WrongUsage(f"{word!r}: {wrong[0][0]}: the lists after the command are {{1}} to {{{len(lists)}}}")
    if not any(_PLACE.search(word) or _NUMBERED.search(word) for word in own):
        own = [*own, "{}"]
    if len(lists) == 1:
        return own, lists
    words = []
    for word in own:
        if _PLACE.fullmatch(word):
            words += [f"{{{number}{word[1:-1]}}}" for number in numbers]
        else:
            words.append(_PLACE.sub(lambda found: " ".join(f"{{{number}{found[1] or ''}}}" for number in numbers), word))
    return words, lists


def _lists(words: list[str]) -> list[list[str]]:
    found: list[list[str]] = []
    mark = ""
    for word, after in pairwise([*words, ":::"]):
        if word in (":::+", "::::+"):
            raise WrongUsage(f"{word}: lists cannot be linked: use `fairlead submit --jobs FILE`")
        if word in MARKS:
            if after in MARKS:
                raise WrongUsage(f"{word} what? Write {'words' if word == ':::' else 'a file with a word per line'} after it")
            mark = word
            found += [[]] if mark == ":::" else []
        elif mark == ":::":
            found[-1].append(word)
        else:
            found.append(_lines(word))
    return found


def _lines(path: str) -> list[str]:
    """Read the lines of a file, or of standard input for ``-``. An empty line is an empty word, as in GNU parallel."""
    with failing(f":::: {path}: cannot be read: ", OSError):
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    if not data:
        raise Failure(f":::: {path}: is empty: name a file with a word per line")
    return data.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n")

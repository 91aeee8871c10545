"""Slurm's `#SBATCH` options as fairlead's.

Each option is translated, or refused with the remedy, or is in `WITHOUT_EFFECT` and reported. As in sbatch the last of a name
counts, and a unique beginning of a name is enough.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from fairlead.cli.job_options import moment
from fairlead.client.environment import BadConfiguration, configured_recipient
from fairlead.client.notify import NotifyError, recipient
from fairlead.failure import Failure, failing
from fairlead.model.ranges import read_array

SHORT = {
    "-A": "account", "-a": "array", "-B": "extra-node-info", "-b": "begin", "-C": "constraint", "-c": "cpus-per-task",
    "-D": "chdir", "-d": "dependency", "-e": "error", "-F": "nodefile", "-G": "gpus", "-H": "hold", "-i": "input",
    "-J": "job-name", "-k": "no-kill", "-L": "licenses", "-M": "clusters", "-m": "distribution", "-N": "nodes", "-n": "ntasks",
    "-O": "overcommit", "-o": "output", "-p": "partition", "-Q": "quiet", "-q": "qos", "-S": "core-spec",
    "-s": "oversubscribe", "-t": "time", "-v": "verbose", "-W": "wait", "-w": "nodelist", "-x": "exclude",
}  # fmt: skip
FLAGS = {
    "contiguous", "exclusive", "get-user-env", "hold", "ignore-pbs", "nice", "no-kill", "no-requeue", "overcommit",
    "oversubscribe", "parsable", "propagate", "quiet", "reboot", "requeue", "spread-job", "test-only", "use-min-nodes", "verbose",
    "wait",
}  # fmt: skip
"""Options whose value, if any, follows ``=``."""
WITHOUT_EFFECT = {
    "acctg-freq", "comment", "contiguous", "core-spec", "cores-per-socket", "cpu-freq", "delay-boot", "distribution",
    "extra-node-info", "get-user-env", "gpu-bind", "gpu-freq", "gres-flags", "hint", "ignore-pbs", "kill-on-invalid-dep",
    "mcs-label", "mem-bind", "network", "no-kill", "ntasks-per-core", "ntasks-per-socket", "overcommit", "oversubscribe",
    "parsable", "power", "profile", "propagate", "qos", "quiet", "sockets-per-node", "spread-job", "switches",
    "thread-spec", "threads-per-core", "time-min", "use-min-nodes", "verbose", "wckey",
}  # fmt: skip
"""Options that choose cores, sockets and switches, say who pays, or change what sbatch prints."""
REFUSED = {
    "bb": "stage data in the script", "bbf": "stage data in the script",
    "cluster-constraint": "name the scheduler with --url", "clusters": "name the scheduler with --url",
    "container": "start the container in the script", "deadline": "use --time",
    "exclude": "use #FAIRLEAD --on LABEL=VALUE", "exclusive": "ask for what the node has with --cpus-per-task and --mem",
    "gid": "submit it as that group", "licenses": "use #FAIRLEAD --resource NAME=N", "mincpus": "use --cpus-per-task",
    "nodefile": "use #FAIRLEAD --on LABEL=VALUE", "nodelist": "use #FAIRLEAD --on LABEL=VALUE", "ntasks-per-gpu": "use --ntasks",
    "reboot": "ask an operator", "reservation": "omit it, or name a queue with --queue",
    "signal": "a stopped task gets the signal in all its processes: use #FAIRLEAD --signal USR1 --grace 90s",
    "test-only": "use fairlead submit --when", "tmp": "use #FAIRLEAD --resource disk=AMOUNT", "uid": "submit it as that user",
    "wait": "use fairlead wait", "wrap": "write the command into the script",
}  # fmt: skip
"""Options that would change what a job does and have no equivalent, with the remedy."""


class Given(NamedTuple):
    """A value as written, and its place with the option."""

    value: str
    where: str


Options = dict[str, Given]
Labels = Callable[[], Iterable[dict[str, str]]]
"""Returns the labels of each node."""


def read_line(words: list[str], where: str, options: Options) -> None:
    words = list(words)
    while words:
        word = words.pop(0)
        if short := re.fullmatch(r"(-\w)=?(.*)", word, re.DOTALL):
            found, value = [SHORT.get(short[1], "")], short[2]
        else:
            written, _, value = word.partition("=")
            found = [name for name in KNOWN if written == f"--{name}"] or [
                name for name in KNOWN if len(written) > 3 and f"--{name}".startswith(written)
            ]
        if len(found) != 1 or not found[0]:
            raise Failure(f"{where} {word}: is not an option of sbatch")
        (name,) = found
        if "=" not in word and not value and name not in FLAGS and words:
            value = words.pop(0)
        name = "ntasks-per-node" if name == "tasks-per-node" else name
        if name == "mail-type" and name in options:
            value = f"{options[name].value},{value}"
        options[name] = Given(value, f"{where} --{name}{f'={value}' if value else ''}")


def translate(options: Options, labels: Labels, warn: Callable[[str], None]) -> Iterator[tuple[str, list[str]]]:
    """Yield the place of each option, and its equivalents. Raises Failure for an option that has none."""
    for name, (value, where) in options.items():
        with failing(f"{where}: ", Failure):
            if name in REFUSED:
                raise Failure(f"has no equivalent here: {REFUSED[name]}")
            if name in WITHOUT_EFFECT:
                warn(f"{where}: has no effect here")
            elif name in TRANSLATED:
                yield where, TRANSLATED[name](value)
    if nodes(options) > 1:
        warn(f"{options['nodes'].where}: the whole script runs on each node, not only what srun starts")
        yield options["nodes"].where, ["--nodes", str(nodes(options))]
    gpus, model = _gpus(options)
    if name := next((name for name in ("cpus-per-task", "ntasks", "ntasks-per-node", "cpus-per-gpu") if name in options), ""):
        yield options[name].where, ["--cpu", str(cpus(options))]
    if gpus:
        yield from ((given.where, ["--gpu", str(gpus)]) for name, given in options.items() if name in GPUS)
    if model:
        yield model.where, _on(Given(model.value, model.where), labels, "gpu_model")
    if "constraint" in options:
        yield options["constraint"].where, _on(options["constraint"], labels)
    yield from _memory(options, gpus)
    if "account" in options and "partition" in options:
        warn(f"{options['partition'].where}: has no effect here: --account names the queue")
    if queue := options.get("account") or options.get("partition"):
        yield queue.where, ["--queue", queue.value]
    yield from _mail(options, warn)


def count(options: Options, name: str, default: int = 1) -> int:
    """Return the number that an option has. Raises Failure for anything else."""
    if name not in options:
        return default
    value, where = options[name]
    if not re.fullmatch("[0-9]{1,9}", value):
        raise Failure(f"{where}: write a number")
    return int(value)


def nodes(options: Options) -> int:
    """Return the number of nodes. Raises Failure if several have more than a task each."""
    value, where = options.get("nodes", Given("1", ""))
    match = re.fullmatch("([1-9][0-9]{0,5})(-[0-9]+)?", value)
    if match is None:
        raise Failure(f"{where}: write a number")
    found = int(match[1])
    if found > 1 and count(options, "ntasks", found * count(options, "ntasks-per-node")) != found:
        message = f"{where}: a script runs on several nodes only with one task on each: use --ntasks-per-node=1, or --nodes=1"
        raise Failure(message)
    return found


def tasks(options: Options) -> int:
    """Return Slurm's number of tasks on a node: with --ntasks, --ntasks-per-node is only an upper bound."""
    return 1 if nodes(options) > 1 else count(options, "ntasks", count(options, "ntasks-per-node"))


def cpus(options: Options) -> int:
    if "cpus-per-gpu" in options:
        return count(options, "cpus-per-gpu") * max(1, _gpus(options)[0])
    return tasks(options) * count(options, "cpus-per-task")


GPUS = ("gres", "gpus", "gpus-per-node", "gpus-per-task")


def _gpus(options: Options) -> tuple[int, Given | None]:
    """Return the number of GPUs, and their model if one is named."""
    most, model = 0, None
    for name in GPUS:
        if name not in options:
            continue
        value, where = options[name]
        if name == "gres" and not re.fullmatch("gpu(:.*)?", value):
            raise Failure(f"{where}: only gpu has an equivalent here: use #FAIRLEAD --resource NAME=N")
        wanted = "" if value == "gpu" else value.removeprefix("gpu:") if name == "gres" else value
        match = re.fullmatch(r"(?:([A-Za-z][\w.-]*)(?::|$))?([0-9]{1,4})?", wanted)
        if match is None:
            raise Failure(f"{where}: write a number, or TYPE:NUMBER")
        here = int(match[2] or 1) * (tasks(options) if name == "gpus-per-task" else 1)
        most = max(most, -(-here // nodes(options)) if name == "gpus" else here)
        model = Given(match[1], where) if match[1] else model
    return most, model


def _on(wanted: Given, labels: Labels, only: str | None = None) -> list[str]:
    """Return --on for the label whose values contain a word, such as v100 in Tesla-V100."""
    found: dict[str, set[str]] = {}
    words = [_plain(word) for word in wanted.value.split("|")]
    for here in labels():
        for label, value in here.items():
            if only in (None, label) and any(word and word in _plain(value) for word in words):
                found.setdefault(label, set()).add(value)
    if len(found) != 1:
        what = "no node has such a label" if not found else f"{' and '.join(sorted(found))} are labels of nodes with it"
        raise Failure(f"{wanted.where}: {what}: use #FAIRLEAD --on LABEL=VALUE")
    ((label, values),) = found.items()
    return ["--on", f"{label}={'|'.join(sorted(values))}"]


def _plain(text: str) -> str:
    return re.sub("[^a-z0-9]", "", text.lower())


def _memory(options: Options, gpus: int) -> Iterator[tuple[str, list[str]]]:
    kinds = (("mem", 1), ("mem-per-cpu", cpus(options)), ("mem-per-gpu", gpus))
    given = [(options[name], times) for name, times in kinds if name in options]
    if len(given) > 1:
        raise Failure(f"{given[1][0].where}: excludes --mem: omit one of them")
    for (value, where), times in given:
        match = re.fullmatch(r"([0-9]+)([KMGT]?)B?", value, re.IGNORECASE)
        if match is None or int(match[1]) * times == 0:  # 0 is all of the node's memory in Slurm
            raise Failure(f"{where}: write how much, such as 8G")
        yield where, ["--memory", f"{int(match[1]) * times}{match[2].upper() or 'M'}i"]


def _mail(options: Options, warn: Callable[[str], None]) -> Iterator[tuple[str, list[str]]]:
    given, kinds = options.get("mail-user"), {*options.get("mail-type", Given("NONE", "")).value.upper().split(",")}
    events = {"BEGIN": "start", "FAIL": "failure", "TIME_LIMIT": "failure", "END": "end"}
    found = list(dict.fromkeys(event for kind, event in events.items() if kinds & {kind, "ALL"}))
    if kinds - {*events, "ALL", "NONE"}:
        warn(f"{options['mail-type'].where}: --notify TO --notify-on reports start, failure and end, and nothing else")
    where = options["mail-type"].where if given is None and found else given.where if given is not None else ""
    try:
        to = given.value if given is not None else configured_recipient() if found else ""  # Slurm: to the account
        if to is None:
            raise NotifyError('name who gets it with --mail-user, or with notify = "TO" in your client.toml')
        if where:
            recipient(to)
    except (NotifyError, BadConfiguration) as error:
        warn(f"{where}: no mail is sent: {error}")
        return
    if found:
        yield where, ["--notify", to, *(["--notify-on", ",".join(found)] if found != ["end"] else [])]
    elif where:
        warn(f"{where}: has no effect here without --mail-type")


def _time(value: str) -> list[str]:
    """``minutes``, ``minutes:seconds``, ``hours:minutes:seconds``, ``days-hours[:minutes[:seconds]]``."""
    if value.upper() in ("UNLIMITED", "INFINITE"):
        return []
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", value, re.ASCII)
    if match is None:
        raise Failure("write minutes, hours:minutes:seconds or days-hours")
    days, *rest = (int(part) if part is not None else None for part in match.groups())
    parts = [part for part in rest if part is not None]
    if days is not None:
        hours, minutes, seconds = [*parts, 0, 0][:3]
    else:
        hours, minutes, seconds = (parts if len(parts) == 3 else [0, *parts, 0])[:3]
    total = (((days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
    return ["--time-limit", f"{total}s"] if total else []


def _array(value: str) -> list[str]:
    with failing("", ValueError):
        read_array(value)
    return ["--array", value]


def _rank(value: str, sign: int) -> list[str]:
    if not re.fullmatch("-?[0-9]{1,6}", value or "100"):
        raise Failure("write a number of at most six digits")
    return ["--priority", str(sign * int(value or "100"))]


def _dependency(value: str) -> list[str]:
    words = []
    for part in value.split(","):
        kind, _, jobs = part.partition(":")
        if part == "singleton":
            words.append("--singleton")
            continue
        how = {"after": ":start", "afterok": "", "afternotok": ":failure", "afterany": ":end", "aftercorr": ":index"}.get(kind)
        if how is None or not all(re.fullmatch("[0-9]{1,15}", job) for job in jobs.split(":")):
            raise Failure(
                "has no equivalent here: write singleton, or after, afterok, afternotok, afterany or aftercorr with job numbers"
            )
        words += [word for job in jobs.split(":") for word in ("--after", f"{job}{how}")]
    return words


def is_bare(value: str) -> bool:
    """Return True if --export sends only what it names."""
    return "ALL" not in value.upper().split(",")


def _export(value: str) -> list[str]:
    named = [word for word in value.split(",") if word.upper() not in ("ALL", "NONE", "NIL")]
    return [*([] if is_bare(value) else ["--export-all"]), *(word for name in named for word in ("--env", name))]


def _begin(value: str) -> list[str]:
    moment("", value)
    return ["--begin", value]


TRANSLATED: dict[str, Callable[[str], list[str]]] = {
    "array": _array,
    "begin": _begin,
    "chdir": lambda value: ["--cwd", value],
    "dependency": _dependency,
    "export": _export,
    "hold": lambda value: ["--hold"],
    "job-name": lambda value: ["--name", value],
    "nice": lambda value: _rank(value, -1),
    "priority": lambda value: _rank(value, 1),
    "time": _time,
}
KNOWN = {
    "account", "cpus-per-gpu", "cpus-per-task", "constraint", "error", "input", "mail-type", "mail-user", "mem", "mem-per-cpu",
    "mem-per-gpu", "no-requeue", "nodes", "ntasks", "ntasks-per-node", "open-mode", "output", "partition", "requeue",
    "tasks-per-node",
    *GPUS, *TRANSLATED, *REFUSED, *WITHOUT_EFFECT,
}  # fmt: skip

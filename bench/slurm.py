"""How many of a hundred public Slurm scripts run unchanged, and why the others do not: `python -m bench.slurm`.

`slurm_scripts.txt` has the options of each. A script runs unchanged if it is accepted, given that a queue is named as its account
or partition, that mail can be sent, and that nodes have the GPUs of `GPUS`.
"""

import re
import tempfile
from collections import Counter
from pathlib import Path

import fairlead.client.notify
from fairlead.cli.script_options import script_options, shell_of
from fairlead.cli.slurm_prologue import check_body, wrapped
from fairlead.failure import Failure

GPUS = ("NVIDIA-A100-SXM4-80GB", "NVIDIA-A40", "Tesla-V100-SXM2-16GB")


def read() -> list[tuple[str, str, list[str]]]:
    """Return each script's address, its options as written, and what its commands ask of Slurm."""
    lines = (Path(__file__).parent / "slurm_scripts.txt").read_text().splitlines()
    parts = [line.partition(" :: ") for line in lines if not line.startswith("#")]
    return [(*before.partition(" ")[::2], after.split()) for before, _, after in parts]


def outcome(folder: Path, options: str, body: list[str]) -> list[str]:
    """Return warnings about a script with these options. Raises Failure if it is refused."""
    shell = next((word for word in body if word in ("sh", "zsh", "tcsh")), "bash")
    script = folder / "job.slurm"
    commands = [f"{word} true" for word in body if word not in ("sh", "zsh", "tcsh")]
    script.write_text("\n".join([f"#!/bin/{shell}", f"#SBATCH {options}", *commands, "true", "#SBATCH --late"]))
    found = script_options(str(script), labels=lambda: [{"gpu_model": model} for model in GPUS])
    assert found is not None
    assert found.given is not None
    command, lines = wrapped(
        [str(script)], shell_of(str(script)), found.given, {"name": "", "queue": "", "gpu": "0", "tasks": None, "array": None}
    )
    return [*found.warnings, *check_body(str(script), script.read_text(), found.given, command, lines)]


def count() -> tuple[int, Counter[str], Counter[str]]:
    """Return how many scripts are accepted, why the others are refused, and what is warned of among the accepted."""
    refused: Counter[str] = Counter()
    warned: Counter[str] = Counter()
    accepted = 0
    fairlead.client.notify.sendmail = lambda: "/usr/sbin/sendmail"  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        for _, options, body in read():
            try:
                warned.update({_of(line) for line in outcome(Path(folder), options, body)})
                accepted += 1
            except Failure as failure:
                refused[_of(str(failure))] += 1
    return accepted, refused, warned


def _of(line: str) -> str:
    """Return the option or the command that a line is about."""
    match = re.search(r"(--[a-z-]+)|:[0-9]+: (\w+):", line.partition("job.slurm")[2])
    assert match is not None, line
    return match[1] or match[2]


if __name__ == "__main__":
    accepted, refused, warned = count()
    print(f"{accepted} of {len(read())} run unchanged")
    for title, counts in (("refused for", refused), ("warned of", warned)):
        print(title, *(f"  {n:3} {what}" for what, n in counts.most_common()), sep="\n")

"""Two people run Ray programs on one cluster of four nodes, without fairlead and then through it; plot who used which CPUs.

Ada starts six programs at once, Ben four some seconds later. Each uses four of the eight CPUs. Without fairlead each makes its
own placement group, and waits until Ray has room for it. Through fairlead each is a job (`fairlead submit --ray`).

    PYTHONPATH=. python examples/two_ray_programs.py [figure.svg]
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from demo_ray import FAIRLEAD, RayDemo

PROGRAM = """
import json, sys, time
import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

@ray.remote(num_cpus=1)
def work():
    began = time.time()
    time.sleep(SECONDS)
    return began, time.time()

def spans(group):
    at = PlacementGroupSchedulingStrategy(group)
    return ray.get([work.options(scheduling_strategy=at).remote() for _ in range(4)])

path, address = sys.argv[1:]
if address:
    ray.init(address=address, log_to_driver=False)
    group = placement_group([{"CPU": 2}] * 2)
    ray.get(group.ready())
    found = spans(group)
else:
    import fairlead.ray
    with fairlead.ray.session(log_to_driver=False) as group:
        found = spans(group)
open(path, "w").write(json.dumps(found))
"""
PEOPLE = {"ada": 6, "ben": 4}
LATER = 5.0
"""Seconds between Ada's programs and Ben's."""
SECONDS = 8.0
"""Seconds of work of a program."""
CPUS = 8
COLORS = {"ada": "#1f6fb4", "ben": "#d9742b"}


class Span(NamedTuple):
    """A period in which a person's work had a CPU, in seconds since the first program started."""

    who: str
    began: float
    ended: float


class TwoPeople(RayDemo):
    """A Ray cluster, and a scheduler for the second run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, [(2, 2**32)] * 4)
        self.folder = folder
        self.config.write_text("".join(f'[[queue]]\nname = "{who}"\n' for who in PEOPLE))
        (folder / "program.py").write_text(PROGRAM.replace("SECONDS", repr(SECONDS)))

    def run(self, through: bool) -> list[Span]:
        """Run both people's programs; return when these worked."""
        began, running = time.time(), []
        for who, count in PEOPLE.items():
            time.sleep(LATER if running else 0.0)
            running += [(who, *self.start(who, k, through)) for k in range(count)]
        for who, program, _ in running:
            if program.wait() != 0:
                raise SystemExit(f"a program of {who}'s failed: exit status {program.returncode}")
        told = [(who, json.loads(path.read_text())) for who, _, path in running]
        return [Span(who, a - began, b - began) for who, spans in told for a, b in spans]

    def start(self, who: str, k: int, through: bool) -> "tuple[subprocess.Popen[bytes], Path]":
        """Start a program; return a process that ends with it, and the file of its results."""
        path = self.folder / f"{who}-{k}-{through}.json"
        words = [sys.executable, str(self.folder / "program.py"), str(path), "" if through else self.address]
        if through:
            submit = ["submit", "--queue", who, "--ray", "--bundle", "cpu=2", "--bundles", "2", "--", *words]
            words = [str(FAIRLEAD), "wait", subprocess.check_output([FAIRLEAD, *submit], text=True).strip()]
        return subprocess.Popen(words, env=os.environ, stderr=subprocess.DEVNULL), path


def at_work(spans: list[Span], who: str, moment: float) -> int:
    """Return the CPUs that a person's programs use at a moment."""
    return sum(span.who == who and span.began <= moment < span.ended for span in spans)


def draw(runs: dict[str, list[Span]]) -> str:
    """Draw, for each run, the CPUs used by each person's programs, stacked."""
    last = max(span.ended for spans in runs.values() for span in spans)
    wide, high, left, gap = 760, 150, 40, 56
    parts = []
    for row, (title, spans) in enumerate(runs.items()):
        base = row * (high + gap) + 30 + high
        parts.append(f'<text x="{left}" y="{base - high - 10}" font-weight="bold">{title}</text>')
        for tick in range(0, int(last) + 1, 10):
            parts.append(f'<text x="{left + tick * wide / last:.0f}" y="{base + 16}" text-anchor="middle">{tick}</text>')
        for cpus in (0, CPUS // 2, CPUS):
            y = base - cpus * high / CPUS
            parts.append(f'<line x1="{left}" x2="{left + wide}" y1="{y}" y2="{y}" stroke="#ccc"/>')
            parts.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{cpus}</text>')
        moments = sorted({0.0, last, *(t for span in spans for t in (span.began, span.ended))})
        for a, b in itertools.pairwise(moments):
            below = 0
            for who in PEOPLE:
                count = at_work(spans, who, (a + b) / 2)
                x, y = left + a * wide / last, base - (below + count) * high / CPUS
                size = f'width="{(b - a) * wide / last:.2f}" height="{count * high / CPUS:.1f}"'
                parts.append(f'<rect x="{x:.2f}" y="{y:.1f}" {size} fill="{COLORS[who]}"/>' if count else "")
                below += count
    foot = len(runs) * (high + gap) + 24
    for k, who in enumerate(PEOPLE):
        parts.append(f'<rect x="{left + 90 * k}" y="{foot - 10}" width="12" height="12" fill="{COLORS[who]}"/>')
        parts.append(f'<text x="{left + 90 * k + 18}" y="{foot}">{who.capitalize()}</text>')
    parts.append(f'<text x="{left + wide}" y="{foot}" text-anchor="end">CPUs at work, over seconds</text>')
    box = f'width="{left + wide + 20}" height="{foot + 14}" font-family="sans-serif" font-size="12"'
    rest = "\n".join(part for part in parts if part)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>\n<rect width="100%" height="100%" fill="white"/>\n{rest}\n</svg>\n'


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FAIRLEAD_HOME"] = str(Path(folder, "home"))
        two = TwoPeople(Path(folder))
        try:
            runs = {"without fairlead": two.run(through=False)}
            two.up()
            runs["through fairlead"] = two.run(through=True)
        finally:
            two.end()
    for title, spans in runs.items():
        waited = min(span.began for span in spans if span.who == "ben") - LATER
        over = max(span.ended for span in spans)
        print(f"{title}: Ben's first program works {waited:.0f} s after he asked; all is done after {over:.0f} s")
    if sys.argv[1:]:
        Path(sys.argv[1]).write_text(draw(runs))


if __name__ == "__main__":
    main()

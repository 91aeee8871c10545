"""Newcomers: somebody has a cluster of 40 CPUs full of 1-CPU tasks, and N others come with larger and shorter ones.

Small tasks take each CPU that comes back, so the newcomers get nothing unless room is kept for them. The table has the part of
the worst of them, as a fraction of what each is entitled to, from 10 to 30 of the first one's tasks on; the picture
(docs/newcomers.svg) has ten of them, with reservations and without.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from fairlead.model.specs import Node, Settings
from fairlead.scheduler.facts import Fact, JobSubmitted, TasksFinished, TasksPlaced
from fairlead.simulate.measure import idle_for_promises
from fairlead.simulate.run import Run, simulate
from fairlead.simulate.workload import Jobs, Workload

CLUSTERS = {"1 x 40 CPUs": [40], "10 x 4 CPUs": [4] * 10}
TASKS = {"100 s; 2 CPUs, 20 s": (100.0, 2, 20.0), "1 h; 3 CPUs, 10 min": (3600.0, 3, 600.0)}
"""How long the first one's tasks last; CPUs of the newcomers' tasks, and how long these last."""
COMES, BEGINS, ENDS = 5, 10, 30
"""When newcomers come, and the measured time, in tasks of the first one."""
PICTURE = Path(__file__).parents[1] / "docs" / "newcomers.svg"

Uses = list[tuple[float, dict[str, int]]]


def world(cpus: list[int], newcomers: int, long: float, cpu: int, short: float, seed: int = 1) -> Workload:
    """Return the jobs: the first one's tasks last 50 to 150% of `long` seconds."""
    rng, jobs, total = random.Random(seed), Jobs(), sum(cpus)
    count = (ENDS + 5) * total
    jobs.add(0.0, "first", {"cpu": 1000}, [rng.uniform(0.5 * long, 1.5 * long) for _ in range(count)], tasks=count)
    for k in range(newcomers):
        jobs.add(
            COMES * long,
            f"new{k}",
            {"cpu": 1000 * cpu},
            short,
            tasks=int(ENDS * long / short) * max(1, total // cpu // newcomers) * 2,
        )
    return jobs.workload("newcomers", [Node(f"n{k}", {"cpu": 1000 * cpu}) for k, cpu in enumerate(cpus)], [])


def used(case: Workload, budget: float) -> tuple[Uses, Run]:
    """Return what each queue uses, in CPUs, from moment to moment."""
    uses: Uses = [(0.0, {})]
    jobs: dict[int, tuple[str, int]] = {}

    def note(facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, JobSubmitted):
                jobs[fact.id] = fact.job.queue, fact.job.demand["cpu"] // 1000
            elif isinstance(fact, TasksPlaced | TasksFinished):
                now = dict(uses[-1][1])
                for job in fact.job.tolist():
                    queue, cpu = jobs[job]
                    now[queue] = now.get(queue, 0) + (cpu if isinstance(fact, TasksPlaced) else -cpu)
                uses.append((fact.at, now))

    run = simulate(case, settings=Settings(idle_budget=budget, revoke=False), record=note, samples=20)
    return uses, run


def means(uses: Uses, begin: float, end: float) -> dict[str, float]:
    """Return what each queue used on average between two moments."""
    found = dict.fromkeys(uses[-1][1], 0.0)
    for (at, use), (after, _) in pairwise(uses):
        lasts = min(after, end) - max(at, begin)
        for queue, cpu in use.items() if lasts > 0 else ():
            found[queue] += cpu * lasts / (end - begin)
    return found


def panel(title: str, uses: Uses, left: int, part: float, long: float) -> Iterator[str]:
    """Draw the use of each queue over time, a mean of one of the first one's tasks each."""
    points = [means(uses, k * long, (k + 1) * long) for k in range(ENDS)]
    yield f'<text x="{left + 150}" y="18" text-anchor="middle">{title}</text>'
    for name in sorted(points[-1], reverse=True):
        line = " ".join(f"{left + 10 * k + 5},{230 - 5 * use.get(name, 0.0):.1f}" for k, use in enumerate(points))
        yield f'<polyline class="{"first" if name == "first" else "new"}" points="{line}"/>'
    yield f'<path class="part" d="M{left} {230 - 5 * part:.1f}h300"/><path d="M{left} 30v200h300"/>'
    yield f'<text x="{left - 6}" y="34" text-anchor="end">40</text><text x="{left - 6}" y="234" text-anchor="end">0</text>'


def picture() -> str:
    """Return the picture of ten newcomers on ten nodes."""
    (long, cpu, short), part = next(iter(TASKS.values())), 40 / 11
    case = world(CLUSTERS["10 x 4 CPUs"], 10, long, cpu, short)
    panels = [
        *panel("no reservations", used(case, 0.0)[0], 40, part, long),
        *panel("reservations", used(case, Settings().idle_budget)[0], 400, part, long),
    ]
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 260" width="720" height="260" role="img" '
        'font-family="system-ui, sans-serif" font-size="13">\n'
        "<title>CPUs of one who had all, and of ten newcomers: nothing without reservations, their part with them</title>\n"
        "<style>text { fill: #222 } path { stroke: #999; fill: none } polyline { fill: none; stroke-width: 1.6 } "
        ".first { stroke: #888; stroke-width: 2.5 } .new { stroke: #2e7d32 } .part { stroke: #c62828; stroke-dasharray: 5 4 } "
        "@media (prefers-color-scheme: dark) { text { fill: #ddd } }</style>\n"
    )
    said = "CPUs over 3,000 s: the first one (grey), ten newcomers (green), the part of each (red)"
    foot = f'\n<text x="360" y="252" text-anchor="middle">{said}</text>\n</svg>\n'
    return head + "\n".join(panels) + foot


def run(scale: float = 1.0) -> None:
    """Print the table, and draw the picture."""
    print("## Newcomers: the worst one's part")
    print(f"{'cluster':<14}{'tasks':<24}{'N':>4}{'no reservations':>17}{'reservations':>14}{'idle':>8}")
    for name, cpus in CLUSTERS.items():
        for tasks, (long, cpu, short) in TASKS.items():
            for newcomers in (1, 10, 50):
                case, worst, idle = world(cpus, newcomers, long, cpu, short), [], 0.0
                for budget in (0.0, Settings().idle_budget):
                    uses, done = used(case, budget)
                    use = means(uses, BEGINS * long, ENDS * long)
                    worst.append(min(use.get(f"new{k}", 0.0) for k in range(newcomers)) * (newcomers + 1) / sum(cpus))
                    idle = max(idle_for_promises(done).values())
                print(f"{name:<14}{tasks:<24}{newcomers:>4}{worst[0]:>17.0%}{worst[1]:>14.0%}{idle:>8.2%}", flush=True)
    if scale >= 1:
        PICTURE.write_text(picture())

"""DRF over a CSV of one-task jobs as thirty lines of plain Python: the peer of `fairlead simulate`.

Each queue's first job, first fit, the smallest dominant share first; of equal shares the queue served longest ago.
`python -m bench.plain_drf TRACE NODES CPU GIB` is the whole command.
"""

import csv
import sys
from collections import deque
from heapq import heapify, heappop, heappush


def run(path: str, nodes: int, cpu: float, memory: float) -> list[float]:
    """Return when each job starts; demands and capacities are in CPUs and GiB."""
    with open(path, newline="") as file:  # noqa: PTH123
        jobs = [
            (float(row["submit"]), k, row["queue"], float(row["duration"]), float(row["cpu"]), float(row["memory"][:-3]))
            for k, row in enumerate(csv.DictReader(file))
        ]
    jobs.sort()
    free = [[cpu, memory] for _ in range(nodes)]
    waiting = {job[2]: deque() for job in jobs}
    used, served, turn = {name: [0.0, 0.0] for name in waiting}, dict.fromkeys(waiting, 0), 0
    ends, starts, coming = [], [0.0] * len(jobs), 0
    while coming < len(jobs) or ends:
        now = min(jobs[coming][0] if coming < len(jobs) else float("inf"), ends[0][0] if ends else float("inf"))
        while ends and ends[0][0] == now:
            _, _, name, c, m, node = heappop(ends)
            for room, sign in ((free[node], 1), (used[name], -1)):
                room[0] += sign * c
                room[1] += sign * m
        while coming < len(jobs) and jobs[coming][0] == now:
            waiting[jobs[coming][2]].append(jobs[coming])
            coming += 1
        line = [(max(used[n][0] / cpu, used[n][1] / memory), served[n], n) for n, queued in waiting.items() if queued]
        heapify(line)
        while line:
            _, _, name = heappop(line)
            _, k, _, duration, c, m = waiting[name][0]
            node = next((n for n, room in enumerate(free) if room[0] >= c and room[1] >= m), None)
            if node is None:
                continue
            starts[k] = now
            heappush(ends, (now + duration, k, name, c, m, node))
            for room, sign in ((free[node], -1), (used[name], 1)):
                room[0] += sign * c
                room[1] += sign * m
            served[name] = turn = turn + 1
            waiting[name].popleft()
            if waiting[name]:
                heappush(line, (max(used[name][0] / cpu, used[name][1] / memory), turn, name))
    return starts


if __name__ == "__main__":
    found = run(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
    print(f"{len(found):,} jobs, the last starts at {max(found):,.0f} s")

"""Who may do what: one table of every route and every command, which a test holds the scheduler to, and docs/access.md shows.

A cell is what somebody gets: ``yes``; ``seen``, an answer without what is not theirs to know; ``no``, refused; ``none``, as
if it were not there; ``-`` where it is not asked. The people are those of `machine.py`: Alice submitted the job that it is
about, to the queue ``vision``; Bob has nothing to do with it; Carol is an admin of that queue, and Olga an operator. The
stranger has no account here.
"""

from typing import NamedTuple

PEOPLE = ("stranger", "bob", "alice", "carol", "olga", "root")


class Row(NamedTuple):
    """A route or a command, and what each of `PEOPLE` gets."""

    what: str
    cells: str
    body: object = None


ANYBODY = "yes yes yes yes yes yes"
PEOPLE_ALL = "no yes yes yes yes yes"
SEEN = "no seen yes yes seen yes"
OWNERS = "no no yes yes no yes"
OPERATORS = "no no no no yes yes"
SESSION = "no none yes none none none"
SUBMITTERS = "no no yes no no no"
TOKENS = "no no yes no no yes"
NOT_CALLED = "no no no no - -"

JOB = {"argv": ["true"], "demand": {"cpu": 1}, "queue": "vision", "after": [{"job": 1, "how": "success"}]}

ROUTES = [
    Row("GET /healthz", ANYBODY),
    Row("GET /readyz", ANYBODY),
    Row("GET /docs", ANYBODY),
    Row("GET /openapi.json", ANYBODY),
    Row("GET /v1/status", PEOPLE_ALL),
    Row("GET /v1/queues", PEOPLE_ALL),
    Row("GET /v1/frameworks", PEOPLE_ALL),
    Row("GET /v1/nodes", PEOPLE_ALL),
    Row("GET /v1/audit", PEOPLE_ALL),
    Row("GET /v1/audit/over-time?seconds=60", PEOPLE_ALL),
    Row("GET /v1/usage?seconds=60", PEOPLE_ALL),
    Row("GET /metrics", PEOPLE_ALL),
    Row("GET /v1/facts?after=0&follow=false", SEEN),
    Row("GET /v1/jobs", SEEN),
    Row("GET /v1/jobs/{job}", SEEN),
    Row("GET /v1/jobs/{job}/tasks", PEOPLE_ALL),
    Row("GET /v1/jobs/{job}/why", PEOPLE_ALL),
    Row("GET /v1/jobs/{job}/when", PEOPLE_ALL),
    Row("POST /v1/when", SUBMITTERS, {"demand": {"cpu": 1}, "queue": "vision"}),
    Row("GET /v1/jobs/{job}/tasks/{index}/output/{stream}", OWNERS),
    Row("GET /v1/jobs/{job}/tasks/{index}/files", OWNERS),
    Row("PUT /v1/jobs/{job}/tasks/{index}/input", "no no - - no -"),
    Row("POST /v1/jobs/{job}/tasks/{index}/streams", "no no - - no -", {"argv": ["true"], "stream": "0" * 32}),
    Row("GET /v1/jobs/{job}/tasks/{index}/port", OWNERS),
    Row("GET /v1/jobs/{job}/tasks/{index}/streams/{name}?number=1", OWNERS),
    Row("DELETE /v1/jobs/{job}/tasks/{index}/streams/{name}", OWNERS),
    Row("POST /v1/jobs", SUBMITTERS, JOB),
    Row("POST /v1/bulk", SUBMITTERS, {"jobs": [JOB]}),
    Row("POST /v1/jobs/{job}/hold", OWNERS, {}),
    Row("POST /v1/jobs/{job}/release", OWNERS, {}),
    Row("POST /v1/jobs/{job}/edit", OWNERS, {"priority": 1}),
    Row("POST /v1/jobs/{job}/rerun", "no no yes no no no", {}),
    Row("POST /v1/jobs/{job}/cancel", OWNERS, {"indices": [7]}),
    Row("POST /v1/cancel", OWNERS, {"jobs": ["{fresh}"]}),
    Row("POST /v1/sessions", PEOPLE_ALL, {"argv": ["true"]}),
    Row("PUT /v1/sessions/{session}/payloads/{payload}", SESSION, {}),
    Row("GET /v1/sessions/{session}/events", SESSION),
    Row("GET /v1/sessions/{session}/relays", "no none - none none none"),
    Row("PUT /v1/sessions/{session}/relays/{lease}", SESSION, {}),
    Row("POST /v1/sessions/{session}/leases", "no none - none none none", {"jobs": [{"demand": {"cpu": 1}, "lease": 1}]}),
    Row("DELETE /v1/sessions/{session}", "no none - none none none"),
    Row("POST /v1/nodes/{node}/drain", OPERATORS, {}),
    Row("POST /v1/nodes/{node}/resume", OPERATORS, {}),
    Row("POST /v1/nodes/{node}/forget", NOT_CALLED, {}),
    Row("POST /v1/nodes/tokens", NOT_CALLED, {}),
    Row("POST /v1/reload", OPERATORS, {}),
    Row("POST /v1/down", NOT_CALLED, {}),
    Row("POST /v1/page", PEOPLE_ALL, {}),
    Row("GET /v1/tokens", PEOPLE_ALL),
    Row("POST /v1/tokens", TOKENS, {"user": "alice", "seconds": 1000}),
    Row("DELETE /v1/tokens/{token}", "no no - no no yes"),
    Row("GET /v1/log", SEEN),
]
"""``{token}`` is one of Alice's, ``{session}`` a session of hers."""

COMMANDS = [
    Row("submit -q vision --cpu 100 -- true", SUBMITTERS),
    Row("submit -q people/alice --cpu 100 -- true", SUBMITTERS),
    Row("run -q vision -- true", SUBMITTERS),
    Row("jobs", SEEN),
    Row("job {job}", SEEN),
    Row("logs {job}", OWNERS),
    Row("fetch {job}", OWNERS),
    Row("exec {job} -- true", "no no - - no -"),
    Row("why {job}", PEOPLE_ALL),
    Row("when -q vision", SUBMITTERS),
    Row("hold {job}", OWNERS),
    Row("release {job}", OWNERS),
    Row("edit {job} --priority 2", OWNERS),
    Row("rerun {job}", "no no yes no no no"),
    Row("cancel {job}.7", OWNERS),
    Row("wait {ended}", PEOPLE_ALL),
    Row("queues", PEOPLE_ALL),
    Row("frameworks", PEOPLE_ALL),
    Row("nodes", PEOPLE_ALL),
    Row("top --once", SEEN),
    Row("page --print", PEOPLE_ALL),
    Row("audit --live", PEOPLE_ALL),
    Row("audit --over 1min", PEOPLE_ALL),
    Row("usage --since 1min", PEOPLE_ALL),
    Row("drain n1", OPERATORS),
    Row("resume n1", OPERATORS),
    Row("forget n1", NOT_CALLED),
    Row("node token", NOT_CALLED),
    Row("reload", OPERATORS),
    Row("log", SEEN),
    Row("token new", PEOPLE_ALL),
    Row("token new --user alice", TOKENS),
    Row("token list", PEOPLE_ALL),
    Row("token revoke {token}", "no no - no no yes"),
    Row("down", NOT_CALLED),
]

ALONE = (
    "up",
    "doctor",
    "node",
    "service",
    "journal",
    "allocate",
    "policies",
    "audit",
    "properties",
    "simulate",
    "sweep",
    "import",
    "diff",
    "checkpointed",
)
"""Commands that ask no scheduler, or need not."""


def table(rows: list[Row]) -> str:
    """Rows as a table of Markdown."""
    names = ("a stranger", "Bob", "Alice", "Carol, admin", "Olga, operator", "root")
    lines = ["", f"| | {' | '.join(names)} |", "| --- |" + " --- |" * len(names)]
    lines += [f"| `{row.what.partition('?')[0]}` | {' | '.join(row.cells.split())} |" for row in rows]
    return "\n".join(lines) + "\n\n"

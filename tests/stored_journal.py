"""A little history with each kind of fact in it, and the journals of it that are kept in tests/data, one for each format.

Each is read by every later fairlead. ``FAIRLEAD_STORE=1 pytest -k stored_journal`` makes that of the present format, with a
description of the format; it refuses to replace one that an earlier version of fairlead made, which may be in use.
"""

import json
import re
import shutil
import tempfile
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np

import fairlead
from fairlead.journal import Journal, head
from fairlead.journal.repair import adopt
from fairlead.journal.sql import _TABLES, SCHEMA_VERSION, SqlStore
from fairlead.journal.store import Envelope
from fairlead.model.specs import After, Call, Framework, Job, Node, Offer, Queue, Settings, Work
from fairlead.scheduler import facts as f
from fairlead.scheduler import snapshot
from fairlead.scheduler.reports import listings as report
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import TABLES
from worlds import list_jobs

DATA = Path(__file__).parent / "data"
JOURNAL = DATA / f"journal-{SCHEMA_VERSION}.db"
FORMAT = JOURNAL.with_suffix(".format")
G = 2**30


def every_fact() -> list[f.Fact]:
    """A history in which everything happens, without asking the scheduler what it would decide."""
    cpu, numbered = ({"cpu": 1000}, {"argv": ["train", "{index}"], "cwd": "/home/ada", "env": {"A": "1"}, "numbered": True})
    return [
        f.Configured(
            at=0.0,
            queues=[Queue("A", weight=2.0, guarantee=cpu), Queue("lab", policy="fifo"), Queue("lab/*", limit={"cpu": 3000})],
            settings=Settings(max_losses=5, keep_jobs=100),
        ),
        f.NodeJoined(at=1.0, node=Node("n0", {"cpu": 4000, "memory": 8 * G})),
        f.NodeJoined(at=1.0, node=Node("n1", {"cpu": 4000, "memory": 8 * G}, {"zone": "east"})),
        f.NodeJoined(at=1.0, node=Node("n2", {"cpu": 2000, "gpu": 1000})),
        f.JobSubmitted(at=2.0, id=1, job=Job("A", cpu, 4, retries=1, name="train", user="ada", work=Work(**numbered))),
        f.JobSubmitted(at=2.0, id=2, job=Job("lab/bo", cpu, 2, time_limit=5.0, priority=3, key="k", digest="d")),
        f.JobSubmitted(at=3.0, id=3, job=Job("A", {"cpu": 4000, "memory": G}, 2, gang=True, work=Work(encoding="latin-1"))),
        f.JobSubmitted(at=3.0, id=4, job=Job("A", cpu, after=[After(1, "end")], work=Work(call=Call("s", "p")))),
        f.JobSubmitted(at=3.0, id=5, job=Job("lab/bo", cpu, 3, on={"zone": ["east", "west"]})),
        f.JobHeld(at=4.0, id=5),
        f.TasksPlaced(at=5.0, **attempts(1, 0, 1, 2), node=np.array([0, 0, 2]), more=True),
        f.TasksPlaced(at=5.0, **attempts(2, 0, 1), node=np.array([1, 1])),
        f.TasksStarted(at=6.0, **attempts(1, 0, 1)),
        f.TasksStarted(at=6.0, **attempts(2, 0, 1)),
        f.TasksFinished(at=7.0, **attempts(1, 0), **ends(f.Outcome.EXITED, 0)),
        f.TasksFinished(at=7.0, **attempts(2, 0), **ends(f.Outcome.OUT_OF_MEMORY, 9)),
        f.JobsPassedOver(at=7.0, ids=[3]),
        f.NodesReserved(at=38.0, id=3, nodes=[0, 1], tasks=[1, 1]),
        f.ReservationDropped(at=39.0, id=3),
        f.NodesReserved(at=40.0, id=3, nodes=[1, 0], tasks=[1, 1]),
        f.ClaimsPutOff(at=40.2, ids=[3], until=41.2),
        f.SharesLooked(at=40.4, short=["A"]),
        f.NodesClaimed(at=40.6, id=3, nodes=[0, 1], tasks=[1, 1], why="guarantee"),
        f.TasksExpired(at=41.0, **attempts(2, 1)),
        f.TasksFinished(at=42.0, **attempts(2, 1), **ends(f.Outcome.SIGNALLED, 15)),
        f.TasksCheckpointed(at=42.5, **attempts(1, 1), ago=np.array([200])),
        f.TasksRevoked(
            at=43.0, **attempts(1, 1), claim=f.Claim(job=3, why="guarantee", queue="A", resource="cpu", has=1000, of=2000)
        ),
        f.TasksFinished(
            at=44.0,
            **attempts(1, 1),
            **ends(f.Outcome.SIGNALLED, 15),
            cpu=np.array([700]),
            peak=np.array([5 * G]),
            calls=np.array([3]),
            called=np.array([40]),
        ),
        f.NodeLost(at=45.0, node="n2"),
        f.NodeForgotten(at=45.0, node="n2"),
        f.NodeTokenMade(at=45.1, hash="00", until=99.0),
        f.NodeTokenMade(at=45.1, hash="11", until=99.0, node="n9"),
        f.NodeAdmitted(at=45.2, node="n1", certificate="PEM", token="00"),
        f.NodeAdmitted(at=45.2, node="n8", certificate="PEM 8"),
        f.NodeLeft(at=45.3, node="n8"),
        f.NodeDrained(at=46.0, node="n1"),
        f.NodeResumed(at=47.0, node="n1"),
        f.NodeDrained(at=48.0, node="n1"),
        f.NodeDrained(at=48.0, node="n2", cards=[0]),
        f.NodeResumed(at=48.0, node="n2", cards=[0]),
        f.JobsForgotten(at=49.0, ids=[2]),
        f.JobReleased(at=50.0, id=5),
        f.JobEdited(at=50.0, id=5, queue="lab/al", demand={"cpu": 500}, priority=2, at_most=1),
        f.JobCancelled(at=51.0, id=5, indices=[1]),
        f.TasksPlaced(at=52.0, **attempts(1, 1, attempt=2), node=np.array([0])),
        f.TasksStarted(at=53.0, **attempts(1, 1, attempt=2)),
        f.JobSubmitted(
            at=53.5,
            id=6,
            job=Job("A", cpu, retries=1, retry_delay=9.0, begin=54.0, name="one", singleton=True),
            more=[Job("lab/bo", cpu, held=True)],
        ),
        f.JobsDue(at=54.0, ids=[6]),
        f.FactsLost(at=54.0, count=1),
        *offers(),
    ]


def offers() -> list[f.Fact]:
    """What happens with a framework: it launches a task, refuses the rest, goes and does not come back."""
    framework = Framework("marathon", user="ada", roles=["web/front", "*"], failover_timeout=5.0, info="{}")
    two = {"cpu": 2000, "memory": 2 * G}
    task = Job("default/./1", {"cpu": 1000, "memory": G}, framework="f-1", task="t", work=Work(argv=["serve"]))
    return [
        f.FrameworkSubscribed(at=60.0, id="f-1", framework=framework, suppressed=["web/front"]),
        f.OffersMade(at=61.0, offers=[Offer(1, "f-1", "*", 0, two), Offer(2, "f-1", "*", 0, {"memory": G})]),
        f.OffersAccepted(at=62.0, framework="f-1", ids=[1], jobs=[9], left={"cpu": 1000, "memory": G}, until=67.0),
        f.JobSubmitted(at=62.0, id=9, job=task),
        f.TasksPlaced(at=62.0, **attempts(9, 0), node=np.array([0])),
        f.OffersDeclined(at=62.5, framework="f-1", ids=[2], until=72.5),
        f.TasksStarted(at=63.0, **attempts(9, 0)),
        f.UpdatesAcknowledged(at=63.5, jobs=[9], updates=[1]),
        f.RolesSuppressed(at=64.0, id="f-1", roles=["*"]),
        f.RolesRevived(at=65.0, id="f-1", roles=["*", "web/front"]),
        *executors(),
        f.OffersMade(at=66.0, offers=[Offer(4, "f-1", "*", 0, {"cpu": 500})]),
        f.OffersRescinded(at=67.0, ids=[4], why="disconnected"),
        f.FrameworkDisconnected(at=67.0, id="f-1"),
        f.FrameworkGone(at=72.0, id="f-1"),
        f.JobCancelled(at=72.0, id=9),
        f.FrameworkSubscribed(at=73.0, id="f-2", framework=framework, suppressed=[]),
        f.OffersMade(at=74.0, offers=[Offer(5, "f-2", "web/front", 0, {"cpu": 500})]),
        f.ResourcesReserved(at=75.0, node=0, amount={"cpu": 300}, mark="front", role="web/front", said="{}"),
    ]


def executors() -> list[f.Fact]:
    """A program of the framework's is launched, with a task in it, which it says to be running."""
    common = {"queue": "default/./1", "framework": "f-1", "executor": "e", "info": "{}"}
    program = Job(**common, demand={"cpu": 100}, work=Work(argv=["executor"]))
    within = Job(**common, demand={"cpu": 200}, task="inner")
    return [
        f.OffersMade(at=65.1, offers=[Offer(3, "f-1", "*", 0, {"cpu": 300})]),
        f.OffersAccepted(at=65.2, framework="f-1", ids=[3], jobs=[10, 11], left={}, until=65.2),
        f.JobSubmitted(at=65.2, id=10, job=program),
        f.JobSubmitted(at=65.2, id=11, job=within),
        f.TasksPlaced(at=65.2, job=np.array([10, 11]), index=np.zeros(2, int), attempt=np.ones(2, int), node=np.zeros(2, int)),
        f.TasksStarted(at=65.3, **attempts(11, 0)),
        f.TaskSaid(at=65.3, job=11, what="running", said="{}", uuid="0" * 32),
        f.TaskSaid(at=65.4, job=11, what="ending", said="{}", uuid="1" * 32),
    ]


def attempts(job: int, *indices: int, attempt: int = 1) -> dict[str, np.ndarray]:
    """The columns of some tasks of a job."""
    return {"job": np.full(len(indices), job), "index": np.array(indices), "attempt": np.full(len(indices), attempt)}


def ends(outcome: f.Outcome, code: int) -> dict[str, np.ndarray]:
    return {"outcome": np.array([int(outcome)]), "code": np.array([code])}


def told(state: State) -> dict:
    """What people read of a state."""
    pages = {"jobs": list_jobs(state)["jobs"], "queues": report.list_queues(state), "nodes": report.list_nodes(state)}
    return json.loads(json.dumps(pages))


def is_still(was: object, now: object) -> bool:
    """Whether what was told is told now; there may be more by now."""
    if isinstance(was, dict):
        return all(key in now and is_still(value, now[key]) for key, value in was.items())
    if isinstance(was, list):
        return len(was) == len(now) and all(map(is_still, was, now))
    return was == now


def described() -> str:
    """The present format, a line for each thing that is stored, and the version that it came with."""
    _, parts = msgspec.json.schema_components(
        [f.AnyFact, snapshot.Known, snapshot.Submitted, snapshot.Rows, Job], schema_hook=lambda kind: {"type": kind.__name__}
    )
    lines = [f"Envelope {Envelope._fields}", f"Head {head._FORMAT.format} {head.Head._fields}"]
    for name, part in parts.items():
        for key, kind in (part.get("properties") or {"": part.get("enum", part)}).items():
            lines.append(f"{name} {key} {json.dumps(kind, sort_keys=True)}")
    for name, table in TABLES.items():
        empty = table([0])
        for stored, column in snapshot._columns(empty).items():
            lines.append(f"{snapshot.STORED_TABLES.get(name, name)} {stored} {getattr(empty, column).dtype.str}")
    return f"fairlead {fairlead.__version__}\n{re.sub('--.*', '', _TABLES)}{chr(10).join(sorted(lines))}\n"


def copy_to(folder: Path, journal: Path = JOURNAL) -> Path:
    """A copy of a stored journal that may be written."""
    path = folder / "journal.db"
    shutil.copyfile(journal, path)
    shutil.copyfile(head.path_of(journal), head.path_of(path))
    adopt(path, last=1)  # nothing ran that it does not contain
    return path


def store() -> None:
    """Make the stored journal and what is told of it: with a snapshot in the middle, and all the facts kept."""
    if FORMAT.exists():
        made_by = FORMAT.read_text().split()[1]
        assert made_by == fairlead.__version__, f"it came with {made_by}: raise SCHEMA_VERSION instead"
    facts = every_fact()
    half = len(facts) * 2 // 3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        with closing(Journal(SqlStore(path))) as journal:
            journal.begin()
            for some in (facts[:half], facts[half:]):
                journal.append(some, ["ada" if isinstance(fact, f.JobSubmitted) else "" for fact in some])
                state = journal.recover()
                if some[-1] is not facts[-1]:
                    list(journal.save(state))
        DATA.mkdir(exist_ok=True)
        shutil.copyfile(path, JOURNAL)
        shutil.copyfile(head.path_of(path), head.path_of(JOURNAL))
    JOURNAL.with_suffix(".json").write_text(json.dumps(told(state), indent=1) + "\n")
    FORMAT.write_text(described())

"""The scheduler's side of an engine of many machines: decisions fan out to their supervisors, and what those saw comes together.

Machines come and go by :meth:`RemoteEngine.admit` and :meth:`RemoteEngine.part`, which whoever knows the machines calls from a
thread of their own. When one is told to be lost is decided by :mod:`fairlead.engines.remote.members`.
"""

import base64
import logging
import queue
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import msgspec

from fairlead.calls.payloads import SETUP
from fairlead.data_folder import write_private
from fairlead.engines.contract import (
    NOWHERE,
    Attempts,
    Launches,
    NodeDown,
    NodeDraining,
    Seen,
    Superseded,
    Unreachable,
    Where,
)
from fairlead.engines.local.feeding import Feeding
from fairlead.engines.local.instructions import Folders, gpus_of, limits, message, rows, starts
from fairlead.engines.local.member import is_here
from fairlead.engines.local.reports import (
    Ended,
    Fed,
    Fenced,
    Heartbeat,
    Inventory,
    Message,
    OutputPiece,
    Paused,
    PieceRequest,
    Refused,
    Reports,
    Started,
    Task,
    read_lines,
)
from fairlead.engines.remote.links import Endpoint, Links
from fairlead.engines.remote.members import LeasePolicy, Member, MemberState
from fairlead.engines.remote.transfer import ResultCollector
from fairlead.model.specs import Node, Quantities

log = logging.getLogger("fairlead")

READ_WITHIN = 10.0
"""Seconds in which a machine must tell what a task wrote."""
SESSIONS_EVERY = 2.0
"""Seconds between two looks for sessions that were closed, of those that nodes have fetched."""
SILENT = 10.0
"""Seconds after which a line that says nothing is begun anew, and a machine is said not to answer."""


class RemoteEngine:
    """Tasks on many machines; see :class:`fairlead.engines.contract.LiveEngine`.

    Parameters
    ----------
    home : Path
        The scheduler's data folder.
    wake : callable
        Called, from another thread, when there is something to poll.
    promise : LeasePolicy
        When machines are lost.
    as_people : bool
        Whether tasks run as the people who submitted them, which takes root on each machine; else as whose process the
        supervisors are.

    Attributes
    ----------
    complaint : str or None
        What whoever knows the machines has to complain of.
    """

    elastic, ray = True, False

    def __init__(
        self,
        home: Path,
        wake: Callable[[], None],
        promise: LeasePolicy,
        as_people: bool = False,
    ) -> None:
        self.complaint: str | None = None
        self._home, self._wake, self._promise, self._as_people = home, wake, promise, as_people
        self._folders = Folders(home / "calls", home / "exports")
        self._lock = threading.Lock()  # of what follows; held for moments
        self._members: dict[str, Member] = {}
        self._places: dict[str, Endpoint] = {}
        self._gpus: dict[str, list[int]] = {}
        self._seen: dict[str, Reports] = {}
        self._on: dict[Task, str] = {}  # where attempts are that were started, or seen
        self._firsts: dict[int, tuple[int, str]] = {}  # by job, the attempt of its first task, and where that is
        self._feeding = Feeding()
        self._collecting = ResultCollector(self._folders.calls, self._tell, self._collected)
        self._sessions: dict[str, set[str]] = defaultdict(set)  # by node, those that were fetched from there
        self._sessions_seen_at = 0.0
        self._reads: dict[int, queue.SimpleQueue[bytes | None]] = {}
        self._next_read = 0
        self._superseded = ""
        self._told_at_all = False
        self._links: Links | None = None

    # -- what is there ------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Sequence[Node]:
        with self._lock:
            return [m.node for m in self._members.values() if m.node is not None and m.standing is MemberState.UP]

    @property
    def limits(self) -> Mapping[str, bool]:
        """What tasks are held to on all machines."""
        with self._lock:
            known = [m.limits for m in self._members.values() if m.standing is MemberState.UP]
        return {
            name: all(limits.get(name, False) for limits in known) for name in ("cpu", "memory", "tracking") if known
        }

    @property
    def paused(self) -> int:
        return sum(member.paused for member in list(self._members.values()))

    @property
    def silent_for(self) -> float:
        """Seconds since that machine was heard that was not heard for longest."""
        with self._lock:
            heard = [m.renewed_at for m in self._members.values() if m.standing is MemberState.UP]
        return max(0.0, time.monotonic() - min(heard)) if heard else 0.0

    @property
    def trouble(self) -> str | None:
        """What keeps all work from being done; machines that do not answer are told by :attr:`silence`."""
        with self._lock:
            waits = [name for name, member in self._members.items() if member.standing is MemberState.UNHEARD]
            works = any(member.standing is MemberState.UP for member in self._members.values())
        if works:
            return None
        if not waits or self.complaint:
            return self.complaint
        why = [f"{name}: {self._links.trouble_of(name) or 'does not answer'}" for name in waits[:3] if self._links]
        return f"none of {len(waits)} machines can be reached: " + "; ".join(why)

    def expect(self, names: Iterable[str]) -> None:
        """The journal believes in these: until they are admitted they are waited for, and are lost when no lease can last."""
        now, before = time.monotonic(), self._promised_before()
        with self._lock:
            for name in names:
                member = self._members.setdefault(name, Member(name, None, now))
                member.promised, member.believed = before, True

    def _promised_before(self) -> float:
        """For how many seconds a lease may last that a scheduler before this one promised; what this one does is kept."""
        path = self._home / "lost_after"
        try:
            before = float(path.read_text())
        except (OSError, ValueError):  # there was none
            before = 0.0
        write_private(path, repr(max(before, self._promise.lost_after)), durable=True)
        return before

    def wait_for_nodes(self) -> None:
        """They come when they come."""

    @property
    def silence(self) -> Mapping[str, float]:
        """Seconds since they were heard, of the machines that are not heard, and are not lost yet."""
        now = time.monotonic()
        with self._lock:
            found = {m.name: now - m.renewed_at for m in self._members.values() if m.standing is not MemberState.LOST}
        return {name: silent_for for name, silent_for in found.items() if silent_for > SILENT}

    def admit(self, node: Node, place: Endpoint) -> None:
        """A machine is there, or is another than it was, with a supervisor that is reached there."""
        with self._lock:
            member = self._members.get(node.name)
            if member is None or member.standing is MemberState.LOST:
                member = self._members[node.name] = Member(node.name, node, time.monotonic())
            changed, member.node = member.node != node, node
            self._gpus |= gpus_of([node])
            anew = self._places.get(node.name) != place or member.gone_at is not None
            if member.gone_at is not None:
                member.draining = False
            member.gone_at, member.fenced = None, False
            self._places[node.name] = place
            if changed and member.standing is MemberState.UP:
                self._reports_of(node.name).nodes += member.seen()
        if anew and self._links is not None:
            self._links.connect(node.name, place)
        self._wake()

    def drain(self, name: str) -> None:
        """A machine is to go: it is to take no more."""
        with self._lock:
            member = self._members.get(name)
            if member is None or member.draining:
                return
            member.draining = True
            if member.standing is MemberState.UP:
                self._reports_of(name).nodes.append(NodeDraining(name))
        self._wake()

    def part(self, name: str) -> None:
        """A machine is gone, or is to go: nothing is to run there any more. It is lost when nothing can."""
        with self._lock:
            member = self._members.get(name)
            if member is None or member.gone_at is not None:
                return
            member.gone_at = time.monotonic()
        if self._links is not None:
            self._links.tell(name, message("fence"))

    def names(self) -> set[str]:
        """The machines that are admitted, or expected, and have not parted."""
        with self._lock:
            return {
                name for name, m in self._members.items() if m.gone_at is None and m.standing is not MemberState.LOST
            }

    # -- the contract -------------------------------------------------------------------------------------------

    def serve(self, journal: str, epoch: int) -> None:
        inventory = message("inventory")
        lease = message("lease", lost_after=self._promise.lost_after, grace=self._promise.grace)
        greeting = message("greet", journal=journal, epoch=epoch, start=uuid.uuid4().hex) + lease + inventory
        every = min(0.5, self._promise.lost_after / 20)
        self._links = Links(greeting, inventory, self._hear, self._broken, self._look, every)
        self._links.begin()
        with self._lock:
            places = dict(self._places)
        for name, place in places.items():
            self._links.connect(name, place)

    def _tell(self, name: str, told: bytes) -> None:
        assert self._links is not None, "it is said first whom it serves"
        self._links.tell(name, told)

    def start(self, launches: Launches) -> None:
        attempts = launches.attempts
        first = attempts.index == 0
        rest = (attempts.job[first].tolist(), attempts.number[first].tolist(), launches.node[first].tolist())
        with self._lock:
            for job, number, place in zip(*rest, strict=True):
                self._firsts[job] = number, launches.nodes[place]
        jobs = {number: launches.jobs[number] for number in set(attempts.job.tolist())}
        if any(job.work.export for job in jobs.values()) and self._links is not None:
            # What is kept apart is read from the disk, for which the scheduler does not wait.
            self._links.do(lambda: self._start(launches._replace(jobs=jobs)))
        else:
            self._start(launches)

    def _start(self, launches: Launches) -> None:
        self._note_sessions(launches)
        told_so = (self._gpus, self._folders, self._as_people, self._master_of, self._exported, self._is_elsewhere)
        for node, told, tasks in starts(launches, *told_so):
            with self._lock:
                for job, index, number in tasks:
                    self._on[job, index, number] = node
            self._tell(node, told)

    def _note_sessions(self, launches: Launches) -> None:
        """Note which sessions nodes will fetch."""
        if any(job.work.call is not None for job in launches.jobs.values()):
            for number, place in zip(launches.attempts.job.tolist(), launches.node.tolist(), strict=True):
                call, node = launches.jobs[number].work.call, launches.nodes[place]
                if call is not None and self._is_elsewhere(node):
                    with self._lock:
                        self._sessions[node].add(call.session)

    def _is_elsewhere(self, node: str) -> bool:
        """Whether a node does not see this machine's files."""
        with self._lock:
            place = self._places.get(node)
        return place is not None and not is_here(place.address)

    def _exported(self, node: str, name: str) -> dict[str, str] | None:
        """An environment that is kept apart, for a node that does not see this machine's files."""
        if not self._is_elsewhere(node):
            return None
        try:
            return msgspec.json.decode((self._folders.exports / name).read_bytes(), type=dict[str, str])
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("an environment that was kept for a job cannot be read: %s", error)
            return None  # the task says so, too: it is not there either

    def _master_of(self, job: int) -> str | None:
        with self._lock:
            _, name = self._firsts.get(job, (0, ""))
            place = self._places.get(name)
        if place is None:
            return None
        return place.address.host or "127.0.0.1"

    def stop(self, attempts: Attempts, grace: float, where: Where = NOWHERE) -> None:
        self._fan_out("stop", attempts, [where.nodes[place] for place in where.node.tolist()], grace=grace)

    def acknowledge(self, attempts: Attempts) -> None:
        tasks = self._fan_out("acknowledge", attempts, [])
        with self._lock:
            for job, index, number in tasks:
                self._on.pop((job, index, number), None)
                if index == 0 and self._firsts.get(job, (0, ""))[0] == number:
                    del self._firsts[job]

    def _fan_out(self, do: str, attempts: Attempts, names: list[str], **more: object) -> list[Task]:
        """Tell the machines that attempts are on something of them; which they are, where that is not said, is known of old."""
        tasks: list[Task] = [(job, index, number) for job, index, number in rows(attempts)]
        by_node: dict[str, list[Task]] = defaultdict(list)
        with self._lock:
            for task, name in zip(tasks, names or [self._on.get(task, "") for task in tasks], strict=True):
                by_node[name].append(task)
        for name, some in by_node.items():
            self._tell(name, message(do, tasks=some, **more))
        return tasks

    def poll(self) -> Seen:
        if self._superseded:
            raise Superseded(self._superseded)
        if self._links is not None and self._links.failure is not None:
            raise RuntimeError("the thread of the lines to the machines failed") from self._links.failure
        with self._lock:
            seen, self._seen = self._seen, {}
        total, of = Reports(), {name for name, one in seen.items() if one.known is not None}
        for one in seen.values():
            known, one.known = one.known, None
            total.join(one)
            if known is not None:
                total.known = (total.known or []) + known
        if of:
            total.known = total.known or []
        if not self._told_at_all:  # that nothing is known of any machine yet is an answer
            self._told_at_all, total.known = True, total.known or []
        return total.seen()._replace(of=of) if total.known is not None else total.seen()

    def limit(self, attempts: Attempts, demands: Sequence[Quantities]) -> None:
        for (job, index, number), told in limits(attempts, demands):
            with self._lock:
                name = self._on.get((job, index, number))
            if name is not None:
                self._tell(name, told)

    def take_inventory(self) -> None:
        self._told_at_all = False
        for name in self.names():
            self._tell(name, message("inventory"))

    def forget(self, jobs: Iterable[int]) -> None:
        told = message("forget", jobs=list(jobs))
        for name in self.names():
            self._tell(name, told)

    def read_output(self, job: int, index: int, stream: str, offset: int, most: int, node: str = "") -> bytes | None:
        answer: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        with self._lock:
            member = self._members.get(node)
            if member is None or member.standing is not MemberState.UP:
                raise Unreachable(f"node {node} is not there")
            if (silent_for := time.monotonic() - member.renewed_at) > SILENT:
                raise Unreachable(f"node {node} was not heard for {silent_for:.0f} s")
            self._next_read += 2
            ask = self._next_read
            self._reads[ask] = answer
        try:
            asked = {"ask": ask, "job": job, "task": index, "stream": stream, "offset": offset, "most": most}
            self._tell(node, message("read", **asked))
            return answer.get(timeout=READ_WITHIN)
        except queue.Empty:
            raise Unreachable(f"node {node} does not answer") from None
        finally:
            with self._lock:
                self._reads.pop(ask, None)

    def feeding(
        self, task: Task, offset: int, data: bytes, end: bool, size: tuple[int, int] | None = None
    ) -> AbstractContextManager[Callable[[], Fed | None]]:
        with self._lock:
            name = self._on.get(task, "")
        return self._feeding.piece(partial(self._tell, name), task, offset, data, end, size)

    def close(self, leave: bool = False) -> None:
        """Hang up. With `leave`, the supervisors go too as soon as nothing runs."""
        if self._links is not None:
            if leave:
                for name in self.names():
                    self._tell(name, message("leave"))
            self._links.close()

    def join(self, timeout: float) -> None:
        if self._links is not None:
            self._links.join(timeout)
        self._collecting.close()

    # -- in the thread of the lines -----------------------------------------------------------------------------

    def _reports_of(self, name: str) -> Reports:
        return self._seen.setdefault(name, Reports())

    def _hear(self, name: str, lines: list[bytes]) -> None:
        now = time.monotonic()
        messages = read_lines(lines)
        with self._lock:
            member = self._members.get(name)
            if member is None:
                return
            member.heard_at = now
            for each in messages:
                self._take_in(member, each, now)
        if any(not isinstance(each, Heartbeat | Fed | OutputPiece) for each in messages):
            self._wake()

    def _take_in(self, member: Member, each: Message, now: float) -> None:
        assert self._links is not None
        match each:
            case Heartbeat(number):
                # Where it was told that the machine is lost, it must first have told what it knows of: then it is there again.
                member.number = number
                if member.standing is not MemberState.LOST:
                    self._renew(member, now)
            case Inventory():
                self._take_inventory_in(member, each)
            case Refused(why):
                self._superseded = (
                    f"{self._home}: the supervisor of {member.name} obeys another scheduler ({why}): this one ends, and what "
                    "runs goes on"
                )
            case Paused(tasks):
                member.paused = len(tasks)
            case Fed():
                self._feeding.hear(each)
            case OutputPiece(ask, data):
                self._hear_read(member, ask, None if data is None else base64.b64decode(data))
            case PieceRequest():
                self._collecting.answer(member.name, each)
            case Fenced():
                member.fenced = member.gone_at is not None
            case Started(task) | Ended(task):
                if self._on.setdefault(task, member.name) == member.name:
                    if isinstance(each, Ended) and each.session:
                        self._collecting.begin(member.name, each)
                    else:
                        self._reports_of(member.name).add(each)
                else:
                    log.warning(
                        "node %s tells of task %d.%d, which is on another: it is not believed", member.name, *task[:2]
                    )
            case _:
                self._reports_of(member.name).add(each)

    def _hear_read(self, member: Member, ask: int, data: bytes | None) -> None:
        """Odd numbers are asked for what calls came to, even ones for output."""
        if ask % 2:
            self._collecting.hear(member.name, ask, data)
        elif ask in self._reads:
            self._reads[ask].put(data)

    def _collected(self, name: str, ended: Ended) -> None:
        """What a call came to is here: tell its end. A machine that is lost tells it again, should it come back."""
        with self._lock:
            member = self._members.get(name)
            if member is None or member.standing is MemberState.LOST:
                return
            self._reports_of(name).add(ended)
        self._wake()

    def _renew(self, member: Member, now: float) -> None:
        """Say a number back: its lease lasts from before now."""
        assert self._links is not None
        member.renewed_at = now
        self._links.answer(member.name, b'{"do": "renew", "number": %d}\n' % member.number)

    def _take_inventory_in(self, member: Member, told: Inventory) -> None:
        assert self._links is not None
        member.limits, member.promised = told.limits, 0.0
        self._sessions[member.name] |= set(told.sessions)
        for job, index, number in told.tasks:
            self._on.setdefault((job, index, number), member.name)
            if index == 0 and number >= self._firsts.get(job, (0, ""))[0]:
                self._firsts[job] = number, member.name
        self._links.accept(member.name)
        seen = self._reports_of(member.name)
        seen.add(told)
        if member.gone_at is not None:
            self._links.tell(member.name, message("fence"))
        elif member.node is not None:
            if member.standing is MemberState.LOST:
                self._renew(member, time.monotonic())
            member.standing, member.believed = MemberState.UP, True
            seen.nodes = member.seen()

    def _broken(self, name: str) -> None:
        with self._lock:
            member = self._members.get(name)
            if member is not None:
                member.heard_at = time.monotonic()

    def _look(self) -> None:
        """Tell of machines that are lost now, and begin lines anew that are dead; have what is left of sessions removed."""
        assert self._links is not None
        now = time.monotonic()
        if now - self._sessions_seen_at > SESSIONS_EVERY:
            self._sessions_seen_at = now
            self._close_sessions()
        news = False
        with self._lock:
            for name, member in list(self._members.items()):
                if member.standing is not MemberState.LOST and member.is_lost(self._promise, now):
                    self._lose(member)
                    news = True
                elif now - member.heard_at > SILENT:
                    if member.standing is MemberState.UP and now - member.renewed_at < 2 * SILENT:
                        log.warning(
                            "node %s was not heard for %.0f s: what runs there may go on", name, now - member.renewed_at
                        )
                    member.heard_at = now
                    self._links.mend(name)
        if news:
            self._wake()

    def _close_sessions(self) -> None:
        """Have the nodes remove what they fetched of sessions that were closed."""
        with self._lock:
            there = {node: set(sessions) for node, sessions in self._sessions.items() if sessions}
        gone = {each for each in set().union(*there.values()) if not (self._folders.calls / each / SETUP).exists()}
        for node, sessions in there.items():
            if closed := sorted(sessions & gone):
                self._tell(node, message("close", sessions=closed))
                with self._lock:
                    self._sessions[node] -= gone

    def _lose(self, member: Member) -> None:
        """Tell that a machine is lost. Should it be heard again, it comes as one that is new, with what ended there."""
        assert self._links is not None
        log.warning("node %s is lost: what ran there starts again elsewhere", member.name)
        member.standing = MemberState.LOST
        self._on = {task: name for task, name in self._on.items() if name != member.name}
        self._reports_of(member.name).nodes.append(NodeDown(member.name))
        place = self._places.get(member.name)
        if member.gone_at is None and place is not None:
            self._members[member.name] = Member(member.name, member.node, time.monotonic())
            self._members[member.name].standing = MemberState.LOST
            self._links.connect(member.name, place)
        else:
            self._links.disconnect(member.name)
            self._places.pop(member.name, None)

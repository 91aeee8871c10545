"""The scheduler's side of a cluster: sends decisions to the nodes' supervisors and merges their reports.

Nodes dial the scheduler. Which ones may, and what they share, a subclass decides: machines that joined
(:mod:`fairlead.engines.remote.joined`), or Ray's. :mod:`fairlead.engines.remote.members` decides when a node is lost.
"""

import base64
import logging
import queue
import socket
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import fairlead
from fairlead.calls.payloads import SETUP
from fairlead.data_folder import write_private
from fairlead.engines.contract import (
    NOWHERE,
    Attempts,
    CardUse,
    EngineError,
    Launches,
    NodeDown,
    NodeDraining,
    Seen,
    Superseded,
    Unreachable,
    Where,
)
from fairlead.engines.local.feeding import Feeding
from fairlead.engines.local.instructions import Folders, gpu_indices, limits, message, rows, starts
from fairlead.engines.local.reports import (
    About,
    CardsMeasured,
    Closed,
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
from fairlead.engines.local.supervisor_connections import Door, SupervisorConnections
from fairlead.engines.remote.keys import KeyRing
from fairlead.engines.remote.members import LeasePolicy, Member, MemberState
from fairlead.engines.remote.transfer import ResultCollector
from fairlead.model.specs import Node, Quantities

log = logging.getLogger("fairlead")

READ_WITHIN = 10.0
"""Seconds for a node to answer a read of output."""
SESSIONS_EVERY = 2.0
"""Seconds between two checks for closed sessions that nodes have fetched."""
SILENT = 10.0
"""Seconds of silence after which a node counts as not answering and its connection is renewed."""


class Serving(NamedTuple):
    """How an engine serves its nodes.

    home : the scheduler's data folder.
    wake : called from another thread when there is something to poll.
    policy : when nodes are lost.
    listen : host and port where nodes connect; port 0 for any.
    as_people : True if tasks run as the people who submitted them, which takes root on each machine; else as the
        supervisors' users.
    """

    home: Path
    wake: Callable[[], None]
    policy: LeasePolicy
    listen: tuple[str, int]
    as_people: bool = False


class RemoteEngine:
    """Tasks on many machines; see :class:`fairlead.engines.contract.LiveEngine`.

    Attributes
    ----------
    complaint : str or None
        The trouble of the node source, if any.
    """

    elastic, ray = True, False

    def __init__(self, serving: Serving) -> None:
        self.complaint: str | None = None
        home, self._wake, self._policy, listen, self._as_people = serving
        self._home = home
        self._folders = Folders(home / "calls", home / "exports")
        self._lock = threading.Lock()  # guards what follows; never held for long
        self._members: dict[str, Member] = {}
        self._hosts: dict[str, str] = {}  # of nodes that may connect: how others reach them
        self._ring = KeyRing(home / "keys")
        self._listener = _listen(*listen)
        self.port: int = self._listener.getsockname()[1]
        self.gpus: dict[str, Sequence[int]] = {}
        self._seen: dict[str, Reports] = {}
        self._on: dict[Task, str] = {}  # node of each attempt that was started or reported
        self._firsts: dict[int, tuple[int, str]] = {}  # by job: attempt number of its first task, and its node
        self._feeding = Feeding()
        self._collecting = ResultCollector(self._folders.calls, self._send, self._collected)
        self._sessions: dict[str, set[str]] = defaultdict(set)  # by node: sessions fetched there
        self._sessions_seen_at = 0.0
        self._reads: dict[int, queue.SimpleQueue[bytes | Unreachable | None]] = {}
        self._next_read = 0
        self._superseded = ""
        self._promised = 0.0
        self._inventory_sent = False
        self._connections: SupervisorConnections | None = None

    # -- nodes --------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Sequence[Node]:
        with self._lock:
            return [m.shown() for m in self._members.values() if m.standing is MemberState.UP]

    @property
    def limits(self) -> Mapping[str, bool]:
        """What every node enforces."""
        with self._lock:
            known = [m.limits for m in self._members.values() if m.standing is MemberState.UP]
        return {name: all(limits.get(name, False) for limits in known) for name in ("cpu", "memory", "tracking") if known}

    @property
    def paused(self) -> int:
        return sum(member.paused for member in list(self._members.values()))

    @property
    def silent_for(self) -> float:
        """Seconds of silence of the node that is silent for longest."""
        with self._lock:
            heard = [m.renewed_at for m in self._members.values() if m.standing is MemberState.UP]
        return max(0.0, time.monotonic() - min(heard)) if heard else 0.0

    @property
    def trouble(self) -> str | None:
        """Why no work can be done; nodes that do not answer are in :attr:`silence`."""
        with self._lock:
            waits = [name for name, member in self._members.items() if member.standing is MemberState.UNHEARD]
            works = any(member.standing is MemberState.UP for member in self._members.values())
        if works:
            return None
        if not waits or self.complaint:
            return self.complaint
        return f"none of {len(waits)} nodes has connected: {', '.join(waits[:5])}"

    def expect(self, nodes: Mapping[str, bool]) -> None:
        """Expect the nodes in the journal: wait for them to be admitted.

        A node that is removed is lost at once if it has no tasks; else when no lease can still be valid.
        """
        now, before = time.monotonic(), self._promised_before()
        with self._lock:
            for name, has_tasks in nodes.items():
                member = self._members.setdefault(name, Member(name, None, now))
                if member.standing is not MemberState.UP:  # else it has this scheduler's terms already
                    member.promised, member.believed, member.fenced = before, True, not has_tasks

    def _promised_before(self) -> float:
        """Return the longest lease that an earlier scheduler granted, in seconds; store this one's."""
        try:
            before = float((self._home / "lost_after").read_text())
        except (OSError, ValueError):  # there was none
            before = 0.0
        self._promise(max(before, self._policy.lost_after))
        return before

    def _promise(self, seconds: float) -> None:
        """Write down the longest lease that may be valid, before it is granted."""
        if seconds != self._promised:
            write_private(self._home / "lost_after", repr(seconds), durable=True)
            self._promised = seconds

    def wait_for_nodes(self) -> None:
        """No-op: nodes come when they come."""

    @property
    def silence(self) -> Mapping[str, float]:
        """Seconds of silence, by node, of nodes that are silent and not lost yet."""
        now = time.monotonic()
        with self._lock:
            found = {m.name: now - m.renewed_at for m in self._members.values() if m.standing is not MemberState.LOST}
        return {name: silent_for for name, silent_for in found.items() if silent_for > SILENT}

    def card_use(self, node: str) -> Mapping[int, CardUse]:
        member = self._members.get(node)
        return member.card_use if member else {}

    def known_of(self, name: str) -> dict[str, Any]:
        """Return what is known of a node that connects: seconds since its last message, version, lead of its clock."""
        with self._lock:
            member = self._members.get(name)
        if member is None or member.here or not member.version:
            return {}
        heard = time.monotonic() - member.renewed_at
        return {"heard": heard, "version": member.version, "clock_ahead": member.clock_ahead}

    def admit(self, node: Node, host: str) -> None:
        """Add a node, or change it; it may connect. Others reach it at `host`."""
        with self._lock:
            member = self._members.get(node.name)
            if member is None or member.standing is MemberState.LOST:
                member = self._members[node.name] = Member(node.name, node, time.monotonic())
            changed, member.node = member.node != node, node
            self.gpus |= gpu_indices([node])
            reconnect = member.gone_at is not None
            if reconnect:
                member.draining = False
            member.gone_at, member.fenced = None, False
            self._hosts[node.name] = host
            if changed and member.standing is MemberState.UP:
                self._reports_of(node.name).nodes += member.seen()
        if reconnect and self._connections is not None:
            self._connections.renew(node.name)
        self._wake()

    def drain(self, name: str) -> None:
        """Drain a node: it takes no more tasks."""
        with self._lock:
            member = self._members.get(name)
            if member is None or member.draining:
                return
            member.draining = True
            if member.standing is MemberState.UP:
                self._reports_of(name).nodes.append(NodeDraining(name))
        self._wake()

    def part(self, name: str) -> None:
        """Remove a node: nothing may run there any more. It is lost as soon as nothing can."""
        with self._lock:
            member = self._members.get(name)
            if member is None or member.gone_at is not None:
                return
            member.gone_at = time.monotonic()
        if self._connections is not None:
            self._connections.send(name, message("fence"))

    def names(self) -> set[str]:
        """Return the nodes that are admitted or expected, and not removed."""
        with self._lock:
            return {name for name, m in self._members.items() if m.gone_at is None and m.standing is not MemberState.LOST}

    # -- the contract -------------------------------------------------------------------------------------------

    def serve(self, journal: str, epoch: int) -> None:
        inventory = message("inventory")
        lease = message("lease", lost_after=self._policy.lost_after, grace=self._policy.grace)
        self._greeting = message("greet", journal=journal, epoch=epoch, start=uuid.uuid4().hex)
        greeting = self._greeting + lease + inventory
        every = min(0.5, self._policy.lost_after / 20)
        self._connections = SupervisorConnections(greeting, inventory, self._hear, self._broken, self._look, every)
        self._connections.begin()
        self._connections.listen(self._listener, Door(self._ring.context, self._name_of, self._hear_stranger))

    def _name_of(self, certificate: bytes) -> str:
        """Return which node may connect with this certificate; empty if none."""
        name = self._ring.name_of(certificate)
        return name if name in self._hosts else ""

    def _hear_stranger(self, request: bytes) -> bytes:
        """Answer one who has no certificate; nodes cannot join by themselves here."""
        return b""

    def _send(self, name: str, line: bytes) -> None:
        assert self._connections is not None, "call serve() first"
        self._connections.send(name, line)

    def start(self, launches: Launches) -> None:
        attempts = launches.attempts
        first = attempts.index == 0
        rest = (attempts.job[first].tolist(), attempts.number[first].tolist(), launches.node[first].tolist())
        with self._lock:
            for job, number, place in zip(*rest, strict=True):
                self._firsts[job] = number, launches.nodes[place]
        jobs = {number: launches.jobs[number] for number in set(attempts.job.tolist())}
        if any(job.work.export for job in jobs.values()) and self._connections is not None:
            # Stored environments are read from the disk, for which the scheduler's thread must not wait.
            self._connections.do(lambda: self._start(launches._replace(jobs=jobs)))
        else:
            self._start(launches)

    def _start(self, launches: Launches) -> None:
        self._note_sessions(launches)
        more = (self.gpus, self._folders, self._as_people, self._master_of, self._exported, self._is_elsewhere)
        for node, line, tasks in starts(launches, *more):
            with self._lock:
                for job, index, number in tasks:
                    self._on[job, index, number] = node
                member = self._members.get(node)
                if member is not None and member.gone_at is None:  # else its supervisor confirmed that it starts nothing
                    member.fenced = False
            self._send(node, line)

    def _note_sessions(self, launches: Launches) -> None:
        """Note which sessions nodes will fetch."""
        if any(job.work.call is not None for job in launches.jobs.values()):
            for number, place in zip(launches.attempts.job.tolist(), launches.node.tolist(), strict=True):
                call, node = launches.jobs[number].work.call, launches.nodes[place]
                if call is not None and self._is_elsewhere(node):
                    with self._lock:
                        self._sessions[node].add(call.session)

    def _is_elsewhere(self, node: str) -> bool:
        """Return True if a node does not see this machine's files."""
        return True

    def _exported(self, node: str, name: str) -> dict[str, str] | None:
        """Read a stored environment for a node that does not see this machine's files; else None."""
        if not self._is_elsewhere(node):
            return None
        try:
            return msgspec.json.decode((self._folders.exports / name).read_bytes(), type=dict[str, str])
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("a job's stored environment cannot be read: %s", error)
            return None  # the task reports it too, since the file is missing there

    def _master_of(self, job: int) -> str | None:
        with self._lock:
            _, name = self._firsts.get(job, (0, ""))
            return self._hosts.get(name)

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
        """Send a message about attempts to their nodes. `names` are these nodes; if empty, our own records decide."""
        tasks: list[Task] = [(job, index, number) for job, index, number in rows(attempts)]
        by_node: dict[str, list[Task]] = defaultdict(list)
        with self._lock:
            for task, name in zip(tasks, names or [self._on.get(task, "") for task in tasks], strict=True):
                by_node[name].append(task)
        for name, some in by_node.items():
            self._send(name, message(do, tasks=some, **more))
        return tasks

    def poll(self) -> Seen:
        if self._superseded:
            raise Superseded(self._superseded)
        if self._connections is not None and self._connections.failure is not None:
            raise RuntimeError("the thread of the connections to the nodes failed") from self._connections.failure
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
        if not self._inventory_sent:  # that no node is known yet is an answer too
            self._inventory_sent, total.known = True, total.known or []
        return total.seen()._replace(of=of) if total.known is not None else total.seen()

    def limit(self, attempts: Attempts, demands: Sequence[Quantities]) -> None:
        for (job, index, number), line in limits(attempts, demands):
            with self._lock:
                name = self._on.get((job, index, number))
            if name is not None:
                self._send(name, line)

    def take_inventory(self) -> None:
        self._inventory_sent = False
        for name in self.names():
            self._send(name, message("inventory"))

    def forget(self, jobs: Iterable[int]) -> None:
        line = message("forget", jobs=list(jobs))
        for name in self.names():
            self._send(name, line)

    def read_output(self, job: int, index: int, stream: str, offset: int, most: int, node: str = "") -> bytes | None:
        answer: queue.SimpleQueue[bytes | Unreachable | None] = queue.SimpleQueue()
        with self._lock:
            member = self._members.get(node)
            if member is None or member.standing is not MemberState.UP:
                raise Unreachable(f"node {node} is not up")
            if (silent_for := time.monotonic() - member.renewed_at) > SILENT:
                raise Unreachable(f"no message from node {node} for {silent_for:.0f} s")
            self._next_read += 2
            ask = self._next_read
            self._reads[ask] = answer
        try:
            asked = {"ask": ask, "job": job, "task": index, "stream": stream, "offset": offset, "most": most}
            self._send(node, message("read", **asked))
            found = answer.get(timeout=READ_WITHIN)
        except queue.Empty:
            raise Unreachable(f"node {node} does not answer") from None
        finally:
            with self._lock:
                self._reads.pop(ask, None)
        if isinstance(found, Unreachable):
            raise found
        return found

    def next_data(self, job: int, index: int, stream: str, offset: int, node: str = "") -> int:
        found = self.read_output(job, index, stream, offset, 0, node)
        return int(found) if found else offset  # an older supervisor knows of no holes

    def feeding(
        self, task: Task, offset: int, data: bytes, end: bool, size: tuple[int, int] | None = None
    ) -> AbstractContextManager[Callable[[], Fed | None]]:
        with self._lock:
            name = self._on.get(task, "")
        return self._feeding.piece(partial(self._send, name), task, offset, data, end, size)

    def close(self, leave: bool = False) -> None:
        """Disconnect. With `leave`, supervisors end as soon as nothing runs."""
        if self._connections is not None:
            if leave:
                for name in self.names():
                    self._send(name, message("leave"))
            self._connections.close()
        else:
            self._listener.close()

    def join(self, timeout: float) -> None:
        if self._connections is not None:
            self._connections.join(timeout)
        self._collecting.close()

    # -- in the thread of the connections -----------------------------------------------------------------------

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
        if any(not isinstance(each, Heartbeat | Fed | OutputPiece | CardsMeasured) for each in messages):
            self._wake()

    def _take_in(self, member: Member, each: Message, now: float) -> None:
        assert self._connections is not None
        match each:
            case Heartbeat(number):
                # A node that was reported lost must first send its inventory: only then it is up again.
                member.number = number
                if member.standing is not MemberState.LOST and not member.unfit:
                    self._renew(member, now)
            case Inventory():
                self._take_inventory_in(member, each)
            case Refused(why):
                self._superseded = (
                    f"{self._home}: the supervisor of {member.name} obeys another scheduler ({why}): this one ends, and "
                    "its tasks continue"
                )
            case Paused(tasks):
                member.paused = len(tasks)
            case CardsMeasured():
                member.card_use = each.use()
            case Closed(to):
                member.closed_to = to
                if member.standing is MemberState.UP:
                    self._reports_of(member.name).nodes += member.seen()
            case Fed():
                self._feeding.acknowledge(each)
            case OutputPiece(ask, data, wrong):
                self._hear_read(member, ask, None if data is None else base64.b64decode(data), wrong)
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
                    log.warning("node %s reports task %d.%d, which is on another node: ignored", member.name, *task[:2])
            case _:
                self._reports_of(member.name).add(each)

    def _hear_read(self, member: Member, ask: int, data: bytes | None, wrong: str) -> None:
        """Odd numbers request results of calls, even ones output."""
        if ask % 2:
            self._collecting.receive(member.name, ask, data)
        elif ask in self._reads:
            self._reads[ask].put(Unreachable(f"node {member.name}: {wrong}") if wrong else data)

    def _collected(self, name: str, ended: Ended) -> None:
        """Report the end of a call whose result is here. A lost node reports it again if it comes back."""
        with self._lock:
            member = self._members.get(name)
            if member is None or member.standing is MemberState.LOST:
                return
            self._reports_of(name).add(ended)
        self._wake()

    def _renew(self, member: Member, now: float) -> None:
        """Echo a heartbeat: the lease lasts from before now."""
        assert self._connections is not None
        member.renewed_at = now
        self._connections.answer(member.name, b'{"do": "renew", "number": %d}\n' % member.number)

    def _take_inventory_in(self, member: Member, inventory: Inventory) -> None:
        assert self._connections is not None
        before, member.unfit = member.unfit, inventory.cannot_talk()
        if member.unfit:
            if member.unfit != before:
                log.warning("node %s is not used: %s: install fairlead %s there", member.name, member.unfit, fairlead.__version__)
            member.version = inventory.about.version
            self._connections.disconnect(member.name)
            return
        member.limits, member.promised, member.closed_to = inventory.limits, 0.0, {}
        self._sessions[member.name] |= set(inventory.sessions)
        self._hear_about(member, inventory.about)
        for job, index, number in inventory.tasks:
            self._on.setdefault((job, index, number), member.name)
            if index == 0 and number >= self._firsts.get(job, (0, ""))[0]:
                self._firsts[job] = number, member.name
        self._connections.accept(member.name)
        if self.gpus.get(member.name):
            self._connections.send(member.name, message("watch"))
        seen = self._reports_of(member.name)
        seen.add(inventory)
        if member.gone_at is not None:
            self._connections.send(member.name, message("fence"))
        elif member.node is not None:
            if member.standing is MemberState.LOST:
                self._renew(member, time.monotonic())
            member.standing, member.believed = MemberState.UP, True
            seen.nodes = member.seen()

    def _hear_about(self, member: Member, about: About) -> None:
        """Handle what a node says of itself."""
        member.version = about.version
        member.clock_ahead = about.clock - time.time() if about.clock else 0.0

    def _broken(self, name: str) -> None:
        with self._lock:
            member = self._members.get(name)
            if member is not None:
                member.heard_at = time.monotonic()

    def _look(self) -> None:
        """Report nodes that are lost now, renew dead connections, and close sessions."""
        assert self._connections is not None
        now = time.monotonic()
        if now - self._sessions_seen_at > SESSIONS_EVERY:
            self._sessions_seen_at = now
            self._close_sessions()
        news = False
        if self._promised > self._policy.lost_after and not any(m.promised for m in list(self._members.values())):
            self._promise(self._policy.lost_after)
        with self._lock:
            for name, member in list(self._members.items()):
                if member.standing is not MemberState.LOST and member.is_lost(self._policy, now):
                    self._lose(member)
                    news = True
                elif now - member.heard_at > SILENT:
                    if member.standing is MemberState.UP and now - member.renewed_at < 2 * SILENT:
                        log.warning("no message from node %s for %.0f s: its tasks may still run", name, now - member.renewed_at)
                    member.heard_at = now
                    self._connections.renew(name)
        if news:
            self._wake()

    def _close_sessions(self) -> None:
        """Make nodes remove their files of closed sessions."""
        with self._lock:
            there = {node: set(sessions) for node, sessions in self._sessions.items() if sessions}
        gone = {each for each in set().union(*there.values()) if not (self._folders.calls / each / SETUP).exists()}
        for node, sessions in there.items():
            if closed := sorted(sessions & gone):
                self._send(node, message("close", sessions=closed))
                with self._lock:
                    self._sessions[node] -= gone

    def _lose(self, member: Member) -> None:
        """Report a node as lost. If it comes back, it does so as a new one, with the ends that it knows."""
        assert self._connections is not None
        if member.leaving:
            log.info("node %s has left", member.name)
        else:
            log.warning("node %s is lost: its tasks start again elsewhere", member.name)
        member.standing = MemberState.LOST
        self._on = {task: name for task, name in self._on.items() if name != member.name}
        self._reports_of(member.name).nodes.append(NodeDown(member.name))
        if member.gone_at is None and member.name in self._hosts:
            fresh = self._members[member.name] = Member(member.name, member.node, member.renewed_at)
            fresh.standing, fresh.version, fresh.clock_ahead = MemberState.LOST, member.version, member.clock_ahead
            self._connections.renew(member.name)
        else:
            self._connections.disconnect(member.name)
            self._hosts.pop(member.name, None)


def _listen(host: str, port: int) -> socket.socket:
    """Listen for nodes. Raises EngineError."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise EngineError(f"{host}:{port}: cannot listen for nodes: {error.strerror or error}: name another address") from None

"""The scheduler's side of a cluster: sends decisions to the nodes' supervisors and merges their reports.

Nodes dial the scheduler. Which ones may, and what they share, a subclass decides: machines that joined
(:mod:`fairlead.engines.remote.joined`), or Ray's. :mod:`fairlead.engines.remote.members` decides when a node is lost.
"""

import base64
import logging
import socket
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import fairlead
from fairlead.calls.payloads import SETUP
from fairlead.data_folder import write_private
from fairlead.engines import contract
from fairlead.engines.local import reports
from fairlead.engines.local.instructions import Folders, gpu_indices, limits, message, rows, starts
from fairlead.engines.local.messages import PROTOCOL
from fairlead.engines.local.questions import Questions
from fairlead.engines.local.supervisor_connections import Door, SupervisorConnections
from fairlead.engines.remote.keys import KeyRing
from fairlead.engines.remote.members import LeasePolicy, Member, MemberState
from fairlead.engines.remote.transfer import ResultCollector
from fairlead.failure import failing
from fairlead.model.specs import Node, Quantities

log = logging.getLogger("fairlead")

READ_WITHIN = 10.0
"""Seconds for a node to answer a read of output."""
SESSIONS_EVERY = 2.0
"""Seconds between two checks for closed sessions that nodes have fetched, and for supervisors to replace."""
AWAY = 7200.0
"""Seconds that tasks may run on while a scheduler is away that has said so, as for an upgrade."""
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

    complaint : the trouble of the node source, if any
    admit_relay : returns the socket that the relay of a leased worker is to be connected with, by its request; None for another
        stranger
    """

    elastic, ray = True, False
    _connections: SupervisorConnections  # from `serve` on

    def __init__(self, serving: Serving) -> None:
        self.complaint: str | None = None
        self.admit_relay: Callable[[bytes], socket.socket | None] = lambda request: None
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
        self._seen: dict[str, reports.Reports] = defaultdict(reports.Reports)
        self._on: dict[reports.Task, str] = {}  # node of each attempt that was started or reported
        self._questions = Questions()
        self._collecting = ResultCollector(self._folders.calls, self._send, self._collected)
        self._sessions: dict[str, set[str]] = defaultdict(set)  # by node: sessions fetched there
        self._sessions_seen_at = 0.0
        self._superseded = self._journal = ""
        self._promised = 0.0
        self._inventory_sent = False

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

    def expect(self, nodes: Mapping[str, Sequence[reports.Task]]) -> None:
        """Expect the nodes in the journal, by name with the attempts there: wait for them to be admitted.

        A node that is removed is lost at once if it has no tasks; else when no lease can still be valid.
        """
        now, before = time.monotonic(), self._promised_before()
        with self._lock:
            for name, there in nodes.items():
                self._on |= dict.fromkeys(there, name)  # although another speaks of them first
                member = self._members.setdefault(name, Member(name, None, now))
                if member.standing is not MemberState.UP:  # else it has this scheduler's terms already
                    member.promised, member.believed, member.fenced, member.expected_at = before, True, not there, now

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

    @property
    def unheard(self) -> Mapping[str, float]:
        """Seconds since the start, by node, of nodes that may have tasks and have not said since then which run."""
        now = time.monotonic()
        with self._lock:
            expected = [m for m in self._members.values() if m.believed and m.standing is MemberState.UNHEARD]
            return {member.name: now - member.expected_at for member in expected}

    def card_use(self, node: str) -> Mapping[int, contract.CardUse]:
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
                self._seen[node.name].nodes += member.seen()
        if reconnect and self._journal:  # else nobody is connected yet
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
                self._seen[name].nodes.append(contract.NodeDraining(name))
        self._wake()

    def part(self, name: str) -> None:
        """Remove a node: nothing may run there any more. It is lost as soon as nothing can."""
        with self._lock:
            member = self._members.get(name)
            if member is None or member.gone_at is not None:
                return
            member.gone_at = time.monotonic()
        if self._journal:  # else nobody is connected yet
            self._connections.send(name, message("fence"))

    def names(self) -> set[str]:
        """Return the nodes that are admitted or expected, and not removed."""
        with self._lock:
            return {name for name, m in self._members.items() if m.gone_at is None and m.standing is not MemberState.LOST}

    # -- the contract -------------------------------------------------------------------------------------------

    def serve(self, journal: str, epoch: int) -> None:
        self._journal, inventory = journal, message("inventory")
        lease = message("lease", lost_after=self._policy.lost_after, grace=self._policy.grace)
        self._greeting = message("greet", journal=journal, epoch=epoch, start=uuid.uuid4().hex)
        greeting = self._greeting + lease + inventory
        every = min(0.5, self._policy.lost_after / 20)
        self._connections = SupervisorConnections(greeting, inventory, self._hear, self._broken, self._look, every)
        self._connections.begin()
        self._open()

    def _open(self) -> None:
        """Take nodes in; until then, they wait."""
        self._connections.listen(self._listener, Door(self._ring.context, self._name_of, self._hear_stranger, self._relay))

    def _name_of(self, certificate: bytes) -> str:
        """Return which node may connect with this certificate; empty if none."""
        name = self._ring.name_of(certificate)
        return name if name in self._hosts else ""

    def _hear_stranger(self, request: bytes) -> bytes:
        """Answer one who has no certificate; nodes cannot join by themselves here."""
        return b""

    def _relay(self, request: bytes) -> socket.socket | None:
        return self.admit_relay(request)

    def _send(self, name: str, line: bytes, now: bool = True) -> None:
        self._connections.send(name, line, now)

    def start(self, launches: contract.Launches) -> None:
        jobs = {number: launches.jobs[number] for number in set(launches.attempts.job.tolist())}
        if any(job.work.export for job in jobs.values()):
            # Stored environments are read from the disk, for which the scheduler's thread must not wait.
            self._connections.do(lambda: self._start(launches._replace(jobs=jobs)))
        else:
            self._start(launches)

    def _start(self, launches: contract.Launches) -> None:
        self._note_sessions(launches)
        with self._lock:
            hosts = dict(self._hosts)
        more = (self.gpus, self._folders, self._as_people, hosts.get, self._journal, self._exported, self._is_elsewhere)
        with self._connections.together():
            for node, line, tasks in starts(launches, *more):
                with self._lock:
                    for job, index, number in tasks:
                        self._on[job, index, number] = node
                    member = self._members.get(node)
                    if member is not None and member.gone_at is None:  # else its supervisor confirmed that it starts nothing
                        member.fenced = False
                self._send(node, line)

    def _note_sessions(self, launches: contract.Launches) -> None:
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

    def stop(self, attempts: contract.Attempts, grace: float, where: contract.Where = contract.NOWHERE) -> None:
        self._fan_out("stop", attempts, [where.nodes[place] for place in where.node.tolist()], grace=grace)

    def acknowledge(self, attempts: contract.Attempts) -> None:
        tasks = self._fan_out("acknowledge", attempts, [])
        with self._lock:
            for job, index, number in tasks:
                self._on.pop((job, index, number), None)

    def _fan_out(self, do: str, attempts: contract.Attempts, names: list[str], **more: object) -> list[reports.Task]:
        """Send a message about attempts to their nodes. `names` are these nodes; if empty, our own records decide."""
        tasks: list[reports.Task] = [(job, index, number) for job, index, number in rows(attempts)]
        by_node: dict[str, list[reports.Task]] = defaultdict(list)
        with self._lock:
            for task, name in zip(tasks, names or [self._on.get(task, "") for task in tasks], strict=True):
                by_node[name].append(task)
        for name, some in by_node.items():
            self._send(name, message(do, tasks=some, **more), now=do != "acknowledge")
        return tasks

    def poll(self) -> contract.Seen:
        if self._superseded:
            raise contract.Superseded(self._superseded)
        if self._connections.failure is not None:
            raise RuntimeError("the thread of the connections to the nodes failed") from self._connections.failure
        with self._lock:
            seen, self._seen = self._seen, defaultdict(reports.Reports)
        total, of = reports.Reports(), {name for name, one in seen.items() if one.known is not None}
        for one in seen.values():
            known, one.known = one.known, None
            total.join(one)
            if known is not None:
                total.known = (total.known or []) + known
        if not self._inventory_sent:  # that no node is known yet is an answer too
            self._inventory_sent, total.known = True, total.known or []
        return total.seen()._replace(of=of) if total.known is not None else total.seen()

    def limit(self, attempts: contract.Attempts, demands: Sequence[Quantities]) -> None:
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
        with self._lock:
            member = self._members.get(node)
            if member is None or member.standing is not MemberState.UP:
                raise contract.Unreachable(f"node {node} is not up")
            if (silent_for := time.monotonic() - member.renewed_at) > SILENT:
                raise contract.Unreachable(f"no message from node {node} for {silent_for:.0f} s")
        asked = {"job": job, "task": index, "stream": stream, "offset": offset, "most": most}
        answer = self._questions.ask(partial(self._send, node), node, "read", **asked)
        try:
            found = answer.result(READ_WITHIN)
        except TimeoutError:
            answer.cancel()
            raise contract.Unreachable(f"node {node} does not answer") from None
        if found.wrong:
            raise contract.Unreachable(f"node {node}: {found.wrong}")
        return None if found.data is None else base64.b64decode(found.data)

    def next_data(self, job: int, index: int, stream: str, offset: int, node: str = "") -> int:
        found = self.read_output(job, index, stream, offset, 0, node)
        return int(found) if found else offset  # an older supervisor knows of no holes

    def ask_stream(self, task: reports.Task, do: str, **what: Any) -> Future[Any]:
        with self._lock:
            name = self._on.get(task, "")
        return self._questions.ask(partial(self._send, name), name, do, task=task, **what)

    def go_away(self) -> None:
        """Let tasks run on for AWAY seconds. Called before `close` by a scheduler that stops in good order."""
        self._promise(AWAY)
        for name in filter(self._is_elsewhere, self.names()):
            self._send(name, message("lease", lost_after=AWAY, grace=self._policy.grace))

    def close(self, leave: bool = False) -> None:
        if not self._journal:  # nobody was served
            self._listener.close()
            return
        if leave:
            for name in self.names():
                self._send(name, message("leave"))
        self._connections.close()

    def join(self, timeout: float) -> None:
        if self._journal:
            self._connections.join(timeout)
        self._collecting.close()

    # -- in the thread of the connections -----------------------------------------------------------------------

    def _hear(self, name: str, lines: list[bytes]) -> None:
        now = time.monotonic()
        messages = reports.read_lines(lines)
        with self._lock:
            member = self._members.get(name)
            if member is None:
                return
            member.heard_at = now
            for each in messages:
                self._take_in(member, each, now)
        if not all(isinstance(each, reports.Quiet) for each in messages):
            self._wake()

    def _take_in(self, member: Member, each: reports.Message, now: float) -> None:
        match each:
            case reports.Heartbeat(number):
                # A node that was reported lost must first send its inventory: only then it is up again.
                member.number = number
                if member.standing is not MemberState.LOST and not member.unfit and not member.moved:
                    self._renew(member, now)
            case reports.Inventory():
                self._take_inventory_in(member, each)
            case reports.Refused(why):
                self._superseded = (
                    f"{self._home}: the supervisor of {member.name} obeys another scheduler ({why}): this one ends, and "
                    "its tasks continue"
                )
            case reports.Paused(tasks):
                member.paused = len(tasks)
            case reports.CardsMeasured():
                member.card_use = each.use()
            case reports.Closed(to):
                member.closed_to = to
                if member.standing is MemberState.UP:
                    self._seen[member.name].nodes += member.seen()
            case reports.OutputPiece(ask, data) if ask % 2:  # of a call's result
                self._collecting.receive(member.name, ask, None if data is None else base64.b64decode(data))
            case reports.OutputPiece() | reports.StreamAnswer():
                self._questions.answer(member.name, each)
            case reports.PieceRequest():
                self._collecting.answer(member.name, each)
            case reports.Fenced():
                member.fenced = member.gone_at is not None
            case reports.Started(task) | reports.Ended(task):
                if self._on.setdefault(task, member.name) == member.name:
                    if isinstance(each, reports.Ended) and each.session:
                        self._collecting.begin(member.name, each)
                    else:
                        self._seen[member.name].add(each)
                else:
                    log.warning("node %s reports task %d.%d, which is on another node: ignored", member.name, *task[:2])
            case _:
                self._seen[member.name].add(each)

    def _collected(self, name: str, ended: reports.Ended) -> None:
        """Report the end of a call whose result is here. A lost node reports it again if it comes back."""
        with self._lock:
            member = self._members.get(name)
            if member is None or member.standing is MemberState.LOST:
                return
            self._seen[name].add(ended)
        self._wake()

    def _renew(self, member: Member, now: float) -> None:
        """Echo a heartbeat: the lease lasts from before now."""
        member.renewed_at = now
        self._connections.answer(member.name, b'{"do": "renew", "number": %d}\n' % member.number)

    def _take_inventory_in(self, member: Member, inventory: reports.Inventory) -> None:
        before, member.unfit = member.unfit, inventory.cannot_talk()
        if member.unfit:
            if member.unfit != before:
                log.warning("node %s is not used: %s: install fairlead %s there", member.name, member.unfit, fairlead.__version__)
            member.version = inventory.about.version
            self._connections.disconnect(member.name)
            return
        if self._has_moved(member, inventory):
            return
        member.limits, member.promised, member.closed_to, member.older = inventory.limits, 0.0, {}, inventory.older()
        self._sessions[member.name] |= set(inventory.sessions)
        self._hear_about(member, inventory.about)
        for job, index, number in inventory.tasks:
            self._on.setdefault((job, index, number), member.name)
        self._connections.accept(member.name)
        member.outdated = bool(member.older) and (member.here or inventory.about.keeper >= PROTOCOL)
        if member.outdated and not inventory.tasks:  # one of this fairlead takes its place
            self._connections.send(member.name, message("leave"))
        if asked := self._questions.unanswered(member.name):  # over the last connection
            self._connections.send(member.name, asked)
        if self.gpus.get(member.name):
            self._connections.send(member.name, message("watch"))
        seen = self._seen[member.name]
        seen.add(inventory)
        if member.gone_at is not None:
            self._connections.send(member.name, message("fence"))
        elif member.node is not None:
            if member.standing is MemberState.LOST:
                self._renew(member, time.monotonic())
            member.standing, member.believed = MemberState.UP, True
            seen.nodes = member.seen()

    def _has_moved(self, member: Member, inventory: reports.Inventory) -> bool:
        """Return whether another supervisor speaks for a node whose tasks may run under the last one, until its lease is over.

        Where that one has not been heard yet, another is who joined since and knows no task.
        """
        before, was, place = member.moved, member.place, inventory.about.place
        if member.standing is MemberState.UNHEARD:
            member.moved = member.rejoined and member.believed and not member.fenced and not inventory.tasks
        else:
            has_tasks = member.standing is MemberState.UP and member.name in self._on.values()
            member.moved = has_tasks and None not in (was, place) and was != place
        if member.moved and not before:
            log.warning("node %s has joined again elsewhere: it is used when what ran at its last place has ended", member.name)
        elif not member.moved:
            member.place, member.rejoined = place, False
        return member.moved

    def _hear_about(self, member: Member, about: reports.About) -> None:
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
        now = time.monotonic()
        if now - self._sessions_seen_at > SESSIONS_EVERY:
            self._sessions_seen_at = now
            self._close_sessions()
            for name in [member.name for member in list(self._members.values()) if member.outdated]:
                self._send(name, message("inventory"))
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
        if member.leaving:
            log.info("node %s has left", member.name)
        else:
            log.warning("node %s is lost: its tasks start again elsewhere", member.name)
        member.standing = MemberState.LOST
        self._on = {task: name for task, name in self._on.items() if name != member.name}
        self._seen[member.name].nodes.append(contract.NodeDown(member.name, left=member.leaving == "drain"))
        if member.gone_at is None and member.name in self._hosts:
            fresh = self._members[member.name] = Member(member.name, member.node, member.renewed_at)
            fresh.standing, fresh.version, fresh.clock_ahead = MemberState.LOST, member.version, member.clock_ahead
            self._connections.renew(member.name)
        else:
            self._connections.disconnect(member.name)
            self._hosts.pop(member.name, None)


def _listen(host: str, port: int) -> socket.socket:
    """Listen for nodes. Raises EngineError."""
    where, family = f"{host}:{port}: cannot listen for nodes: ", socket.AF_INET6 if ":" in host else socket.AF_INET
    with failing(where, OSError, after=": name another address", to=contract.EngineError):
        return socket.create_server((host, port), family=family, backlog=1024)

"""The engine of machines that joined by `fairlead node join`, with the scheduler's own machine.

Members are the machines whose certificates the journal has. What one shares, it says itself, each time that it connects.
"""

import logging
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import fairlead
from fairlead.engines.contract import NodeDraining
from fairlead.engines.local.checkpoints import make_checkpoints
from fairlead.engines.local.instructions import gpu_indices, message
from fairlead.engines.local.messages import OLDEST_PROTOCOL, PROTOCOL
from fairlead.engines.local.reports import About
from fairlead.engines.local.supervisor_connections import LocalEndpoint
from fairlead.engines.remote.engine import RemoteEngine, Serving
from fairlead.engines.remote.joining import WHO, Answer, Request
from fairlead.engines.remote.keys import NotAdmitted, check_proof, der, hash_of, normal
from fairlead.engines.remote.members import Member, MemberState
from fairlead.failure import failing
from fairlead.journal import named_node
from fairlead.model.documents import check_node_name
from fairlead.model.specs import Node
from fairlead.scheduler import admission
from fairlead.scheduler.cluster import ONLY_ACCOUNT
from fairlead.scheduler.facts import Fact, NodeAdmitted, NodeForgotten, NodeLeft
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import NONE

log = logging.getLogger("fairlead")

MOST_ACCOUNTS = 500
"""Accounts that a machine which joins looks up, at most."""
MOST_FOLDERS = 100
"""Folders that it looks up, at most."""
ASK_EVERY = 2.0
"""Seconds of silence after which the supervisor of this machine is polled."""
RECORDED_WITHIN = 10.0
"""Seconds for the journal to have a new member."""


class JoinedEngine(RemoteEngine):
    """Tasks on this machine and on those that joined.

    own : this machine
    account : the account that this process, and each node's supervisor, runs as
    checkpoints : as for :class:`fairlead.engines.local.engine.LocalEngine`

    address : where machines join, as HOST:PORT
    ask : submits a question to the scheduler's thread, as :meth:`fairlead.service.loop.Loop.ask`; set before `serve`
    """

    ask: Callable[..., "Future[Any]"]

    def __init__(self, serving: Serving, own: Node, account: str, checkpoints: Path | None = None) -> None:
        super().__init__(serving)
        self._own, self._account, self._folder = own, account, serving.home / "supervisor"
        for each in (self._folder, serving.home / "output"):
            each.mkdir(exist_ok=True, mode=0o700)
        make_checkpoints(self._folder / "checkpoints", checkpoints)
        host = serving.listen[0] if serving.listen[0] not in ("0.0.0.0", "::") else socket.gethostname()  # noqa: S104
        self.address = f"{f'[{host}]' if ':' in host else host}:{self.port}"
        self._host = host
        self.admit(own, own.labels.get("host", host))
        self._members[own.name].here = True

    def serve(self, journal: str, epoch: int) -> None:
        super().serve(journal, epoch)
        greeting = self._greeting + message("inventory")
        self._connections.connect(self._own.name, LocalEndpoint(self._folder), greeting)

    @property
    def own_nodes(self) -> Sequence[Node]:
        """The node of this machine, which the scheduler's configuration describes; others describe themselves."""
        return [self._own]

    def change_nodes(self, changed: Iterable[Node]) -> None:
        """Replace it by another of the same name. For the scheduler's thread, which records the change."""
        for self._own in changed:
            self.admit(self._own, self._own.labels.get("host", self._host))

    def new_token(self, node: str) -> tuple[str, str]:
        """Return a token that a machine may join with, as `node` if that is not empty, and its hash. Raises Refused."""
        if node == self._own.name:
            raise admission.Refused(f"node {node!r} is the scheduler's own machine")
        return self._ring.new_token()

    def _open(self) -> None:
        """No-op: nodes are taken in once the members are known."""

    def know(self, members: Mapping[str, str]) -> None:
        """Take nodes in, the members of the journal: certificates, by the names of their nodes."""
        if members and self._ring.is_new:
            log.warning(
                "%s was missing: the journal's %d nodes know another key: put it back, or let them join again, by tokens of "
                "`fairlead node token --name NODE`", self._home / "keys/scheduler.pem", len(members),
            )  # fmt: skip
        for node, certificate in members.items():
            self._ring.admit(node, certificate)
        super()._open()

    def recorded(self, facts: Sequence[Fact]) -> None:
        """Let those connect whom the journal has as members now, and no others."""
        for fact in facts:
            if isinstance(fact, NodeAdmitted):
                if fact.token:
                    self._note_rejoined(fact.node)
                self._ring.admit(fact.node, fact.certificate)
            elif isinstance(fact, NodeLeft | NodeForgotten):
                self._ring.remove(fact.node)

    def _note_rejoined(self, name: str) -> None:
        with self._lock:
            if name in self._members:
                self._members[name].rejoined = True

    # -- in the thread of the connections ---------------------------------------------------------------------------

    def _is_elsewhere(self, node: str) -> bool:
        return node != self._own.name

    def _name_of(self, certificate: bytes) -> str:
        name = self._ring.name_of(certificate)
        if name:
            with self._lock:
                self._members.setdefault(name, Member(name, None, time.monotonic()))
        return name

    def _hear_about(self, member: Member, about: About) -> None:
        super()._hear_about(member, about)
        if member.here or about.capacity is None:
            return
        only = {ONLY_ACCOUNT: about.only} if about.only else {}
        member.node = Node(member.name, about.capacity, {"host": about.host, **about.labels, **only})
        self._hosts[member.name] = about.labels.get("host", about.host)
        self.gpus |= gpu_indices([member.node])
        if not about.leaving and member.gone_at is not None and member.standing is MemberState.LOST:
            member.gone_at, member.fenced, member.draining = None, False, False
        if about.leaving == "now" and member.gone_at is None:
            member.gone_at = time.monotonic()
            self._seen[member.name].nodes.append(NodeDraining(member.name))
        member.leaving = about.leaving
        member.draining = member.draining or about.leaving == "drain"

    def _look(self) -> None:
        """As of the remote engine; and let nodes go that leave and have no tasks."""
        now, own = time.monotonic(), self._members[self._own.name]
        own.renewed_at = max(own.renewed_at, own.heard_at)
        if now - own.heard_at > ASK_EVERY:
            self._send(own.name, message("answer"))
        for name, member in list(self._members.items()):
            if member.leaving == "drain" and member.gone_at is None and name not in self._on.values():
                self.part(name)
        super()._look()

    def _lose(self, member: Member) -> None:
        if member.leaving:
            self._connections.answer(member.name, message("leave"))
            self._connections.disconnect(member.name, at_once=False)
        super()._lose(member)

    def _hear_stranger(self, request: bytes) -> bytes:
        if request == WHO:
            return self._ring.certificate.encode()
        try:
            answer = self._admit(msgspec.json.decode(request, type=Request))
        except msgspec.DecodeError:
            answer = Answer(refused=f"the request cannot be read: install fairlead {fairlead.__version__} there")
        except ValueError as error:
            answer = Answer(refused=str(error))
        except (RuntimeError, TimeoutError) as error:  # it may be recorded later, which the same key finds out
            log.warning("a node that joins or rotates its key waits: %s", error or "the scheduler is busy")
            why = "the scheduler cannot record it now: see its log. The token is still valid: run the command again"
            answer = Answer(refused=why)
        return msgspec.json.encode(answer) + b"\n"

    def _admit(self, asked: Request) -> Answer:
        """Admit a machine. Raises NotAdmitted, or as `ask`."""
        if asked.protocol < OLDEST_PROTOCOL or asked.oldest > PROTOCOL:
            why = f"fairlead {asked.version} cannot talk to the scheduler's {fairlead.__version__}: install that there"
            raise NotAdmitted(why)
        only = asked.account if self._as_people and asked.uid else ""
        if asked.account != self._account and not only:
            raise NotAdmitted(
                f"all tasks run as {self._account}: run `fairlead node join` as {self._account} there, not as {asked.account}"
            )
        fresh, before = normal(asked.certificate), normal(asked.before) if asked.before else ""
        if before:
            check_proof(before, fresh, asked.proof)
        else:
            self._check_name(asked.name)
        if before == fresh:
            return Answer("", self._ring.name_of(der(fresh)), self._journal, time.time(), self._as_people, only)

        def question(state: State, now: float) -> tuple[list[Fact], tuple[str, dict[str, int], list[str]]]:
            if before:
                facts, name = admission.replace_certificate(state, before, fresh, now)
            else:
                facts, name = admission.admit_node(state, hash_of(asked.secret), asked.name, fresh, now)
            people, folders = _work(state, only)
            return facts, (name, people if self._as_people and not only else {}, folders)

        who = named_node(self._ring.name_of(der(before)) if before else asked.name)
        name, people, folders = self.ask(question, changes=True, by=who).result(RECORDED_WITHIN)
        log.info("node %s %s", name, "has a new key" if before else "has joined")
        return Answer("", name, self._journal, time.time(), self._as_people, only, people, folders)

    def _check_name(self, name: str) -> None:
        with failing("", ValueError, after=": give another with --name", to=NotAdmitted):
            check_node_name(name)
        if name == self._own.name:
            raise NotAdmitted(f"node {name!r} is the scheduler's own machine: give another name with --name")


def _work(state: State, only: str) -> tuple[dict[str, int], list[str]]:
    """Return who has unfinished jobs, with their uids, and these jobs' folders, unless sent; with `only`, those of one person."""
    jobs, n = state.jobs, state.jobs.n
    live = jobs.id[:n][np.isnan(jobs.finished_at[:n]) & (jobs.id[:n] != NONE)].tolist()
    specs = [job for job in map(state.index.specs.__getitem__, live) if not only or job.user == only]
    people = {job.user: job.uid for job in specs if job.uid is not None}
    works = (job.work for job in specs if job.work.cwd and job.work.call is None)
    folders = dict.fromkeys(work.cwd.encode(work.encoding, "replace").decode("latin-1") for work in works)
    return dict(islice(people.items(), MOST_ACCOUNTS)), list(islice(folders, MOST_FOLDERS))

"""The engine of machines that joined by `fairlead node join`, with the scheduler's own machine.

A member is a node with a key. What it shares, it says itself, each time that it connects.
"""

import logging
import socket
import time
from pathlib import Path

import msgspec

import fairlead
from fairlead.engines.contract import NodeDraining
from fairlead.engines.local.checkpoints import make_checkpoints
from fairlead.engines.local.instructions import gpu_indices, message
from fairlead.engines.local.messages import OLDEST_PROTOCOL, PROTOCOL
from fairlead.engines.local.reports import About
from fairlead.engines.local.supervisor_connections import LocalEndpoint
from fairlead.engines.remote.engine import RemoteEngine, Serving
from fairlead.engines.remote.joining import Answer, Request
from fairlead.engines.remote.keys import NotAdmitted
from fairlead.engines.remote.members import Member, MemberState
from fairlead.model.specs import Node
from fairlead.scheduler.cluster import ONLY_ACCOUNT

log = logging.getLogger("fairlead")

AWAY = 7200.0
"""Seconds that tasks may run on while a scheduler is away that has said so, as for an upgrade."""
ASK_EVERY = 2.0
"""Seconds of silence after which the supervisor of this machine is polled."""


class JoinedEngine(RemoteEngine):
    """Tasks on this machine and on those that joined.

    Parameters
    ----------
    own : Node
        This machine.
    account : str
        The account that this process, and each node's supervisor, runs as.
    checkpoints : Path, optional
        As for :class:`fairlead.engines.local.engine.LocalEngine`.

    Attributes
    ----------
    address : str
        Where machines join, as HOST:PORT.
    """

    def __init__(self, serving: Serving, own: Node, account: str, checkpoints: Path | None = None) -> None:
        super().__init__(serving)
        self._own, self._account, self._folder, self._journal = own, account, serving.home / "supervisor", ""
        for each in (self._folder, serving.home / "output"):
            each.mkdir(exist_ok=True, mode=0o700)
        make_checkpoints(self._folder / "checkpoints", checkpoints)
        host = serving.listen[0] if serving.listen[0] not in ("0.0.0.0", "::") else socket.gethostname()  # noqa: S104
        self.address = f"{f'[{host}]' if ':' in host else host}:{self.port}"
        self.admit(own, host)
        self._members[own.name].here = True

    def serve(self, journal: str, epoch: int) -> None:
        super().serve(journal, epoch)
        self._journal = journal
        assert self._connections is not None
        greeting = self._greeting + message("inventory")
        self._connections.connect(self._own.name, LocalEndpoint(self._folder), greeting)

    def new_token(self, node: str, seconds: float) -> str:
        """Make a token that a machine may join with, once; of this name if it is not empty. Raises NotAdmitted."""
        if node == self._own.name:
            raise NotAdmitted(f"node {node!r} is the scheduler's own machine")
        return self._ring.new_token(node, seconds)

    def go_away(self) -> None:
        """Let tasks run on for AWAY seconds. Called before `close` by a scheduler that stops in good order."""
        self._promise(AWAY)
        for name in self.names() - {self._own.name}:
            self._send(name, message("lease", lost_after=AWAY, grace=self._policy.grace))

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
        self._hosts[member.name] = about.host
        self.gpus |= gpu_indices([member.node])
        if not about.leaving and member.gone_at is not None and member.standing is MemberState.LOST:
            member.gone_at, member.fenced, member.draining = None, False, False
        if about.leaving == "now" and member.gone_at is None:
            member.gone_at = time.monotonic()
            self._reports_of(member.name).nodes.append(NodeDraining(member.name))
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
        if member.leaving and self._connections is not None:
            if member.leaving == "drain":
                self._ring.remove(member.name)
            self._connections.answer(member.name, message("leave"))
            self._connections.disconnect(member.name, at_once=False)
        super()._lose(member)

    def _hear_stranger(self, request: bytes) -> bytes:
        try:
            answer = self._admit(msgspec.json.decode(request, type=Request))
        except NotAdmitted as error:
            answer = Answer(refused=str(error))
        except msgspec.DecodeError:
            answer = Answer(refused=f"the request cannot be read: install fairlead {fairlead.__version__} there")
        return msgspec.json.encode(answer) + b"\n"

    def _admit(self, asked: Request) -> Answer:
        """Admit a machine. Raises NotAdmitted."""
        if asked.protocol < OLDEST_PROTOCOL or asked.oldest > PROTOCOL:
            raise NotAdmitted(
                f"fairlead {asked.version} cannot talk to the scheduler's {fairlead.__version__}: install that there"
            )
        only = asked.account if self._as_people and asked.uid else ""
        if asked.account != self._account and not only:
            raise NotAdmitted(
                f"all tasks run as {self._account}: run `fairlead node join` as {self._account} there, not as {asked.account}"
            )
        if not asked.name or len(asked.name) > 253 or not asked.name.isprintable() or "/" in asked.name:
            raise NotAdmitted(f"{asked.name!r} is no name for a node: give another with --name")
        if asked.name == self._own.name:
            raise NotAdmitted(f"node {asked.name!r} is the scheduler's own machine: give another name with --name")
        if asked.before:
            name = self._ring.rotate(asked.before, asked.certificate, asked.proof)
            log.info("node %s has a new key", name)
        else:
            name = self._ring.admit(asked.secret, asked.name, asked.certificate)
            log.info("node %s has joined", name)
        return Answer("", name, self._journal, time.time(), self._as_people, only)

"""A journal in memory, for tests and simulations. What it holds went through the written form, as on disk."""

import uuid
from collections.abc import Sequence

from fairlead.scheduler import snapshot
from fairlead.scheduler.facts import Fact, decode, encode
from fairlead.scheduler.state import State


class MemoryJournal:
    """See :class:`fairlead.journal.Journal`. A snapshot is due every `snapshot_every` facts; 0 means never."""

    def __init__(self, snapshot_every: int = 0) -> None:
        self.id = uuid.uuid4().hex
        self.position = 0
        self.bodies: list[bytes] = []
        self._snapshot: tuple[int, bytes] | None = None
        self._snapshot_every = snapshot_every

    def append(self, facts: Sequence[Fact]) -> None:
        self.bodies += [encode(fact) for fact in facts]
        self.position = len(self.bodies)

    def recover(self) -> State:
        position, state = 0, State()
        if self._snapshot:
            position, state = self._snapshot[0], snapshot.load(self._snapshot[1])
        for body in self.bodies[position:]:
            state.apply(decode(body))
        return state

    def look(self, after: int, most: int) -> list[tuple[int, bytes]]:
        return list(enumerate(self.bodies[after : after + most], after + 1))

    def snapshot_due(self) -> bool:
        since = self.position - (self._snapshot[0] if self._snapshot else 0)
        return bool(self._snapshot_every) and since >= self._snapshot_every

    def save(self, state: State) -> None:
        self._snapshot = self.position, snapshot.dump(state)

    def close(self) -> None:
        pass

"""Facts kept: durable before anything acts on them, read back to recover the state.

A journal is a numbered sequence of facts, the first is number 1, and the newest snapshot of the state that follows from them.
:class:`fairlead.journal.memory.MemoryJournal` keeps it in memory, :class:`fairlead.journal.sql.SqlJournal` in a file.
"""

from collections.abc import Sequence
from typing import Protocol

from fairlead.scheduler.facts import Fact
from fairlead.scheduler.state import State


class JournalError(RuntimeError):
    """A journal that cannot be used; the message says which, why, and what to do."""


class JournalFull(JournalError):
    """There is no room to write. Nothing of the batch was written; the same call works once there is room."""


class Forgotten(LookupError):
    """Facts that are not kept any more; `oldest` is the position of the oldest that is."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"facts before {oldest} are not kept any more: ask for those after {oldest - 1}")
        self.oldest = oldest


class Journal(Protocol):
    """Where facts are kept."""

    id: str
    position: int

    def append(self, facts: Sequence[Fact]) -> None:
        """Write all of the facts durably, or none and raise JournalFull."""

    def recover(self) -> State:
        """The state that follows from what is kept."""

    def look(self, after: int, most: int) -> list[tuple[int, bytes]]:
        """The facts after a position as they were written, with theirs; `most` at most. From any thread.

        Raises Forgotten where the next fact is not kept any more.
        """

    def snapshot_due(self) -> bool:
        """Tell whether so much came since the last snapshot that recovery would be slow."""

    def save(self, state: State) -> None:
        """Keep the state as of the last fact, and drop old facts that it covers."""

    def close(self) -> None:
        """Give the journal back; nothing is lost without it."""

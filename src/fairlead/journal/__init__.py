"""Stored facts: durable before anything acts on them, read back to recover the state.

A :class:`Journal` writes facts into a store of bytes and recovers the state from it: ``Journal(SqlStore(path))``.
"""

from fairlead.journal.journal import History, Journal, Unrecorded, read_history
from fairlead.journal.store import ENGINE, Envelope, Forgotten, JournalError, JournalFull, JournalLost, NewerJournal, named_node

__all__ = [
    "ENGINE", "Envelope", "Forgotten", "History", "Journal", "JournalError", "JournalFull", "JournalLost", "NewerJournal",
    "Unrecorded", "named_node", "read_history",
]  # fmt: skip

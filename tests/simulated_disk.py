"""A disk on which things go wrong, and a store that keeps a journal there: a log, and the head apart, each fsynced in turn.

The log is what a database does, in little: a commit is a frame with a checksum, and a last frame that is not whole counts as
never written. So what the disk lost is lost without a word, and it is the journal's to notice.
"""

import copy
import pickle
import struct
import zlib

from tests.memory_store import MemoryStore

from fairlead.journal import head
from fairlead.journal.head import Head
from fairlead.journal.store import Damaged, JournalFull, TakenOver

SECTOR = 512


class Disk:
    """Files of bytes. What is written may be read at once, and is there after a loss of power once it was synced.

    Attributes
    ----------
    lies_of : str
        The file of which a sync may be a lie; empty for none.
    honest : dict
        The files as they would be if no sync had been one, and nothing had rotted.
    """

    def __init__(self, faults):
        self.faults, self.lies_of, self.full = faults, "", False
        self.durable, self.honest = {}, {}
        self.pending = []  # written and not synced: file, offset, bytes
        self.lied = False

    def write(self, name, data, offset):
        if self.full:
            raise JournalFull("there is no room: make some")
        self.pending.append((name, offset, data))

    def sync(self, name):
        self.honest[name] = self.read(name)
        if name == self.lies_of and self.faults.happens("lies", 0.2):
            self.lied = True
            return
        self.durable[name] = self.read(name)
        self.pending = [each for each in self.pending if each[0] != name]

    def read(self, name):
        content = self.durable.get(name, b"")
        for file, offset, data in self.pending:
            if file == name:
                content = content[:offset].ljust(offset, b"\0") + data + content[offset + len(data) :]
        return content

    def lose_power(self):
        """Of what was not synced each piece is there, or is not, or is torn."""
        rng = self.faults.rng("power")
        pending, self.pending = self.pending, []
        for piece in pending:
            name, offset, data = piece
            end = rng.choice([0, len(data), SECTOR * rng.randrange(len(data) // SECTOR + 1), rng.randrange(len(data) + 1)])
            self.pending = [(name, offset, data[:end])] if end else []
            self.durable[name] = self.read(name)
        self.pending = []

    def rot(self):
        """One bit of a file is another than was written."""
        rng = self.faults.rng("rot")
        name = rng.choice(sorted(self.durable))
        content = bytearray(self.durable[name])
        if content:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            self.durable[name] = bytes(content)

    def image(self):
        """All of it as it is honestly."""
        return copy.copy(self.honest)

    def put_back(self, image):
        """Have it be as it was."""
        self.durable, self.honest, self.pending, self.lied = copy.copy(image), copy.copy(image), [], False


class DiskStore(MemoryStore):
    """A store on such a disk, as one process has it open; see :class:`fairlead.journal.sql.SqlStore`.

    Raises Damaged where the head knows of starts that the log does not, or is missing.
    """

    def __init__(self, disk):
        super().__init__()
        self.name, self.id, self.disk = "disk", "j" * 32, disk
        self.end = 0
        for kind, what in self._frames():
            if kind == "epoch":
                self.epoch = what
            elif kind == "records":
                self._records += what
            else:
                self._snapshots.append(what)
        self.known = head.newest(disk.read("head"))
        if self.known is None and self.end:
            raise Damaged(self.name, "its head is missing")
        if self.known and self.known[1].epoch > self.epoch:
            raise Damaged(self.name, "starts of its scheduler are missing")

    def _frames(self):
        log = self.disk.read("log")
        while self.end + 8 <= len(log):
            size, checksum = struct.unpack("<II", log[self.end : self.end + 8])
            body = log[self.end + 8 : self.end + 8 + size]
            if len(body) < size or not size or zlib.crc32(body) != checksum:
                break
            self.end += 8 + size
            yield pickle.loads(body)
        self.length = len(log)

    def _commit(self, kind, what):
        if len(self.disk.read("log")) != self.length:
            raise TakenOver(self.name)
        body = pickle.dumps((kind, what))
        frame = struct.pack("<II", len(body), zlib.crc32(body)) + body
        self.disk.write("log", frame, self.end)
        self.disk.sync("log")
        self.end += len(frame)
        self.length = len(self.disk.read("log"))

    def head(self):
        return (self.known[1].sequence, self.known[1].checksum) if self.known else None

    def _write_head(self, sequence, checksum):
        count = self.known[0] + 1 if self.known else 1
        self.known = count, Head(self.id, "", 0, self.epoch, sequence, checksum)
        content, place = head.packed(self.known[1], count)
        self.disk.write("head", content, place)
        self.disk.sync("head")

    def begin(self, sequence, checksum):
        self._commit("epoch", self.epoch + 1)
        self.epoch += 1
        self._write_head(sequence, checksum)

    def append(self, records):
        self._commit("records", records)
        super().append(records)
        if records:
            self._write_head(records[-1].envelope.sequence, records[-1].envelope.checksum)

    def save(self, snapshot, keep):
        parts = []
        for part in snapshot.parts:
            parts.append(part)
            yield
        snapshot = snapshot._replace(parts=parts)
        self._commit("snapshot", snapshot)
        yield from super().save(snapshot, keep)

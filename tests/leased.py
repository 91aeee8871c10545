"""A program that leases workers, for tests without a client: it makes one call on each."""

import socket
import uuid

from fairlead.calls import wire
from fairlead.calls.direct import DirectWorker


class Program:
    """Listens as a client does. `setup` is what its session says of it."""

    def __init__(self):
        self.setup = {"address": f"test-{uuid.uuid4().hex}", "secret": uuid.uuid4().hex, "relay": "nowhere"}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(f"\0{self.setup['address']}")
        self._listener.listen(8)
        self._listener.settimeout(60)
        self._workers = {}

    def call(self, lease, function, *arguments):
        """Return what the worker of a lease answers to a call, and end the lease; raise if it cannot take calls."""
        self.send(lease, function, *arguments)
        return self.answer(lease)

    def send(self, lease, function, *arguments):
        while lease not in self._workers:
            line, _ = self._listener.accept()
            number = wire.receive(line).number
            self._workers[number] = DirectWorker(line)
        self._workers[lease].send(1, wire.CALL, wire.pack((function, arguments, {})))

    def answer(self, lease):
        worker = self._workers.pop(lease)
        worker.line.settimeout(60)
        message = wire.receive(worker.line)
        worker.finish()
        worker.close()
        if message.kind == wire.RAISED:
            failure = message.value()  # of a call with where its output is
            raise wire.pickle.loads(failure[0][0] if message.number else failure[0])
        return message.value()[0]

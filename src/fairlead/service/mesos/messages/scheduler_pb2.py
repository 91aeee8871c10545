"""The messages of scheduler.proto; their types are in scheduler_pb2.pyi."""

from fairlead.service.mesos.messages import declare

declare(globals())

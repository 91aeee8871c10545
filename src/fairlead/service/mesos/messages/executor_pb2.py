"""The messages of executor.proto; their types are in executor_pb2.pyi."""

from fairlead.service.mesos.messages import declare

declare(globals())

"""The messages of mesos.proto; their types are in mesos_pb2.pyi."""

from fairlead.service.mesos.messages import declare

declare(globals())

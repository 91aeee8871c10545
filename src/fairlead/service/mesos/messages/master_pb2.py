"""The messages of master.proto; their types are in master_pb2.pyi."""

from fairlead.service.mesos.messages import declare

declare(globals())

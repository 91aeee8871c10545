"""The messages of quota.proto; their types are in quota_pb2.pyi."""

from fairlead.service.mesos.messages import declare

declare(globals())

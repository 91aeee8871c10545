"""Mesos' v1 messages, as far as they are read or written here: ``make messages`` makes their descriptors and types."""

from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import Default
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass

POOL = Default()
for file in FileDescriptorSet.FromString(Path(__file__).with_name("descriptors.binpb").read_bytes()).file:
    POOL.AddSerializedFile(file.SerializeToString())


def declare(module: dict[str, Any]) -> None:
    """Fill a module with the messages and enumerations of the ``.proto`` file of its name."""
    file = POOL.FindFileByName(module["__name__"].replace(".", "/").replace("_pb2", ".proto"))
    module |= {name: GetMessageClass(message) for name, message in file.message_types_by_name.items()}
    for name, enum in file.enum_types_by_name.items():
        module |= {name: EnumTypeWrapper(enum), **{value.name: value.number for value in enum.values}}

from fairlead.service.mesos.messages import mesos_pb2 as _mesos_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import Optional as _Optional, Union as _Union

class QuotaInfo(_message.Message):
    role: str
    principal: str
    guarantee: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.Resource]
    def __init__(self, role: _Optional[str] = ..., principal: _Optional[str] = ..., guarantee: _Optional[_Iterable[_Union[_mesos_pb2.Resource, _Mapping]]] = ...) -> None: ...

class QuotaConfig(_message.Message):
    role: str
    guarantees: _containers.MessageMap[str, _mesos_pb2.Value.Scalar]
    limits: _containers.MessageMap[str, _mesos_pb2.Value.Scalar]
    def __init__(self, role: _Optional[str] = ..., guarantees: _Optional[_Mapping[str, _mesos_pb2.Value.Scalar]] = ..., limits: _Optional[_Mapping[str, _mesos_pb2.Value.Scalar]] = ...) -> None: ...

class QuotaStatus(_message.Message):
    infos: _containers.RepeatedCompositeFieldContainer[QuotaInfo]
    configs: _containers.RepeatedCompositeFieldContainer[QuotaConfig]
    def __init__(self, infos: _Optional[_Iterable[_Union[QuotaInfo, _Mapping]]] = ..., configs: _Optional[_Iterable[_Union[QuotaConfig, _Mapping]]] = ...) -> None: ...

from fairlead.service.mesos.messages import mesos_pb2 as _mesos_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import Optional as _Optional, Union as _Union

class Event(_message.Message):
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
    UNKNOWN: Event.Type
    SUBSCRIBED: Event.Type
    LAUNCH: Event.Type
    LAUNCH_GROUP: Event.Type
    KILL: Event.Type
    ACKNOWLEDGED: Event.Type
    MESSAGE: Event.Type
    SHUTDOWN: Event.Type
    HEARTBEAT: Event.Type
    class Subscribed(_message.Message):
        executor_info: _mesos_pb2.ExecutorInfo
        framework_info: _mesos_pb2.FrameworkInfo
        agent_info: _mesos_pb2.AgentInfo
        def __init__(self, executor_info: _Optional[_Union[_mesos_pb2.ExecutorInfo, _Mapping]] = ..., framework_info: _Optional[_Union[_mesos_pb2.FrameworkInfo, _Mapping]] = ..., agent_info: _Optional[_Union[_mesos_pb2.AgentInfo, _Mapping]] = ...) -> None: ...
    class Launch(_message.Message):
        task: _mesos_pb2.TaskInfo
        def __init__(self, task: _Optional[_Union[_mesos_pb2.TaskInfo, _Mapping]] = ...) -> None: ...
    class LaunchGroup(_message.Message):
        task_group: _mesos_pb2.TaskGroupInfo
        def __init__(self, task_group: _Optional[_Union[_mesos_pb2.TaskGroupInfo, _Mapping]] = ...) -> None: ...
    class Kill(_message.Message):
        task_id: _mesos_pb2.TaskID
        kill_policy: _mesos_pb2.KillPolicy
        def __init__(self, task_id: _Optional[_Union[_mesos_pb2.TaskID, _Mapping]] = ..., kill_policy: _Optional[_Union[_mesos_pb2.KillPolicy, _Mapping]] = ...) -> None: ...
    class Acknowledged(_message.Message):
        task_id: _mesos_pb2.TaskID
        uuid: bytes
        def __init__(self, task_id: _Optional[_Union[_mesos_pb2.TaskID, _Mapping]] = ..., uuid: _Optional[bytes] = ...) -> None: ...
    class Message(_message.Message):
        data: bytes
        def __init__(self, data: _Optional[bytes] = ...) -> None: ...
    type: Event.Type
    subscribed: Event.Subscribed
    acknowledged: Event.Acknowledged
    launch: Event.Launch
    launch_group: Event.LaunchGroup
    kill: Event.Kill
    message: Event.Message
    def __init__(self, type: _Optional[_Union[Event.Type, str]] = ..., subscribed: _Optional[_Union[Event.Subscribed, _Mapping]] = ..., acknowledged: _Optional[_Union[Event.Acknowledged, _Mapping]] = ..., launch: _Optional[_Union[Event.Launch, _Mapping]] = ..., launch_group: _Optional[_Union[Event.LaunchGroup, _Mapping]] = ..., kill: _Optional[_Union[Event.Kill, _Mapping]] = ..., message: _Optional[_Union[Event.Message, _Mapping]] = ...) -> None: ...

class Call(_message.Message):
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
    UNKNOWN: Call.Type
    SUBSCRIBE: Call.Type
    UPDATE: Call.Type
    MESSAGE: Call.Type
    HEARTBEAT: Call.Type
    class Subscribe(_message.Message):
        unacknowledged_tasks: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.TaskInfo]
        unacknowledged_updates: _containers.RepeatedCompositeFieldContainer[Call.Update]
        def __init__(self, unacknowledged_tasks: _Optional[_Iterable[_Union[_mesos_pb2.TaskInfo, _Mapping]]] = ..., unacknowledged_updates: _Optional[_Iterable[_Union[Call.Update, _Mapping]]] = ...) -> None: ...
    class Update(_message.Message):
        status: _mesos_pb2.TaskStatus
        def __init__(self, status: _Optional[_Union[_mesos_pb2.TaskStatus, _Mapping]] = ...) -> None: ...
    class Message(_message.Message):
        data: bytes
        def __init__(self, data: _Optional[bytes] = ...) -> None: ...
    executor_id: _mesos_pb2.ExecutorID
    framework_id: _mesos_pb2.FrameworkID
    type: Call.Type
    subscribe: Call.Subscribe
    update: Call.Update
    message: Call.Message
    def __init__(self, executor_id: _Optional[_Union[_mesos_pb2.ExecutorID, _Mapping]] = ..., framework_id: _Optional[_Union[_mesos_pb2.FrameworkID, _Mapping]] = ..., type: _Optional[_Union[Call.Type, str]] = ..., subscribe: _Optional[_Union[Call.Subscribe, _Mapping]] = ..., update: _Optional[_Union[Call.Update, _Mapping]] = ..., message: _Optional[_Union[Call.Message, _Mapping]] = ...) -> None: ...

from fairlead.service.mesos.messages import mesos_pb2 as _mesos_pb2
from fairlead.service.mesos.messages import quota_pb2 as _quota_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import Optional as _Optional, Union as _Union

class Call(_message.Message):
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
    UNKNOWN: Call.Type
    GET_HEALTH: Call.Type
    GET_FLAGS: Call.Type
    GET_VERSION: Call.Type
    GET_METRICS: Call.Type
    GET_LOGGING_LEVEL: Call.Type
    SET_LOGGING_LEVEL: Call.Type
    LIST_FILES: Call.Type
    READ_FILE: Call.Type
    GET_STATE: Call.Type
    GET_AGENTS: Call.Type
    GET_FRAMEWORKS: Call.Type
    GET_EXECUTORS: Call.Type
    GET_OPERATIONS: Call.Type
    GET_TASKS: Call.Type
    GET_ROLES: Call.Type
    GET_WEIGHTS: Call.Type
    UPDATE_WEIGHTS: Call.Type
    GET_MASTER: Call.Type
    SUBSCRIBE: Call.Type
    RESERVE_RESOURCES: Call.Type
    UNRESERVE_RESOURCES: Call.Type
    CREATE_VOLUMES: Call.Type
    DESTROY_VOLUMES: Call.Type
    GROW_VOLUME: Call.Type
    SHRINK_VOLUME: Call.Type
    GET_MAINTENANCE_STATUS: Call.Type
    GET_MAINTENANCE_SCHEDULE: Call.Type
    UPDATE_MAINTENANCE_SCHEDULE: Call.Type
    START_MAINTENANCE: Call.Type
    STOP_MAINTENANCE: Call.Type
    DRAIN_AGENT: Call.Type
    DEACTIVATE_AGENT: Call.Type
    REACTIVATE_AGENT: Call.Type
    GET_QUOTA: Call.Type
    UPDATE_QUOTA: Call.Type
    SET_QUOTA: Call.Type
    REMOVE_QUOTA: Call.Type
    TEARDOWN: Call.Type
    MARK_AGENT_GONE: Call.Type
    class GetMetrics(_message.Message):
        timeout: _mesos_pb2.DurationInfo
        def __init__(self, timeout: _Optional[_Union[_mesos_pb2.DurationInfo, _Mapping]] = ...) -> None: ...
    class UpdateWeights(_message.Message):
        weight_infos: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.WeightInfo]
        def __init__(self, weight_infos: _Optional[_Iterable[_Union[_mesos_pb2.WeightInfo, _Mapping]]] = ...) -> None: ...
    class UpdateQuota(_message.Message):
        force: bool
        quota_configs: _containers.RepeatedCompositeFieldContainer[_quota_pb2.QuotaConfig]
        def __init__(self, force: bool = ..., quota_configs: _Optional[_Iterable[_Union[_quota_pb2.QuotaConfig, _Mapping]]] = ...) -> None: ...
    class Teardown(_message.Message):
        framework_id: _mesos_pb2.FrameworkID
        def __init__(self, framework_id: _Optional[_Union[_mesos_pb2.FrameworkID, _Mapping]] = ...) -> None: ...
    class ReserveResources(_message.Message):
        agent_id: _mesos_pb2.AgentID
        resources: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.Resource]
        def __init__(self, agent_id: _Optional[_Union[_mesos_pb2.AgentID, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[_mesos_pb2.Resource, _Mapping]]] = ...) -> None: ...
    class UnreserveResources(_message.Message):
        agent_id: _mesos_pb2.AgentID
        resources: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.Resource]
        def __init__(self, agent_id: _Optional[_Union[_mesos_pb2.AgentID, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[_mesos_pb2.Resource, _Mapping]]] = ...) -> None: ...
    class CreateVolumes(_message.Message):
        agent_id: _mesos_pb2.AgentID
        volumes: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.Resource]
        def __init__(self, agent_id: _Optional[_Union[_mesos_pb2.AgentID, _Mapping]] = ..., volumes: _Optional[_Iterable[_Union[_mesos_pb2.Resource, _Mapping]]] = ...) -> None: ...
    class DestroyVolumes(_message.Message):
        agent_id: _mesos_pb2.AgentID
        volumes: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.Resource]
        def __init__(self, agent_id: _Optional[_Union[_mesos_pb2.AgentID, _Mapping]] = ..., volumes: _Optional[_Iterable[_Union[_mesos_pb2.Resource, _Mapping]]] = ...) -> None: ...
    type: Call.Type
    get_metrics: Call.GetMetrics
    update_weights: Call.UpdateWeights
    reserve_resources: Call.ReserveResources
    unreserve_resources: Call.UnreserveResources
    create_volumes: Call.CreateVolumes
    destroy_volumes: Call.DestroyVolumes
    update_quota: Call.UpdateQuota
    teardown: Call.Teardown
    def __init__(self, type: _Optional[_Union[Call.Type, str]] = ..., get_metrics: _Optional[_Union[Call.GetMetrics, _Mapping]] = ..., update_weights: _Optional[_Union[Call.UpdateWeights, _Mapping]] = ..., reserve_resources: _Optional[_Union[Call.ReserveResources, _Mapping]] = ..., unreserve_resources: _Optional[_Union[Call.UnreserveResources, _Mapping]] = ..., create_volumes: _Optional[_Union[Call.CreateVolumes, _Mapping]] = ..., destroy_volumes: _Optional[_Union[Call.DestroyVolumes, _Mapping]] = ..., update_quota: _Optional[_Union[Call.UpdateQuota, _Mapping]] = ..., teardown: _Optional[_Union[Call.Teardown, _Mapping]] = ...) -> None: ...

class Response(_message.Message):
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
    UNKNOWN: Response.Type
    GET_HEALTH: Response.Type
    GET_FLAGS: Response.Type
    GET_VERSION: Response.Type
    GET_METRICS: Response.Type
    GET_STATE: Response.Type
    GET_AGENTS: Response.Type
    GET_FRAMEWORKS: Response.Type
    GET_EXECUTORS: Response.Type
    GET_TASKS: Response.Type
    GET_ROLES: Response.Type
    GET_WEIGHTS: Response.Type
    GET_MASTER: Response.Type
    GET_QUOTA: Response.Type
    class GetHealth(_message.Message):
        healthy: bool
        def __init__(self, healthy: bool = ...) -> None: ...
    class GetFlags(_message.Message):
        flags: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.Flag]
        def __init__(self, flags: _Optional[_Iterable[_Union[_mesos_pb2.Flag, _Mapping]]] = ...) -> None: ...
    class GetVersion(_message.Message):
        version_info: _mesos_pb2.VersionInfo
        def __init__(self, version_info: _Optional[_Union[_mesos_pb2.VersionInfo, _Mapping]] = ...) -> None: ...
    class GetMetrics(_message.Message):
        metrics: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.Metric]
        def __init__(self, metrics: _Optional[_Iterable[_Union[_mesos_pb2.Metric, _Mapping]]] = ...) -> None: ...
    class GetState(_message.Message):
        get_tasks: Response.GetTasks
        get_executors: Response.GetExecutors
        get_frameworks: Response.GetFrameworks
        get_agents: Response.GetAgents
        def __init__(self, get_tasks: _Optional[_Union[Response.GetTasks, _Mapping]] = ..., get_executors: _Optional[_Union[Response.GetExecutors, _Mapping]] = ..., get_frameworks: _Optional[_Union[Response.GetFrameworks, _Mapping]] = ..., get_agents: _Optional[_Union[Response.GetAgents, _Mapping]] = ...) -> None: ...
    class GetAgents(_message.Message):
        class Agent(_message.Message):
            agent_info: _mesos_pb2.AgentInfo
            active: bool
            version: str
            registered_time: _mesos_pb2.TimeInfo
            total_resources: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.Resource]
            allocated_resources: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.Resource]
            offered_resources: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.Resource]
            def __init__(self, agent_info: _Optional[_Union[_mesos_pb2.AgentInfo, _Mapping]] = ..., active: bool = ..., version: _Optional[str] = ..., registered_time: _Optional[_Union[_mesos_pb2.TimeInfo, _Mapping]] = ..., total_resources: _Optional[_Iterable[_Union[_mesos_pb2.Resource, _Mapping]]] = ..., allocated_resources: _Optional[_Iterable[_Union[_mesos_pb2.Resource, _Mapping]]] = ..., offered_resources: _Optional[_Iterable[_Union[_mesos_pb2.Resource, _Mapping]]] = ...) -> None: ...
        agents: _containers.RepeatedCompositeFieldContainer[Response.GetAgents.Agent]
        def __init__(self, agents: _Optional[_Iterable[_Union[Response.GetAgents.Agent, _Mapping]]] = ...) -> None: ...
    class GetFrameworks(_message.Message):
        class Framework(_message.Message):
            framework_info: _mesos_pb2.FrameworkInfo
            active: bool
            connected: bool
            recovered: bool
            registered_time: _mesos_pb2.TimeInfo
            unregistered_time: _mesos_pb2.TimeInfo
            offers: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.Offer]
            allocated_resources: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.Resource]
            offered_resources: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.Resource]
            def __init__(self, framework_info: _Optional[_Union[_mesos_pb2.FrameworkInfo, _Mapping]] = ..., active: bool = ..., connected: bool = ..., recovered: bool = ..., registered_time: _Optional[_Union[_mesos_pb2.TimeInfo, _Mapping]] = ..., unregistered_time: _Optional[_Union[_mesos_pb2.TimeInfo, _Mapping]] = ..., offers: _Optional[_Iterable[_Union[_mesos_pb2.Offer, _Mapping]]] = ..., allocated_resources: _Optional[_Iterable[_Union[_mesos_pb2.Resource, _Mapping]]] = ..., offered_resources: _Optional[_Iterable[_Union[_mesos_pb2.Resource, _Mapping]]] = ...) -> None: ...
        frameworks: _containers.RepeatedCompositeFieldContainer[Response.GetFrameworks.Framework]
        completed_frameworks: _containers.RepeatedCompositeFieldContainer[Response.GetFrameworks.Framework]
        def __init__(self, frameworks: _Optional[_Iterable[_Union[Response.GetFrameworks.Framework, _Mapping]]] = ..., completed_frameworks: _Optional[_Iterable[_Union[Response.GetFrameworks.Framework, _Mapping]]] = ...) -> None: ...
    class GetExecutors(_message.Message):
        def __init__(self) -> None: ...
    class GetTasks(_message.Message):
        tasks: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.Task]
        completed_tasks: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.Task]
        def __init__(self, tasks: _Optional[_Iterable[_Union[_mesos_pb2.Task, _Mapping]]] = ..., completed_tasks: _Optional[_Iterable[_Union[_mesos_pb2.Task, _Mapping]]] = ...) -> None: ...
    class GetRoles(_message.Message):
        roles: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.Role]
        def __init__(self, roles: _Optional[_Iterable[_Union[_mesos_pb2.Role, _Mapping]]] = ...) -> None: ...
    class GetWeights(_message.Message):
        weight_infos: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.WeightInfo]
        def __init__(self, weight_infos: _Optional[_Iterable[_Union[_mesos_pb2.WeightInfo, _Mapping]]] = ...) -> None: ...
    class GetMaster(_message.Message):
        master_info: _mesos_pb2.MasterInfo
        start_time: float
        elected_time: float
        def __init__(self, master_info: _Optional[_Union[_mesos_pb2.MasterInfo, _Mapping]] = ..., start_time: _Optional[float] = ..., elected_time: _Optional[float] = ...) -> None: ...
    class GetQuota(_message.Message):
        status: _quota_pb2.QuotaStatus
        def __init__(self, status: _Optional[_Union[_quota_pb2.QuotaStatus, _Mapping]] = ...) -> None: ...
    type: Response.Type
    get_health: Response.GetHealth
    get_flags: Response.GetFlags
    get_version: Response.GetVersion
    get_metrics: Response.GetMetrics
    get_state: Response.GetState
    get_agents: Response.GetAgents
    get_frameworks: Response.GetFrameworks
    get_executors: Response.GetExecutors
    get_tasks: Response.GetTasks
    get_roles: Response.GetRoles
    get_weights: Response.GetWeights
    get_master: Response.GetMaster
    get_quota: Response.GetQuota
    def __init__(self, type: _Optional[_Union[Response.Type, str]] = ..., get_health: _Optional[_Union[Response.GetHealth, _Mapping]] = ..., get_flags: _Optional[_Union[Response.GetFlags, _Mapping]] = ..., get_version: _Optional[_Union[Response.GetVersion, _Mapping]] = ..., get_metrics: _Optional[_Union[Response.GetMetrics, _Mapping]] = ..., get_state: _Optional[_Union[Response.GetState, _Mapping]] = ..., get_agents: _Optional[_Union[Response.GetAgents, _Mapping]] = ..., get_frameworks: _Optional[_Union[Response.GetFrameworks, _Mapping]] = ..., get_executors: _Optional[_Union[Response.GetExecutors, _Mapping]] = ..., get_tasks: _Optional[_Union[Response.GetTasks, _Mapping]] = ..., get_roles: _Optional[_Union[Response.GetRoles, _Mapping]] = ..., get_weights: _Optional[_Union[Response.GetWeights, _Mapping]] = ..., get_master: _Optional[_Union[Response.GetMaster, _Mapping]] = ..., get_quota: _Optional[_Union[Response.GetQuota, _Mapping]] = ...) -> None: ...

from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import Optional as _Optional, Union as _Union

class TaskState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...

class OperationState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
TASK_STAGING: TaskState
TASK_STARTING: TaskState
TASK_RUNNING: TaskState
TASK_KILLING: TaskState
TASK_FINISHED: TaskState
TASK_FAILED: TaskState
TASK_KILLED: TaskState
TASK_ERROR: TaskState
TASK_LOST: TaskState
TASK_DROPPED: TaskState
TASK_UNREACHABLE: TaskState
TASK_GONE: TaskState
TASK_GONE_BY_OPERATOR: TaskState
TASK_UNKNOWN: TaskState
OPERATION_FINISHED: OperationState
OPERATION_ERROR: OperationState
OPERATION_UNKNOWN: OperationState

class FrameworkID(_message.Message):
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class OfferID(_message.Message):
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class AgentID(_message.Message):
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class TaskID(_message.Message):
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class ExecutorID(_message.Message):
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class ContainerID(_message.Message):
    value: str
    parent: ContainerID
    def __init__(self, value: _Optional[str] = ..., parent: _Optional[_Union[ContainerID, _Mapping]] = ...) -> None: ...

class ResourceProviderID(_message.Message):
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class OperationID(_message.Message):
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class TimeInfo(_message.Message):
    nanoseconds: int
    def __init__(self, nanoseconds: _Optional[int] = ...) -> None: ...

class DurationInfo(_message.Message):
    nanoseconds: int
    def __init__(self, nanoseconds: _Optional[int] = ...) -> None: ...

class Address(_message.Message):
    hostname: str
    ip: str
    port: int
    def __init__(self, hostname: _Optional[str] = ..., ip: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class FrameworkInfo(_message.Message):
    class Capability(_message.Message):
        class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
        UNKNOWN: FrameworkInfo.Capability.Type
        REVOCABLE_RESOURCES: FrameworkInfo.Capability.Type
        TASK_KILLING_STATE: FrameworkInfo.Capability.Type
        GPU_RESOURCES: FrameworkInfo.Capability.Type
        SHARED_RESOURCES: FrameworkInfo.Capability.Type
        PARTITION_AWARE: FrameworkInfo.Capability.Type
        MULTI_ROLE: FrameworkInfo.Capability.Type
        RESERVATION_REFINEMENT: FrameworkInfo.Capability.Type
        REGION_AWARE: FrameworkInfo.Capability.Type
        type: FrameworkInfo.Capability.Type
        def __init__(self, type: _Optional[_Union[FrameworkInfo.Capability.Type, str]] = ...) -> None: ...
    user: str
    name: str
    id: FrameworkID
    failover_timeout: float
    checkpoint: bool
    role: str
    roles: _containers.RepeatedScalarFieldContainer[str]
    hostname: str
    principal: str
    webui_url: str
    capabilities: _containers.RepeatedCompositeFieldContainer[FrameworkInfo.Capability]
    labels: Labels
    offer_filters: _containers.MessageMap[str, OfferFilters]
    def __init__(self, user: _Optional[str] = ..., name: _Optional[str] = ..., id: _Optional[_Union[FrameworkID, _Mapping]] = ..., failover_timeout: _Optional[float] = ..., checkpoint: bool = ..., role: _Optional[str] = ..., roles: _Optional[_Iterable[str]] = ..., hostname: _Optional[str] = ..., principal: _Optional[str] = ..., webui_url: _Optional[str] = ..., capabilities: _Optional[_Iterable[_Union[FrameworkInfo.Capability, _Mapping]]] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ..., offer_filters: _Optional[_Mapping[str, OfferFilters]] = ...) -> None: ...

class CheckInfo(_message.Message):
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
    UNKNOWN: CheckInfo.Type
    COMMAND: CheckInfo.Type
    HTTP: CheckInfo.Type
    TCP: CheckInfo.Type
    class Command(_message.Message):
        command: CommandInfo
        def __init__(self, command: _Optional[_Union[CommandInfo, _Mapping]] = ...) -> None: ...
    class Http(_message.Message):
        port: int
        path: str
        def __init__(self, port: _Optional[int] = ..., path: _Optional[str] = ...) -> None: ...
    class Tcp(_message.Message):
        port: int
        def __init__(self, port: _Optional[int] = ...) -> None: ...
    type: CheckInfo.Type
    command: CheckInfo.Command
    http: CheckInfo.Http
    tcp: CheckInfo.Tcp
    delay_seconds: float
    interval_seconds: float
    timeout_seconds: float
    def __init__(self, type: _Optional[_Union[CheckInfo.Type, str]] = ..., command: _Optional[_Union[CheckInfo.Command, _Mapping]] = ..., http: _Optional[_Union[CheckInfo.Http, _Mapping]] = ..., tcp: _Optional[_Union[CheckInfo.Tcp, _Mapping]] = ..., delay_seconds: _Optional[float] = ..., interval_seconds: _Optional[float] = ..., timeout_seconds: _Optional[float] = ...) -> None: ...

class HealthCheck(_message.Message):
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
    UNKNOWN: HealthCheck.Type
    COMMAND: HealthCheck.Type
    HTTP: HealthCheck.Type
    TCP: HealthCheck.Type
    class HTTPCheckInfo(_message.Message):
        scheme: str
        port: int
        path: str
        statuses: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, scheme: _Optional[str] = ..., port: _Optional[int] = ..., path: _Optional[str] = ..., statuses: _Optional[_Iterable[int]] = ...) -> None: ...
    class TCPCheckInfo(_message.Message):
        port: int
        def __init__(self, port: _Optional[int] = ...) -> None: ...
    delay_seconds: float
    interval_seconds: float
    timeout_seconds: float
    consecutive_failures: int
    grace_period_seconds: float
    type: HealthCheck.Type
    command: CommandInfo
    http: HealthCheck.HTTPCheckInfo
    tcp: HealthCheck.TCPCheckInfo
    def __init__(self, delay_seconds: _Optional[float] = ..., interval_seconds: _Optional[float] = ..., timeout_seconds: _Optional[float] = ..., consecutive_failures: _Optional[int] = ..., grace_period_seconds: _Optional[float] = ..., type: _Optional[_Union[HealthCheck.Type, str]] = ..., command: _Optional[_Union[CommandInfo, _Mapping]] = ..., http: _Optional[_Union[HealthCheck.HTTPCheckInfo, _Mapping]] = ..., tcp: _Optional[_Union[HealthCheck.TCPCheckInfo, _Mapping]] = ...) -> None: ...

class KillPolicy(_message.Message):
    grace_period: DurationInfo
    def __init__(self, grace_period: _Optional[_Union[DurationInfo, _Mapping]] = ...) -> None: ...

class CommandInfo(_message.Message):
    class URI(_message.Message):
        value: str
        executable: bool
        extract: bool
        cache: bool
        output_file: str
        def __init__(self, value: _Optional[str] = ..., executable: bool = ..., extract: bool = ..., cache: bool = ..., output_file: _Optional[str] = ...) -> None: ...
    uris: _containers.RepeatedCompositeFieldContainer[CommandInfo.URI]
    environment: Environment
    shell: bool
    value: str
    arguments: _containers.RepeatedScalarFieldContainer[str]
    user: str
    def __init__(self, uris: _Optional[_Iterable[_Union[CommandInfo.URI, _Mapping]]] = ..., environment: _Optional[_Union[Environment, _Mapping]] = ..., shell: bool = ..., value: _Optional[str] = ..., arguments: _Optional[_Iterable[str]] = ..., user: _Optional[str] = ...) -> None: ...

class ExecutorInfo(_message.Message):
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
    UNKNOWN: ExecutorInfo.Type
    DEFAULT: ExecutorInfo.Type
    CUSTOM: ExecutorInfo.Type
    type: ExecutorInfo.Type
    executor_id: ExecutorID
    framework_id: FrameworkID
    command: CommandInfo
    container: ContainerInfo
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    name: str
    source: str
    data: bytes
    discovery: DiscoveryInfo
    shutdown_grace_period: DurationInfo
    labels: Labels
    def __init__(self, type: _Optional[_Union[ExecutorInfo.Type, str]] = ..., executor_id: _Optional[_Union[ExecutorID, _Mapping]] = ..., framework_id: _Optional[_Union[FrameworkID, _Mapping]] = ..., command: _Optional[_Union[CommandInfo, _Mapping]] = ..., container: _Optional[_Union[ContainerInfo, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ..., name: _Optional[str] = ..., source: _Optional[str] = ..., data: _Optional[bytes] = ..., discovery: _Optional[_Union[DiscoveryInfo, _Mapping]] = ..., shutdown_grace_period: _Optional[_Union[DurationInfo, _Mapping]] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ...) -> None: ...

class MasterInfo(_message.Message):
    id: str
    ip: int
    port: int
    pid: str
    hostname: str
    version: str
    address: Address
    def __init__(self, id: _Optional[str] = ..., ip: _Optional[int] = ..., port: _Optional[int] = ..., pid: _Optional[str] = ..., hostname: _Optional[str] = ..., version: _Optional[str] = ..., address: _Optional[_Union[Address, _Mapping]] = ...) -> None: ...

class AgentInfo(_message.Message):
    hostname: str
    port: int
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    attributes: _containers.RepeatedCompositeFieldContainer[Attribute]
    id: AgentID
    def __init__(self, hostname: _Optional[str] = ..., port: _Optional[int] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ..., attributes: _Optional[_Iterable[_Union[Attribute, _Mapping]]] = ..., id: _Optional[_Union[AgentID, _Mapping]] = ...) -> None: ...

class Value(_message.Message):
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
    SCALAR: Value.Type
    RANGES: Value.Type
    SET: Value.Type
    TEXT: Value.Type
    class Scalar(_message.Message):
        value: float
        def __init__(self, value: _Optional[float] = ...) -> None: ...
    class Range(_message.Message):
        begin: int
        end: int
        def __init__(self, begin: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...
    class Ranges(_message.Message):
        range: _containers.RepeatedCompositeFieldContainer[Value.Range]
        def __init__(self, range: _Optional[_Iterable[_Union[Value.Range, _Mapping]]] = ...) -> None: ...
    class Set(_message.Message):
        item: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, item: _Optional[_Iterable[str]] = ...) -> None: ...
    class Text(_message.Message):
        value: str
        def __init__(self, value: _Optional[str] = ...) -> None: ...
    def __init__(self) -> None: ...

class Attribute(_message.Message):
    name: str
    type: Value.Type
    text: Value.Text
    def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[Value.Type, str]] = ..., text: _Optional[_Union[Value.Text, _Mapping]] = ...) -> None: ...

class Volume(_message.Message):
    class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
    RW: Volume.Mode
    RO: Volume.Mode
    mode: Volume.Mode
    container_path: str
    host_path: str
    def __init__(self, mode: _Optional[_Union[Volume.Mode, str]] = ..., container_path: _Optional[str] = ..., host_path: _Optional[str] = ...) -> None: ...

class Resource(_message.Message):
    class AllocationInfo(_message.Message):
        role: str
        def __init__(self, role: _Optional[str] = ...) -> None: ...
    class ReservationInfo(_message.Message):
        class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
        UNKNOWN: Resource.ReservationInfo.Type
        STATIC: Resource.ReservationInfo.Type
        DYNAMIC: Resource.ReservationInfo.Type
        type: Resource.ReservationInfo.Type
        role: str
        principal: str
        labels: Labels
        def __init__(self, type: _Optional[_Union[Resource.ReservationInfo.Type, str]] = ..., role: _Optional[str] = ..., principal: _Optional[str] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ...) -> None: ...
    class DiskInfo(_message.Message):
        class Persistence(_message.Message):
            id: str
            principal: str
            def __init__(self, id: _Optional[str] = ..., principal: _Optional[str] = ...) -> None: ...
        class Source(_message.Message):
            class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
            UNKNOWN: Resource.DiskInfo.Source.Type
            PATH: Resource.DiskInfo.Source.Type
            MOUNT: Resource.DiskInfo.Source.Type
            BLOCK: Resource.DiskInfo.Source.Type
            RAW: Resource.DiskInfo.Source.Type
            class Path(_message.Message):
                root: str
                def __init__(self, root: _Optional[str] = ...) -> None: ...
            class Mount(_message.Message):
                root: str
                def __init__(self, root: _Optional[str] = ...) -> None: ...
            type: Resource.DiskInfo.Source.Type
            path: Resource.DiskInfo.Source.Path
            mount: Resource.DiskInfo.Source.Mount
            vendor: str
            id: str
            metadata: Labels
            profile: str
            def __init__(self, type: _Optional[_Union[Resource.DiskInfo.Source.Type, str]] = ..., path: _Optional[_Union[Resource.DiskInfo.Source.Path, _Mapping]] = ..., mount: _Optional[_Union[Resource.DiskInfo.Source.Mount, _Mapping]] = ..., vendor: _Optional[str] = ..., id: _Optional[str] = ..., metadata: _Optional[_Union[Labels, _Mapping]] = ..., profile: _Optional[str] = ...) -> None: ...
        persistence: Resource.DiskInfo.Persistence
        volume: Volume
        source: Resource.DiskInfo.Source
        def __init__(self, persistence: _Optional[_Union[Resource.DiskInfo.Persistence, _Mapping]] = ..., volume: _Optional[_Union[Volume, _Mapping]] = ..., source: _Optional[_Union[Resource.DiskInfo.Source, _Mapping]] = ...) -> None: ...
    class RevocableInfo(_message.Message):
        def __init__(self) -> None: ...
    class SharedInfo(_message.Message):
        def __init__(self) -> None: ...
    provider_id: ResourceProviderID
    name: str
    type: Value.Type
    scalar: Value.Scalar
    ranges: Value.Ranges
    set: Value.Set
    role: str
    allocation_info: Resource.AllocationInfo
    reservation: Resource.ReservationInfo
    reservations: _containers.RepeatedCompositeFieldContainer[Resource.ReservationInfo]
    disk: Resource.DiskInfo
    revocable: Resource.RevocableInfo
    shared: Resource.SharedInfo
    def __init__(self, provider_id: _Optional[_Union[ResourceProviderID, _Mapping]] = ..., name: _Optional[str] = ..., type: _Optional[_Union[Value.Type, str]] = ..., scalar: _Optional[_Union[Value.Scalar, _Mapping]] = ..., ranges: _Optional[_Union[Value.Ranges, _Mapping]] = ..., set: _Optional[_Union[Value.Set, _Mapping]] = ..., role: _Optional[str] = ..., allocation_info: _Optional[_Union[Resource.AllocationInfo, _Mapping]] = ..., reservation: _Optional[_Union[Resource.ReservationInfo, _Mapping]] = ..., reservations: _Optional[_Iterable[_Union[Resource.ReservationInfo, _Mapping]]] = ..., disk: _Optional[_Union[Resource.DiskInfo, _Mapping]] = ..., revocable: _Optional[_Union[Resource.RevocableInfo, _Mapping]] = ..., shared: _Optional[_Union[Resource.SharedInfo, _Mapping]] = ...) -> None: ...

class OfferFilters(_message.Message):
    class ResourceQuantities(_message.Message):
        quantities: _containers.MessageMap[str, Value.Scalar]
        def __init__(self, quantities: _Optional[_Mapping[str, Value.Scalar]] = ...) -> None: ...
    class MinAllocatableResources(_message.Message):
        quantities: _containers.RepeatedCompositeFieldContainer[OfferFilters.ResourceQuantities]
        def __init__(self, quantities: _Optional[_Iterable[_Union[OfferFilters.ResourceQuantities, _Mapping]]] = ...) -> None: ...
    min_allocatable_resources: OfferFilters.MinAllocatableResources
    def __init__(self, min_allocatable_resources: _Optional[_Union[OfferFilters.MinAllocatableResources, _Mapping]] = ...) -> None: ...

class Request(_message.Message):
    agent_id: AgentID
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    def __init__(self, agent_id: _Optional[_Union[AgentID, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ...) -> None: ...

class Offer(_message.Message):
    class Operation(_message.Message):
        class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
        UNKNOWN: Offer.Operation.Type
        LAUNCH: Offer.Operation.Type
        LAUNCH_GROUP: Offer.Operation.Type
        RESERVE: Offer.Operation.Type
        UNRESERVE: Offer.Operation.Type
        CREATE: Offer.Operation.Type
        DESTROY: Offer.Operation.Type
        GROW_VOLUME: Offer.Operation.Type
        SHRINK_VOLUME: Offer.Operation.Type
        CREATE_DISK: Offer.Operation.Type
        DESTROY_DISK: Offer.Operation.Type
        class Launch(_message.Message):
            task_infos: _containers.RepeatedCompositeFieldContainer[TaskInfo]
            def __init__(self, task_infos: _Optional[_Iterable[_Union[TaskInfo, _Mapping]]] = ...) -> None: ...
        class LaunchGroup(_message.Message):
            executor: ExecutorInfo
            task_group: TaskGroupInfo
            def __init__(self, executor: _Optional[_Union[ExecutorInfo, _Mapping]] = ..., task_group: _Optional[_Union[TaskGroupInfo, _Mapping]] = ...) -> None: ...
        class Reserve(_message.Message):
            source: _containers.RepeatedCompositeFieldContainer[Resource]
            resources: _containers.RepeatedCompositeFieldContainer[Resource]
            def __init__(self, source: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ...) -> None: ...
        class Unreserve(_message.Message):
            resources: _containers.RepeatedCompositeFieldContainer[Resource]
            def __init__(self, resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ...) -> None: ...
        class Create(_message.Message):
            volumes: _containers.RepeatedCompositeFieldContainer[Resource]
            def __init__(self, volumes: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ...) -> None: ...
        class Destroy(_message.Message):
            volumes: _containers.RepeatedCompositeFieldContainer[Resource]
            def __init__(self, volumes: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ...) -> None: ...
        class GrowVolume(_message.Message):
            volume: Resource
            addition: Resource
            def __init__(self, volume: _Optional[_Union[Resource, _Mapping]] = ..., addition: _Optional[_Union[Resource, _Mapping]] = ...) -> None: ...
        class ShrinkVolume(_message.Message):
            volume: Resource
            subtract: Value.Scalar
            def __init__(self, volume: _Optional[_Union[Resource, _Mapping]] = ..., subtract: _Optional[_Union[Value.Scalar, _Mapping]] = ...) -> None: ...
        class CreateDisk(_message.Message):
            source: Resource
            target_type: Resource.DiskInfo.Source.Type
            target_profile: str
            def __init__(self, source: _Optional[_Union[Resource, _Mapping]] = ..., target_type: _Optional[_Union[Resource.DiskInfo.Source.Type, str]] = ..., target_profile: _Optional[str] = ...) -> None: ...
        class DestroyDisk(_message.Message):
            source: Resource
            def __init__(self, source: _Optional[_Union[Resource, _Mapping]] = ...) -> None: ...
        type: Offer.Operation.Type
        id: OperationID
        launch: Offer.Operation.Launch
        launch_group: Offer.Operation.LaunchGroup
        reserve: Offer.Operation.Reserve
        unreserve: Offer.Operation.Unreserve
        create: Offer.Operation.Create
        destroy: Offer.Operation.Destroy
        grow_volume: Offer.Operation.GrowVolume
        shrink_volume: Offer.Operation.ShrinkVolume
        create_disk: Offer.Operation.CreateDisk
        destroy_disk: Offer.Operation.DestroyDisk
        def __init__(self, type: _Optional[_Union[Offer.Operation.Type, str]] = ..., id: _Optional[_Union[OperationID, _Mapping]] = ..., launch: _Optional[_Union[Offer.Operation.Launch, _Mapping]] = ..., launch_group: _Optional[_Union[Offer.Operation.LaunchGroup, _Mapping]] = ..., reserve: _Optional[_Union[Offer.Operation.Reserve, _Mapping]] = ..., unreserve: _Optional[_Union[Offer.Operation.Unreserve, _Mapping]] = ..., create: _Optional[_Union[Offer.Operation.Create, _Mapping]] = ..., destroy: _Optional[_Union[Offer.Operation.Destroy, _Mapping]] = ..., grow_volume: _Optional[_Union[Offer.Operation.GrowVolume, _Mapping]] = ..., shrink_volume: _Optional[_Union[Offer.Operation.ShrinkVolume, _Mapping]] = ..., create_disk: _Optional[_Union[Offer.Operation.CreateDisk, _Mapping]] = ..., destroy_disk: _Optional[_Union[Offer.Operation.DestroyDisk, _Mapping]] = ...) -> None: ...
    id: OfferID
    framework_id: FrameworkID
    agent_id: AgentID
    hostname: str
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    attributes: _containers.RepeatedCompositeFieldContainer[Attribute]
    executor_ids: _containers.RepeatedCompositeFieldContainer[ExecutorID]
    allocation_info: Resource.AllocationInfo
    def __init__(self, id: _Optional[_Union[OfferID, _Mapping]] = ..., framework_id: _Optional[_Union[FrameworkID, _Mapping]] = ..., agent_id: _Optional[_Union[AgentID, _Mapping]] = ..., hostname: _Optional[str] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ..., attributes: _Optional[_Iterable[_Union[Attribute, _Mapping]]] = ..., executor_ids: _Optional[_Iterable[_Union[ExecutorID, _Mapping]]] = ..., allocation_info: _Optional[_Union[Resource.AllocationInfo, _Mapping]] = ...) -> None: ...

class TaskInfo(_message.Message):
    name: str
    task_id: TaskID
    agent_id: AgentID
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    executor: ExecutorInfo
    command: CommandInfo
    container: ContainerInfo
    health_check: HealthCheck
    check: CheckInfo
    kill_policy: KillPolicy
    data: bytes
    labels: Labels
    discovery: DiscoveryInfo
    max_completion_time: DurationInfo
    limits: _containers.MessageMap[str, Value.Scalar]
    def __init__(self, name: _Optional[str] = ..., task_id: _Optional[_Union[TaskID, _Mapping]] = ..., agent_id: _Optional[_Union[AgentID, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ..., executor: _Optional[_Union[ExecutorInfo, _Mapping]] = ..., command: _Optional[_Union[CommandInfo, _Mapping]] = ..., container: _Optional[_Union[ContainerInfo, _Mapping]] = ..., health_check: _Optional[_Union[HealthCheck, _Mapping]] = ..., check: _Optional[_Union[CheckInfo, _Mapping]] = ..., kill_policy: _Optional[_Union[KillPolicy, _Mapping]] = ..., data: _Optional[bytes] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ..., discovery: _Optional[_Union[DiscoveryInfo, _Mapping]] = ..., max_completion_time: _Optional[_Union[DurationInfo, _Mapping]] = ..., limits: _Optional[_Mapping[str, Value.Scalar]] = ...) -> None: ...

class TaskGroupInfo(_message.Message):
    tasks: _containers.RepeatedCompositeFieldContainer[TaskInfo]
    def __init__(self, tasks: _Optional[_Iterable[_Union[TaskInfo, _Mapping]]] = ...) -> None: ...

class Task(_message.Message):
    name: str
    task_id: TaskID
    framework_id: FrameworkID
    agent_id: AgentID
    state: TaskState
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    statuses: _containers.RepeatedCompositeFieldContainer[TaskStatus]
    def __init__(self, name: _Optional[str] = ..., task_id: _Optional[_Union[TaskID, _Mapping]] = ..., framework_id: _Optional[_Union[FrameworkID, _Mapping]] = ..., agent_id: _Optional[_Union[AgentID, _Mapping]] = ..., state: _Optional[_Union[TaskState, str]] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ..., statuses: _Optional[_Iterable[_Union[TaskStatus, _Mapping]]] = ...) -> None: ...

class TaskResourceLimitation(_message.Message):
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    def __init__(self, resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ...) -> None: ...

class OperationStatus(_message.Message):
    operation_id: OperationID
    state: OperationState
    message: str
    agent_id: AgentID
    def __init__(self, operation_id: _Optional[_Union[OperationID, _Mapping]] = ..., state: _Optional[_Union[OperationState, str]] = ..., message: _Optional[str] = ..., agent_id: _Optional[_Union[AgentID, _Mapping]] = ...) -> None: ...

class CheckStatusInfo(_message.Message):
    class Command(_message.Message):
        exit_code: int
        def __init__(self, exit_code: _Optional[int] = ...) -> None: ...
    class Http(_message.Message):
        status_code: int
        def __init__(self, status_code: _Optional[int] = ...) -> None: ...
    class Tcp(_message.Message):
        succeeded: bool
        def __init__(self, succeeded: bool = ...) -> None: ...
    type: CheckInfo.Type
    command: CheckStatusInfo.Command
    http: CheckStatusInfo.Http
    tcp: CheckStatusInfo.Tcp
    def __init__(self, type: _Optional[_Union[CheckInfo.Type, str]] = ..., command: _Optional[_Union[CheckStatusInfo.Command, _Mapping]] = ..., http: _Optional[_Union[CheckStatusInfo.Http, _Mapping]] = ..., tcp: _Optional[_Union[CheckStatusInfo.Tcp, _Mapping]] = ...) -> None: ...

class TaskStatus(_message.Message):
    class Source(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
    SOURCE_MASTER: TaskStatus.Source
    SOURCE_AGENT: TaskStatus.Source
    SOURCE_EXECUTOR: TaskStatus.Source
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
    REASON_COMMAND_EXECUTOR_FAILED: TaskStatus.Reason
    REASON_CONTAINER_LAUNCH_FAILED: TaskStatus.Reason
    REASON_CONTAINER_LIMITATION: TaskStatus.Reason
    REASON_CONTAINER_LIMITATION_DISK: TaskStatus.Reason
    REASON_CONTAINER_LIMITATION_MEMORY: TaskStatus.Reason
    REASON_CONTAINER_PREEMPTED: TaskStatus.Reason
    REASON_CONTAINER_UPDATE_FAILED: TaskStatus.Reason
    REASON_MAX_COMPLETION_TIME_REACHED: TaskStatus.Reason
    REASON_EXECUTOR_REGISTRATION_TIMEOUT: TaskStatus.Reason
    REASON_EXECUTOR_REREGISTRATION_TIMEOUT: TaskStatus.Reason
    REASON_EXECUTOR_TERMINATED: TaskStatus.Reason
    REASON_EXECUTOR_UNREGISTERED: TaskStatus.Reason
    REASON_FRAMEWORK_REMOVED: TaskStatus.Reason
    REASON_GC_ERROR: TaskStatus.Reason
    REASON_INVALID_FRAMEWORKID: TaskStatus.Reason
    REASON_INVALID_OFFERS: TaskStatus.Reason
    REASON_IO_SWITCHBOARD_EXITED: TaskStatus.Reason
    REASON_MASTER_DISCONNECTED: TaskStatus.Reason
    REASON_RECONCILIATION: TaskStatus.Reason
    REASON_RESOURCES_UNKNOWN: TaskStatus.Reason
    REASON_AGENT_DISCONNECTED: TaskStatus.Reason
    REASON_AGENT_DRAINING: TaskStatus.Reason
    REASON_AGENT_REMOVED: TaskStatus.Reason
    REASON_AGENT_REMOVED_BY_OPERATOR: TaskStatus.Reason
    REASON_AGENT_REREGISTERED: TaskStatus.Reason
    REASON_AGENT_RESTARTED: TaskStatus.Reason
    REASON_AGENT_UNKNOWN: TaskStatus.Reason
    REASON_TASK_KILLED_DURING_LAUNCH: TaskStatus.Reason
    REASON_TASK_CHECK_STATUS_UPDATED: TaskStatus.Reason
    REASON_TASK_HEALTH_CHECK_STATUS_UPDATED: TaskStatus.Reason
    REASON_TASK_GROUP_INVALID: TaskStatus.Reason
    REASON_TASK_GROUP_UNAUTHORIZED: TaskStatus.Reason
    REASON_TASK_INVALID: TaskStatus.Reason
    REASON_TASK_UNAUTHORIZED: TaskStatus.Reason
    REASON_TASK_UNKNOWN: TaskStatus.Reason
    task_id: TaskID
    state: TaskState
    message: str
    source: TaskStatus.Source
    reason: TaskStatus.Reason
    data: bytes
    agent_id: AgentID
    executor_id: ExecutorID
    timestamp: float
    uuid: bytes
    healthy: bool
    check_status: CheckStatusInfo
    labels: Labels
    container_status: ContainerStatus
    unreachable_time: TimeInfo
    limitation: TaskResourceLimitation
    def __init__(self, task_id: _Optional[_Union[TaskID, _Mapping]] = ..., state: _Optional[_Union[TaskState, str]] = ..., message: _Optional[str] = ..., source: _Optional[_Union[TaskStatus.Source, str]] = ..., reason: _Optional[_Union[TaskStatus.Reason, str]] = ..., data: _Optional[bytes] = ..., agent_id: _Optional[_Union[AgentID, _Mapping]] = ..., executor_id: _Optional[_Union[ExecutorID, _Mapping]] = ..., timestamp: _Optional[float] = ..., uuid: _Optional[bytes] = ..., healthy: bool = ..., check_status: _Optional[_Union[CheckStatusInfo, _Mapping]] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ..., container_status: _Optional[_Union[ContainerStatus, _Mapping]] = ..., unreachable_time: _Optional[_Union[TimeInfo, _Mapping]] = ..., limitation: _Optional[_Union[TaskResourceLimitation, _Mapping]] = ...) -> None: ...

class Filters(_message.Message):
    refuse_seconds: float
    def __init__(self, refuse_seconds: _Optional[float] = ...) -> None: ...

class Environment(_message.Message):
    class Variable(_message.Message):
        class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
        UNKNOWN: Environment.Variable.Type
        VALUE: Environment.Variable.Type
        SECRET: Environment.Variable.Type
        name: str
        type: Environment.Variable.Type
        value: str
        secret: Secret
        def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[Environment.Variable.Type, str]] = ..., value: _Optional[str] = ..., secret: _Optional[_Union[Secret, _Mapping]] = ...) -> None: ...
    variables: _containers.RepeatedCompositeFieldContainer[Environment.Variable]
    def __init__(self, variables: _Optional[_Iterable[_Union[Environment.Variable, _Mapping]]] = ...) -> None: ...

class Secret(_message.Message):
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
    UNKNOWN: Secret.Type
    REFERENCE: Secret.Type
    VALUE: Secret.Type
    class Reference(_message.Message):
        name: str
        key: str
        def __init__(self, name: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...
    class Value(_message.Message):
        data: bytes
        def __init__(self, data: _Optional[bytes] = ...) -> None: ...
    type: Secret.Type
    reference: Secret.Reference
    value: Secret.Value
    def __init__(self, type: _Optional[_Union[Secret.Type, str]] = ..., reference: _Optional[_Union[Secret.Reference, _Mapping]] = ..., value: _Optional[_Union[Secret.Value, _Mapping]] = ...) -> None: ...

class Image(_message.Message):
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
    APPC: Image.Type
    DOCKER: Image.Type
    class Docker(_message.Message):
        name: str
        def __init__(self, name: _Optional[str] = ...) -> None: ...
    type: Image.Type
    docker: Image.Docker
    cached: bool
    def __init__(self, type: _Optional[_Union[Image.Type, str]] = ..., docker: _Optional[_Union[Image.Docker, _Mapping]] = ..., cached: bool = ...) -> None: ...

class ContainerInfo(_message.Message):
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
    DOCKER: ContainerInfo.Type
    MESOS: ContainerInfo.Type
    class DockerInfo(_message.Message):
        image: str
        def __init__(self, image: _Optional[str] = ...) -> None: ...
    class MesosInfo(_message.Message):
        image: Image
        def __init__(self, image: _Optional[_Union[Image, _Mapping]] = ...) -> None: ...
    type: ContainerInfo.Type
    docker: ContainerInfo.DockerInfo
    mesos: ContainerInfo.MesosInfo
    def __init__(self, type: _Optional[_Union[ContainerInfo.Type, str]] = ..., docker: _Optional[_Union[ContainerInfo.DockerInfo, _Mapping]] = ..., mesos: _Optional[_Union[ContainerInfo.MesosInfo, _Mapping]] = ...) -> None: ...

class ContainerStatus(_message.Message):
    container_id: ContainerID
    executor_pid: int
    def __init__(self, container_id: _Optional[_Union[ContainerID, _Mapping]] = ..., executor_pid: _Optional[int] = ...) -> None: ...

class Labels(_message.Message):
    labels: _containers.RepeatedCompositeFieldContainer[Label]
    def __init__(self, labels: _Optional[_Iterable[_Union[Label, _Mapping]]] = ...) -> None: ...

class Label(_message.Message):
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Port(_message.Message):
    number: int
    name: str
    protocol: str
    visibility: DiscoveryInfo.Visibility
    labels: Labels
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., protocol: _Optional[str] = ..., visibility: _Optional[_Union[DiscoveryInfo.Visibility, str]] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ...) -> None: ...

class Ports(_message.Message):
    ports: _containers.RepeatedCompositeFieldContainer[Port]
    def __init__(self, ports: _Optional[_Iterable[_Union[Port, _Mapping]]] = ...) -> None: ...

class DiscoveryInfo(_message.Message):
    class Visibility(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
    FRAMEWORK: DiscoveryInfo.Visibility
    CLUSTER: DiscoveryInfo.Visibility
    EXTERNAL: DiscoveryInfo.Visibility
    visibility: DiscoveryInfo.Visibility
    name: str
    environment: str
    location: str
    version: str
    ports: Ports
    labels: Labels
    def __init__(self, visibility: _Optional[_Union[DiscoveryInfo.Visibility, str]] = ..., name: _Optional[str] = ..., environment: _Optional[str] = ..., location: _Optional[str] = ..., version: _Optional[str] = ..., ports: _Optional[_Union[Ports, _Mapping]] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ...) -> None: ...

class WeightInfo(_message.Message):
    weight: float
    role: str
    def __init__(self, weight: _Optional[float] = ..., role: _Optional[str] = ...) -> None: ...

class VersionInfo(_message.Message):
    version: str
    build_user: str
    def __init__(self, version: _Optional[str] = ..., build_user: _Optional[str] = ...) -> None: ...

class Flag(_message.Message):
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Role(_message.Message):
    name: str
    weight: float
    frameworks: _containers.RepeatedCompositeFieldContainer[FrameworkID]
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    def __init__(self, name: _Optional[str] = ..., weight: _Optional[float] = ..., frameworks: _Optional[_Iterable[_Union[FrameworkID, _Mapping]]] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ...) -> None: ...

class Metric(_message.Message):
    name: str
    value: float
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

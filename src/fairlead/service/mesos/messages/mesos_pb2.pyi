from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_STAGING: _ClassVar[TaskState]
    TASK_STARTING: _ClassVar[TaskState]
    TASK_RUNNING: _ClassVar[TaskState]
    TASK_KILLING: _ClassVar[TaskState]
    TASK_FINISHED: _ClassVar[TaskState]
    TASK_FAILED: _ClassVar[TaskState]
    TASK_KILLED: _ClassVar[TaskState]
    TASK_ERROR: _ClassVar[TaskState]
    TASK_LOST: _ClassVar[TaskState]
    TASK_DROPPED: _ClassVar[TaskState]
    TASK_UNREACHABLE: _ClassVar[TaskState]
    TASK_GONE: _ClassVar[TaskState]
    TASK_GONE_BY_OPERATOR: _ClassVar[TaskState]
    TASK_UNKNOWN: _ClassVar[TaskState]

class OperationState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATION_UNSUPPORTED: _ClassVar[OperationState]
    OPERATION_PENDING: _ClassVar[OperationState]
    OPERATION_FINISHED: _ClassVar[OperationState]
    OPERATION_FAILED: _ClassVar[OperationState]
    OPERATION_ERROR: _ClassVar[OperationState]
    OPERATION_DROPPED: _ClassVar[OperationState]
    OPERATION_UNREACHABLE: _ClassVar[OperationState]
    OPERATION_GONE_BY_OPERATOR: _ClassVar[OperationState]
    OPERATION_RECOVERING: _ClassVar[OperationState]
    OPERATION_UNKNOWN: _ClassVar[OperationState]
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
OPERATION_UNSUPPORTED: OperationState
OPERATION_PENDING: OperationState
OPERATION_FINISHED: OperationState
OPERATION_FAILED: OperationState
OPERATION_ERROR: OperationState
OPERATION_DROPPED: OperationState
OPERATION_UNREACHABLE: OperationState
OPERATION_GONE_BY_OPERATOR: OperationState
OPERATION_RECOVERING: OperationState
OPERATION_UNKNOWN: OperationState

class FrameworkID(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class OfferID(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class AgentID(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class TaskID(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class ExecutorID(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class ContainerID(_message.Message):
    __slots__ = ("value", "parent")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    value: str
    parent: ContainerID
    def __init__(self, value: _Optional[str] = ..., parent: _Optional[_Union[ContainerID, _Mapping]] = ...) -> None: ...

class ResourceProviderID(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class OperationID(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class TimeInfo(_message.Message):
    __slots__ = ("nanoseconds",)
    NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    nanoseconds: int
    def __init__(self, nanoseconds: _Optional[int] = ...) -> None: ...

class DurationInfo(_message.Message):
    __slots__ = ("nanoseconds",)
    NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    nanoseconds: int
    def __init__(self, nanoseconds: _Optional[int] = ...) -> None: ...

class Address(_message.Message):
    __slots__ = ("hostname", "ip", "port")
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    IP_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    hostname: str
    ip: str
    port: int
    def __init__(self, hostname: _Optional[str] = ..., ip: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class URL(_message.Message):
    __slots__ = ("scheme", "address", "path", "query", "fragment")
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    FRAGMENT_FIELD_NUMBER: _ClassVar[int]
    scheme: str
    address: Address
    path: str
    query: _containers.RepeatedCompositeFieldContainer[Parameter]
    fragment: str
    def __init__(self, scheme: _Optional[str] = ..., address: _Optional[_Union[Address, _Mapping]] = ..., path: _Optional[str] = ..., query: _Optional[_Iterable[_Union[Parameter, _Mapping]]] = ..., fragment: _Optional[str] = ...) -> None: ...

class Unavailability(_message.Message):
    __slots__ = ("start", "duration")
    START_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    start: TimeInfo
    duration: DurationInfo
    def __init__(self, start: _Optional[_Union[TimeInfo, _Mapping]] = ..., duration: _Optional[_Union[DurationInfo, _Mapping]] = ...) -> None: ...

class FrameworkInfo(_message.Message):
    __slots__ = ("user", "name", "id", "failover_timeout", "checkpoint", "role", "roles", "hostname", "principal", "webui_url", "capabilities", "labels", "offer_filters")
    class Capability(_message.Message):
        __slots__ = ("type",)
        class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            UNKNOWN: _ClassVar[FrameworkInfo.Capability.Type]
            REVOCABLE_RESOURCES: _ClassVar[FrameworkInfo.Capability.Type]
            TASK_KILLING_STATE: _ClassVar[FrameworkInfo.Capability.Type]
            GPU_RESOURCES: _ClassVar[FrameworkInfo.Capability.Type]
            SHARED_RESOURCES: _ClassVar[FrameworkInfo.Capability.Type]
            PARTITION_AWARE: _ClassVar[FrameworkInfo.Capability.Type]
            MULTI_ROLE: _ClassVar[FrameworkInfo.Capability.Type]
            RESERVATION_REFINEMENT: _ClassVar[FrameworkInfo.Capability.Type]
            REGION_AWARE: _ClassVar[FrameworkInfo.Capability.Type]
        UNKNOWN: FrameworkInfo.Capability.Type
        REVOCABLE_RESOURCES: FrameworkInfo.Capability.Type
        TASK_KILLING_STATE: FrameworkInfo.Capability.Type
        GPU_RESOURCES: FrameworkInfo.Capability.Type
        SHARED_RESOURCES: FrameworkInfo.Capability.Type
        PARTITION_AWARE: FrameworkInfo.Capability.Type
        MULTI_ROLE: FrameworkInfo.Capability.Type
        RESERVATION_REFINEMENT: FrameworkInfo.Capability.Type
        REGION_AWARE: FrameworkInfo.Capability.Type
        TYPE_FIELD_NUMBER: _ClassVar[int]
        type: FrameworkInfo.Capability.Type
        def __init__(self, type: _Optional[_Union[FrameworkInfo.Capability.Type, str]] = ...) -> None: ...
    class OfferFiltersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: OfferFilters
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[OfferFilters, _Mapping]] = ...) -> None: ...
    USER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    FAILOVER_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    WEBUI_URL_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    OFFER_FILTERS_FIELD_NUMBER: _ClassVar[int]
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
    __slots__ = ("type", "command", "http", "tcp", "delay_seconds", "interval_seconds", "timeout_seconds")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[CheckInfo.Type]
        COMMAND: _ClassVar[CheckInfo.Type]
        HTTP: _ClassVar[CheckInfo.Type]
        TCP: _ClassVar[CheckInfo.Type]
    UNKNOWN: CheckInfo.Type
    COMMAND: CheckInfo.Type
    HTTP: CheckInfo.Type
    TCP: CheckInfo.Type
    class Command(_message.Message):
        __slots__ = ("command",)
        COMMAND_FIELD_NUMBER: _ClassVar[int]
        command: CommandInfo
        def __init__(self, command: _Optional[_Union[CommandInfo, _Mapping]] = ...) -> None: ...
    class Http(_message.Message):
        __slots__ = ("port", "path")
        PORT_FIELD_NUMBER: _ClassVar[int]
        PATH_FIELD_NUMBER: _ClassVar[int]
        port: int
        path: str
        def __init__(self, port: _Optional[int] = ..., path: _Optional[str] = ...) -> None: ...
    class Tcp(_message.Message):
        __slots__ = ("port",)
        PORT_FIELD_NUMBER: _ClassVar[int]
        port: int
        def __init__(self, port: _Optional[int] = ...) -> None: ...
    TYPE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    HTTP_FIELD_NUMBER: _ClassVar[int]
    TCP_FIELD_NUMBER: _ClassVar[int]
    DELAY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    type: CheckInfo.Type
    command: CheckInfo.Command
    http: CheckInfo.Http
    tcp: CheckInfo.Tcp
    delay_seconds: float
    interval_seconds: float
    timeout_seconds: float
    def __init__(self, type: _Optional[_Union[CheckInfo.Type, str]] = ..., command: _Optional[_Union[CheckInfo.Command, _Mapping]] = ..., http: _Optional[_Union[CheckInfo.Http, _Mapping]] = ..., tcp: _Optional[_Union[CheckInfo.Tcp, _Mapping]] = ..., delay_seconds: _Optional[float] = ..., interval_seconds: _Optional[float] = ..., timeout_seconds: _Optional[float] = ...) -> None: ...

class HealthCheck(_message.Message):
    __slots__ = ("delay_seconds", "interval_seconds", "timeout_seconds", "consecutive_failures", "grace_period_seconds", "type", "command", "http", "tcp")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[HealthCheck.Type]
        COMMAND: _ClassVar[HealthCheck.Type]
        HTTP: _ClassVar[HealthCheck.Type]
        TCP: _ClassVar[HealthCheck.Type]
    UNKNOWN: HealthCheck.Type
    COMMAND: HealthCheck.Type
    HTTP: HealthCheck.Type
    TCP: HealthCheck.Type
    class HTTPCheckInfo(_message.Message):
        __slots__ = ("scheme", "port", "path", "statuses")
        SCHEME_FIELD_NUMBER: _ClassVar[int]
        PORT_FIELD_NUMBER: _ClassVar[int]
        PATH_FIELD_NUMBER: _ClassVar[int]
        STATUSES_FIELD_NUMBER: _ClassVar[int]
        scheme: str
        port: int
        path: str
        statuses: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, scheme: _Optional[str] = ..., port: _Optional[int] = ..., path: _Optional[str] = ..., statuses: _Optional[_Iterable[int]] = ...) -> None: ...
    class TCPCheckInfo(_message.Message):
        __slots__ = ("port",)
        PORT_FIELD_NUMBER: _ClassVar[int]
        port: int
        def __init__(self, port: _Optional[int] = ...) -> None: ...
    DELAY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CONSECUTIVE_FAILURES_FIELD_NUMBER: _ClassVar[int]
    GRACE_PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    HTTP_FIELD_NUMBER: _ClassVar[int]
    TCP_FIELD_NUMBER: _ClassVar[int]
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
    __slots__ = ("grace_period",)
    GRACE_PERIOD_FIELD_NUMBER: _ClassVar[int]
    grace_period: DurationInfo
    def __init__(self, grace_period: _Optional[_Union[DurationInfo, _Mapping]] = ...) -> None: ...

class CommandInfo(_message.Message):
    __slots__ = ("uris", "environment", "shell", "value", "arguments", "user")
    class URI(_message.Message):
        __slots__ = ("value", "executable", "extract", "cache", "output_file")
        VALUE_FIELD_NUMBER: _ClassVar[int]
        EXECUTABLE_FIELD_NUMBER: _ClassVar[int]
        EXTRACT_FIELD_NUMBER: _ClassVar[int]
        CACHE_FIELD_NUMBER: _ClassVar[int]
        OUTPUT_FILE_FIELD_NUMBER: _ClassVar[int]
        value: str
        executable: bool
        extract: bool
        cache: bool
        output_file: str
        def __init__(self, value: _Optional[str] = ..., executable: bool = ..., extract: bool = ..., cache: bool = ..., output_file: _Optional[str] = ...) -> None: ...
    URIS_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    SHELL_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    uris: _containers.RepeatedCompositeFieldContainer[CommandInfo.URI]
    environment: Environment
    shell: bool
    value: str
    arguments: _containers.RepeatedScalarFieldContainer[str]
    user: str
    def __init__(self, uris: _Optional[_Iterable[_Union[CommandInfo.URI, _Mapping]]] = ..., environment: _Optional[_Union[Environment, _Mapping]] = ..., shell: bool = ..., value: _Optional[str] = ..., arguments: _Optional[_Iterable[str]] = ..., user: _Optional[str] = ...) -> None: ...

class ExecutorInfo(_message.Message):
    __slots__ = ("type", "executor_id", "framework_id", "command", "container", "resources", "name", "source", "data", "discovery", "shutdown_grace_period", "labels")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[ExecutorInfo.Type]
        DEFAULT: _ClassVar[ExecutorInfo.Type]
        CUSTOM: _ClassVar[ExecutorInfo.Type]
    UNKNOWN: ExecutorInfo.Type
    DEFAULT: ExecutorInfo.Type
    CUSTOM: ExecutorInfo.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    FRAMEWORK_ID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DISCOVERY_FIELD_NUMBER: _ClassVar[int]
    SHUTDOWN_GRACE_PERIOD_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
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

class DomainInfo(_message.Message):
    __slots__ = ("fault_domain",)
    class FaultDomain(_message.Message):
        __slots__ = ("region", "zone")
        class RegionInfo(_message.Message):
            __slots__ = ("name",)
            NAME_FIELD_NUMBER: _ClassVar[int]
            name: str
            def __init__(self, name: _Optional[str] = ...) -> None: ...
        class ZoneInfo(_message.Message):
            __slots__ = ("name",)
            NAME_FIELD_NUMBER: _ClassVar[int]
            name: str
            def __init__(self, name: _Optional[str] = ...) -> None: ...
        REGION_FIELD_NUMBER: _ClassVar[int]
        ZONE_FIELD_NUMBER: _ClassVar[int]
        region: DomainInfo.FaultDomain.RegionInfo
        zone: DomainInfo.FaultDomain.ZoneInfo
        def __init__(self, region: _Optional[_Union[DomainInfo.FaultDomain.RegionInfo, _Mapping]] = ..., zone: _Optional[_Union[DomainInfo.FaultDomain.ZoneInfo, _Mapping]] = ...) -> None: ...
    FAULT_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    fault_domain: DomainInfo.FaultDomain
    def __init__(self, fault_domain: _Optional[_Union[DomainInfo.FaultDomain, _Mapping]] = ...) -> None: ...

class MasterInfo(_message.Message):
    __slots__ = ("id", "ip", "port", "pid", "hostname", "version", "address", "domain", "capabilities")
    class Capability(_message.Message):
        __slots__ = ("type",)
        class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            UNKNOWN: _ClassVar[MasterInfo.Capability.Type]
            AGENT_UPDATE: _ClassVar[MasterInfo.Capability.Type]
            AGENT_DRAINING: _ClassVar[MasterInfo.Capability.Type]
            QUOTA_V2: _ClassVar[MasterInfo.Capability.Type]
        UNKNOWN: MasterInfo.Capability.Type
        AGENT_UPDATE: MasterInfo.Capability.Type
        AGENT_DRAINING: MasterInfo.Capability.Type
        QUOTA_V2: MasterInfo.Capability.Type
        TYPE_FIELD_NUMBER: _ClassVar[int]
        type: MasterInfo.Capability.Type
        def __init__(self, type: _Optional[_Union[MasterInfo.Capability.Type, str]] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    IP_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    id: str
    ip: int
    port: int
    pid: str
    hostname: str
    version: str
    address: Address
    domain: DomainInfo
    capabilities: _containers.RepeatedCompositeFieldContainer[MasterInfo.Capability]
    def __init__(self, id: _Optional[str] = ..., ip: _Optional[int] = ..., port: _Optional[int] = ..., pid: _Optional[str] = ..., hostname: _Optional[str] = ..., version: _Optional[str] = ..., address: _Optional[_Union[Address, _Mapping]] = ..., domain: _Optional[_Union[DomainInfo, _Mapping]] = ..., capabilities: _Optional[_Iterable[_Union[MasterInfo.Capability, _Mapping]]] = ...) -> None: ...

class AgentInfo(_message.Message):
    __slots__ = ("hostname", "port", "resources", "attributes", "id", "domain")
    class Capability(_message.Message):
        __slots__ = ("type",)
        class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            UNKNOWN: _ClassVar[AgentInfo.Capability.Type]
            MULTI_ROLE: _ClassVar[AgentInfo.Capability.Type]
            HIERARCHICAL_ROLE: _ClassVar[AgentInfo.Capability.Type]
            RESERVATION_REFINEMENT: _ClassVar[AgentInfo.Capability.Type]
            RESOURCE_PROVIDER: _ClassVar[AgentInfo.Capability.Type]
            RESIZE_VOLUME: _ClassVar[AgentInfo.Capability.Type]
            AGENT_OPERATION_FEEDBACK: _ClassVar[AgentInfo.Capability.Type]
            AGENT_DRAINING: _ClassVar[AgentInfo.Capability.Type]
            TASK_RESOURCE_LIMITS: _ClassVar[AgentInfo.Capability.Type]
        UNKNOWN: AgentInfo.Capability.Type
        MULTI_ROLE: AgentInfo.Capability.Type
        HIERARCHICAL_ROLE: AgentInfo.Capability.Type
        RESERVATION_REFINEMENT: AgentInfo.Capability.Type
        RESOURCE_PROVIDER: AgentInfo.Capability.Type
        RESIZE_VOLUME: AgentInfo.Capability.Type
        AGENT_OPERATION_FEEDBACK: AgentInfo.Capability.Type
        AGENT_DRAINING: AgentInfo.Capability.Type
        TASK_RESOURCE_LIMITS: AgentInfo.Capability.Type
        TYPE_FIELD_NUMBER: _ClassVar[int]
        type: AgentInfo.Capability.Type
        def __init__(self, type: _Optional[_Union[AgentInfo.Capability.Type, str]] = ...) -> None: ...
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    hostname: str
    port: int
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    attributes: _containers.RepeatedCompositeFieldContainer[Attribute]
    id: AgentID
    domain: DomainInfo
    def __init__(self, hostname: _Optional[str] = ..., port: _Optional[int] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ..., attributes: _Optional[_Iterable[_Union[Attribute, _Mapping]]] = ..., id: _Optional[_Union[AgentID, _Mapping]] = ..., domain: _Optional[_Union[DomainInfo, _Mapping]] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ()
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SCALAR: _ClassVar[Value.Type]
        RANGES: _ClassVar[Value.Type]
        SET: _ClassVar[Value.Type]
        TEXT: _ClassVar[Value.Type]
    SCALAR: Value.Type
    RANGES: Value.Type
    SET: Value.Type
    TEXT: Value.Type
    class Scalar(_message.Message):
        __slots__ = ("value",)
        VALUE_FIELD_NUMBER: _ClassVar[int]
        value: float
        def __init__(self, value: _Optional[float] = ...) -> None: ...
    class Range(_message.Message):
        __slots__ = ("begin", "end")
        BEGIN_FIELD_NUMBER: _ClassVar[int]
        END_FIELD_NUMBER: _ClassVar[int]
        begin: int
        end: int
        def __init__(self, begin: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...
    class Ranges(_message.Message):
        __slots__ = ("range",)
        RANGE_FIELD_NUMBER: _ClassVar[int]
        range: _containers.RepeatedCompositeFieldContainer[Value.Range]
        def __init__(self, range: _Optional[_Iterable[_Union[Value.Range, _Mapping]]] = ...) -> None: ...
    class Set(_message.Message):
        __slots__ = ("item",)
        ITEM_FIELD_NUMBER: _ClassVar[int]
        item: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, item: _Optional[_Iterable[str]] = ...) -> None: ...
    class Text(_message.Message):
        __slots__ = ("value",)
        VALUE_FIELD_NUMBER: _ClassVar[int]
        value: str
        def __init__(self, value: _Optional[str] = ...) -> None: ...
    def __init__(self) -> None: ...

class Attribute(_message.Message):
    __slots__ = ("name", "type", "scalar", "ranges", "set", "text")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SCALAR_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: Value.Type
    scalar: Value.Scalar
    ranges: Value.Ranges
    set: Value.Set
    text: Value.Text
    def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[Value.Type, str]] = ..., scalar: _Optional[_Union[Value.Scalar, _Mapping]] = ..., ranges: _Optional[_Union[Value.Ranges, _Mapping]] = ..., set: _Optional[_Union[Value.Set, _Mapping]] = ..., text: _Optional[_Union[Value.Text, _Mapping]] = ...) -> None: ...

class Volume(_message.Message):
    __slots__ = ("mode", "container_path", "host_path")
    class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        RW: _ClassVar[Volume.Mode]
        RO: _ClassVar[Volume.Mode]
    RW: Volume.Mode
    RO: Volume.Mode
    MODE_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_PATH_FIELD_NUMBER: _ClassVar[int]
    HOST_PATH_FIELD_NUMBER: _ClassVar[int]
    mode: Volume.Mode
    container_path: str
    host_path: str
    def __init__(self, mode: _Optional[_Union[Volume.Mode, str]] = ..., container_path: _Optional[str] = ..., host_path: _Optional[str] = ...) -> None: ...

class Resource(_message.Message):
    __slots__ = ("provider_id", "name", "type", "scalar", "ranges", "set", "role", "allocation_info", "reservation", "reservations", "disk", "revocable", "shared")
    class AllocationInfo(_message.Message):
        __slots__ = ("role",)
        ROLE_FIELD_NUMBER: _ClassVar[int]
        role: str
        def __init__(self, role: _Optional[str] = ...) -> None: ...
    class ReservationInfo(_message.Message):
        __slots__ = ("type", "role", "principal", "labels")
        class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            UNKNOWN: _ClassVar[Resource.ReservationInfo.Type]
            STATIC: _ClassVar[Resource.ReservationInfo.Type]
            DYNAMIC: _ClassVar[Resource.ReservationInfo.Type]
        UNKNOWN: Resource.ReservationInfo.Type
        STATIC: Resource.ReservationInfo.Type
        DYNAMIC: Resource.ReservationInfo.Type
        TYPE_FIELD_NUMBER: _ClassVar[int]
        ROLE_FIELD_NUMBER: _ClassVar[int]
        PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
        LABELS_FIELD_NUMBER: _ClassVar[int]
        type: Resource.ReservationInfo.Type
        role: str
        principal: str
        labels: Labels
        def __init__(self, type: _Optional[_Union[Resource.ReservationInfo.Type, str]] = ..., role: _Optional[str] = ..., principal: _Optional[str] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ...) -> None: ...
    class DiskInfo(_message.Message):
        __slots__ = ("persistence", "volume", "source")
        class Persistence(_message.Message):
            __slots__ = ("id", "principal")
            ID_FIELD_NUMBER: _ClassVar[int]
            PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
            id: str
            principal: str
            def __init__(self, id: _Optional[str] = ..., principal: _Optional[str] = ...) -> None: ...
        class Source(_message.Message):
            __slots__ = ("type", "path", "mount", "vendor", "id", "metadata", "profile")
            class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
                __slots__ = ()
                UNKNOWN: _ClassVar[Resource.DiskInfo.Source.Type]
                PATH: _ClassVar[Resource.DiskInfo.Source.Type]
                MOUNT: _ClassVar[Resource.DiskInfo.Source.Type]
                BLOCK: _ClassVar[Resource.DiskInfo.Source.Type]
                RAW: _ClassVar[Resource.DiskInfo.Source.Type]
            UNKNOWN: Resource.DiskInfo.Source.Type
            PATH: Resource.DiskInfo.Source.Type
            MOUNT: Resource.DiskInfo.Source.Type
            BLOCK: Resource.DiskInfo.Source.Type
            RAW: Resource.DiskInfo.Source.Type
            class Path(_message.Message):
                __slots__ = ("root",)
                ROOT_FIELD_NUMBER: _ClassVar[int]
                root: str
                def __init__(self, root: _Optional[str] = ...) -> None: ...
            class Mount(_message.Message):
                __slots__ = ("root",)
                ROOT_FIELD_NUMBER: _ClassVar[int]
                root: str
                def __init__(self, root: _Optional[str] = ...) -> None: ...
            TYPE_FIELD_NUMBER: _ClassVar[int]
            PATH_FIELD_NUMBER: _ClassVar[int]
            MOUNT_FIELD_NUMBER: _ClassVar[int]
            VENDOR_FIELD_NUMBER: _ClassVar[int]
            ID_FIELD_NUMBER: _ClassVar[int]
            METADATA_FIELD_NUMBER: _ClassVar[int]
            PROFILE_FIELD_NUMBER: _ClassVar[int]
            type: Resource.DiskInfo.Source.Type
            path: Resource.DiskInfo.Source.Path
            mount: Resource.DiskInfo.Source.Mount
            vendor: str
            id: str
            metadata: Labels
            profile: str
            def __init__(self, type: _Optional[_Union[Resource.DiskInfo.Source.Type, str]] = ..., path: _Optional[_Union[Resource.DiskInfo.Source.Path, _Mapping]] = ..., mount: _Optional[_Union[Resource.DiskInfo.Source.Mount, _Mapping]] = ..., vendor: _Optional[str] = ..., id: _Optional[str] = ..., metadata: _Optional[_Union[Labels, _Mapping]] = ..., profile: _Optional[str] = ...) -> None: ...
        PERSISTENCE_FIELD_NUMBER: _ClassVar[int]
        VOLUME_FIELD_NUMBER: _ClassVar[int]
        SOURCE_FIELD_NUMBER: _ClassVar[int]
        persistence: Resource.DiskInfo.Persistence
        volume: Volume
        source: Resource.DiskInfo.Source
        def __init__(self, persistence: _Optional[_Union[Resource.DiskInfo.Persistence, _Mapping]] = ..., volume: _Optional[_Union[Volume, _Mapping]] = ..., source: _Optional[_Union[Resource.DiskInfo.Source, _Mapping]] = ...) -> None: ...
    class RevocableInfo(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class SharedInfo(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    PROVIDER_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SCALAR_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_INFO_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    RESERVATIONS_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    REVOCABLE_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
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
    __slots__ = ("min_allocatable_resources",)
    class ResourceQuantities(_message.Message):
        __slots__ = ("quantities",)
        class QuantitiesEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: Value.Scalar
            def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value.Scalar, _Mapping]] = ...) -> None: ...
        QUANTITIES_FIELD_NUMBER: _ClassVar[int]
        quantities: _containers.MessageMap[str, Value.Scalar]
        def __init__(self, quantities: _Optional[_Mapping[str, Value.Scalar]] = ...) -> None: ...
    class MinAllocatableResources(_message.Message):
        __slots__ = ("quantities",)
        QUANTITIES_FIELD_NUMBER: _ClassVar[int]
        quantities: _containers.RepeatedCompositeFieldContainer[OfferFilters.ResourceQuantities]
        def __init__(self, quantities: _Optional[_Iterable[_Union[OfferFilters.ResourceQuantities, _Mapping]]] = ...) -> None: ...
    MIN_ALLOCATABLE_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    min_allocatable_resources: OfferFilters.MinAllocatableResources
    def __init__(self, min_allocatable_resources: _Optional[_Union[OfferFilters.MinAllocatableResources, _Mapping]] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("agent_id", "resources")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    agent_id: AgentID
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    def __init__(self, agent_id: _Optional[_Union[AgentID, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ...) -> None: ...

class Offer(_message.Message):
    __slots__ = ("id", "framework_id", "agent_id", "hostname", "url", "domain", "resources", "attributes", "executor_ids", "unavailability", "allocation_info")
    class Operation(_message.Message):
        __slots__ = ("type", "id", "launch", "launch_group", "reserve", "unreserve", "create", "destroy", "grow_volume", "shrink_volume", "create_disk", "destroy_disk")
        class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            UNKNOWN: _ClassVar[Offer.Operation.Type]
            LAUNCH: _ClassVar[Offer.Operation.Type]
            LAUNCH_GROUP: _ClassVar[Offer.Operation.Type]
            RESERVE: _ClassVar[Offer.Operation.Type]
            UNRESERVE: _ClassVar[Offer.Operation.Type]
            CREATE: _ClassVar[Offer.Operation.Type]
            DESTROY: _ClassVar[Offer.Operation.Type]
            GROW_VOLUME: _ClassVar[Offer.Operation.Type]
            SHRINK_VOLUME: _ClassVar[Offer.Operation.Type]
            CREATE_DISK: _ClassVar[Offer.Operation.Type]
            DESTROY_DISK: _ClassVar[Offer.Operation.Type]
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
            __slots__ = ("task_infos",)
            TASK_INFOS_FIELD_NUMBER: _ClassVar[int]
            task_infos: _containers.RepeatedCompositeFieldContainer[TaskInfo]
            def __init__(self, task_infos: _Optional[_Iterable[_Union[TaskInfo, _Mapping]]] = ...) -> None: ...
        class LaunchGroup(_message.Message):
            __slots__ = ("executor", "task_group")
            EXECUTOR_FIELD_NUMBER: _ClassVar[int]
            TASK_GROUP_FIELD_NUMBER: _ClassVar[int]
            executor: ExecutorInfo
            task_group: TaskGroupInfo
            def __init__(self, executor: _Optional[_Union[ExecutorInfo, _Mapping]] = ..., task_group: _Optional[_Union[TaskGroupInfo, _Mapping]] = ...) -> None: ...
        class Reserve(_message.Message):
            __slots__ = ("source", "resources")
            SOURCE_FIELD_NUMBER: _ClassVar[int]
            RESOURCES_FIELD_NUMBER: _ClassVar[int]
            source: _containers.RepeatedCompositeFieldContainer[Resource]
            resources: _containers.RepeatedCompositeFieldContainer[Resource]
            def __init__(self, source: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ...) -> None: ...
        class Unreserve(_message.Message):
            __slots__ = ("resources",)
            RESOURCES_FIELD_NUMBER: _ClassVar[int]
            resources: _containers.RepeatedCompositeFieldContainer[Resource]
            def __init__(self, resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ...) -> None: ...
        class Create(_message.Message):
            __slots__ = ("volumes",)
            VOLUMES_FIELD_NUMBER: _ClassVar[int]
            volumes: _containers.RepeatedCompositeFieldContainer[Resource]
            def __init__(self, volumes: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ...) -> None: ...
        class Destroy(_message.Message):
            __slots__ = ("volumes",)
            VOLUMES_FIELD_NUMBER: _ClassVar[int]
            volumes: _containers.RepeatedCompositeFieldContainer[Resource]
            def __init__(self, volumes: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ...) -> None: ...
        class GrowVolume(_message.Message):
            __slots__ = ("volume", "addition")
            VOLUME_FIELD_NUMBER: _ClassVar[int]
            ADDITION_FIELD_NUMBER: _ClassVar[int]
            volume: Resource
            addition: Resource
            def __init__(self, volume: _Optional[_Union[Resource, _Mapping]] = ..., addition: _Optional[_Union[Resource, _Mapping]] = ...) -> None: ...
        class ShrinkVolume(_message.Message):
            __slots__ = ("volume", "subtract")
            VOLUME_FIELD_NUMBER: _ClassVar[int]
            SUBTRACT_FIELD_NUMBER: _ClassVar[int]
            volume: Resource
            subtract: Value.Scalar
            def __init__(self, volume: _Optional[_Union[Resource, _Mapping]] = ..., subtract: _Optional[_Union[Value.Scalar, _Mapping]] = ...) -> None: ...
        class CreateDisk(_message.Message):
            __slots__ = ("source", "target_type", "target_profile")
            SOURCE_FIELD_NUMBER: _ClassVar[int]
            TARGET_TYPE_FIELD_NUMBER: _ClassVar[int]
            TARGET_PROFILE_FIELD_NUMBER: _ClassVar[int]
            source: Resource
            target_type: Resource.DiskInfo.Source.Type
            target_profile: str
            def __init__(self, source: _Optional[_Union[Resource, _Mapping]] = ..., target_type: _Optional[_Union[Resource.DiskInfo.Source.Type, str]] = ..., target_profile: _Optional[str] = ...) -> None: ...
        class DestroyDisk(_message.Message):
            __slots__ = ("source",)
            SOURCE_FIELD_NUMBER: _ClassVar[int]
            source: Resource
            def __init__(self, source: _Optional[_Union[Resource, _Mapping]] = ...) -> None: ...
        TYPE_FIELD_NUMBER: _ClassVar[int]
        ID_FIELD_NUMBER: _ClassVar[int]
        LAUNCH_FIELD_NUMBER: _ClassVar[int]
        LAUNCH_GROUP_FIELD_NUMBER: _ClassVar[int]
        RESERVE_FIELD_NUMBER: _ClassVar[int]
        UNRESERVE_FIELD_NUMBER: _ClassVar[int]
        CREATE_FIELD_NUMBER: _ClassVar[int]
        DESTROY_FIELD_NUMBER: _ClassVar[int]
        GROW_VOLUME_FIELD_NUMBER: _ClassVar[int]
        SHRINK_VOLUME_FIELD_NUMBER: _ClassVar[int]
        CREATE_DISK_FIELD_NUMBER: _ClassVar[int]
        DESTROY_DISK_FIELD_NUMBER: _ClassVar[int]
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
    ID_FIELD_NUMBER: _ClassVar[int]
    FRAMEWORK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_IDS_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABILITY_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_INFO_FIELD_NUMBER: _ClassVar[int]
    id: OfferID
    framework_id: FrameworkID
    agent_id: AgentID
    hostname: str
    url: URL
    domain: DomainInfo
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    attributes: _containers.RepeatedCompositeFieldContainer[Attribute]
    executor_ids: _containers.RepeatedCompositeFieldContainer[ExecutorID]
    unavailability: Unavailability
    allocation_info: Resource.AllocationInfo
    def __init__(self, id: _Optional[_Union[OfferID, _Mapping]] = ..., framework_id: _Optional[_Union[FrameworkID, _Mapping]] = ..., agent_id: _Optional[_Union[AgentID, _Mapping]] = ..., hostname: _Optional[str] = ..., url: _Optional[_Union[URL, _Mapping]] = ..., domain: _Optional[_Union[DomainInfo, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ..., attributes: _Optional[_Iterable[_Union[Attribute, _Mapping]]] = ..., executor_ids: _Optional[_Iterable[_Union[ExecutorID, _Mapping]]] = ..., unavailability: _Optional[_Union[Unavailability, _Mapping]] = ..., allocation_info: _Optional[_Union[Resource.AllocationInfo, _Mapping]] = ...) -> None: ...

class InverseOffer(_message.Message):
    __slots__ = ("id", "url", "framework_id", "agent_id", "unavailability", "resources")
    ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    FRAMEWORK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABILITY_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    id: OfferID
    url: URL
    framework_id: FrameworkID
    agent_id: AgentID
    unavailability: Unavailability
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    def __init__(self, id: _Optional[_Union[OfferID, _Mapping]] = ..., url: _Optional[_Union[URL, _Mapping]] = ..., framework_id: _Optional[_Union[FrameworkID, _Mapping]] = ..., agent_id: _Optional[_Union[AgentID, _Mapping]] = ..., unavailability: _Optional[_Union[Unavailability, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ...) -> None: ...

class TaskInfo(_message.Message):
    __slots__ = ("name", "task_id", "agent_id", "resources", "executor", "command", "container", "health_check", "check", "kill_policy", "data", "labels", "discovery", "max_completion_time", "limits")
    class LimitsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value.Scalar
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value.Scalar, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    HEALTH_CHECK_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    KILL_POLICY_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    DISCOVERY_FIELD_NUMBER: _ClassVar[int]
    MAX_COMPLETION_TIME_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
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
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskInfo]
    def __init__(self, tasks: _Optional[_Iterable[_Union[TaskInfo, _Mapping]]] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("name", "task_id", "framework_id", "executor_id", "agent_id", "state", "resources", "statuses", "status_update_state", "status_update_uuid", "labels", "discovery", "container", "health_check", "kill_policy", "user", "limits")
    class LimitsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value.Scalar
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value.Scalar, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    FRAMEWORK_ID_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    STATUS_UPDATE_STATE_FIELD_NUMBER: _ClassVar[int]
    STATUS_UPDATE_UUID_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    DISCOVERY_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    HEALTH_CHECK_FIELD_NUMBER: _ClassVar[int]
    KILL_POLICY_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    name: str
    task_id: TaskID
    framework_id: FrameworkID
    executor_id: ExecutorID
    agent_id: AgentID
    state: TaskState
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    statuses: _containers.RepeatedCompositeFieldContainer[TaskStatus]
    status_update_state: TaskState
    status_update_uuid: bytes
    labels: Labels
    discovery: DiscoveryInfo
    container: ContainerInfo
    health_check: HealthCheck
    kill_policy: KillPolicy
    user: str
    limits: _containers.MessageMap[str, Value.Scalar]
    def __init__(self, name: _Optional[str] = ..., task_id: _Optional[_Union[TaskID, _Mapping]] = ..., framework_id: _Optional[_Union[FrameworkID, _Mapping]] = ..., executor_id: _Optional[_Union[ExecutorID, _Mapping]] = ..., agent_id: _Optional[_Union[AgentID, _Mapping]] = ..., state: _Optional[_Union[TaskState, str]] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ..., statuses: _Optional[_Iterable[_Union[TaskStatus, _Mapping]]] = ..., status_update_state: _Optional[_Union[TaskState, str]] = ..., status_update_uuid: _Optional[bytes] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ..., discovery: _Optional[_Union[DiscoveryInfo, _Mapping]] = ..., container: _Optional[_Union[ContainerInfo, _Mapping]] = ..., health_check: _Optional[_Union[HealthCheck, _Mapping]] = ..., kill_policy: _Optional[_Union[KillPolicy, _Mapping]] = ..., user: _Optional[str] = ..., limits: _Optional[_Mapping[str, Value.Scalar]] = ...) -> None: ...

class TaskResourceLimitation(_message.Message):
    __slots__ = ("resources",)
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    def __init__(self, resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ...) -> None: ...

class UUID(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    def __init__(self, value: _Optional[bytes] = ...) -> None: ...

class OperationStatus(_message.Message):
    __slots__ = ("operation_id", "state", "message", "converted_resources", "uuid", "agent_id", "resource_provider_id")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CONVERTED_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_PROVIDER_ID_FIELD_NUMBER: _ClassVar[int]
    operation_id: OperationID
    state: OperationState
    message: str
    converted_resources: _containers.RepeatedCompositeFieldContainer[Resource]
    uuid: UUID
    agent_id: AgentID
    resource_provider_id: ResourceProviderID
    def __init__(self, operation_id: _Optional[_Union[OperationID, _Mapping]] = ..., state: _Optional[_Union[OperationState, str]] = ..., message: _Optional[str] = ..., converted_resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ..., uuid: _Optional[_Union[UUID, _Mapping]] = ..., agent_id: _Optional[_Union[AgentID, _Mapping]] = ..., resource_provider_id: _Optional[_Union[ResourceProviderID, _Mapping]] = ...) -> None: ...

class CheckStatusInfo(_message.Message):
    __slots__ = ("type", "command", "http", "tcp")
    class Command(_message.Message):
        __slots__ = ("exit_code",)
        EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
        exit_code: int
        def __init__(self, exit_code: _Optional[int] = ...) -> None: ...
    class Http(_message.Message):
        __slots__ = ("status_code",)
        STATUS_CODE_FIELD_NUMBER: _ClassVar[int]
        status_code: int
        def __init__(self, status_code: _Optional[int] = ...) -> None: ...
    class Tcp(_message.Message):
        __slots__ = ("succeeded",)
        SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
        succeeded: bool
        def __init__(self, succeeded: bool = ...) -> None: ...
    TYPE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    HTTP_FIELD_NUMBER: _ClassVar[int]
    TCP_FIELD_NUMBER: _ClassVar[int]
    type: CheckInfo.Type
    command: CheckStatusInfo.Command
    http: CheckStatusInfo.Http
    tcp: CheckStatusInfo.Tcp
    def __init__(self, type: _Optional[_Union[CheckInfo.Type, str]] = ..., command: _Optional[_Union[CheckStatusInfo.Command, _Mapping]] = ..., http: _Optional[_Union[CheckStatusInfo.Http, _Mapping]] = ..., tcp: _Optional[_Union[CheckStatusInfo.Tcp, _Mapping]] = ...) -> None: ...

class TaskStatus(_message.Message):
    __slots__ = ("task_id", "state", "message", "source", "reason", "data", "agent_id", "executor_id", "timestamp", "uuid", "healthy", "check_status", "labels", "container_status", "unreachable_time", "limitation")
    class Source(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SOURCE_MASTER: _ClassVar[TaskStatus.Source]
        SOURCE_AGENT: _ClassVar[TaskStatus.Source]
        SOURCE_EXECUTOR: _ClassVar[TaskStatus.Source]
    SOURCE_MASTER: TaskStatus.Source
    SOURCE_AGENT: TaskStatus.Source
    SOURCE_EXECUTOR: TaskStatus.Source
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_COMMAND_EXECUTOR_FAILED: _ClassVar[TaskStatus.Reason]
        REASON_CONTAINER_LAUNCH_FAILED: _ClassVar[TaskStatus.Reason]
        REASON_CONTAINER_LIMITATION: _ClassVar[TaskStatus.Reason]
        REASON_CONTAINER_LIMITATION_DISK: _ClassVar[TaskStatus.Reason]
        REASON_CONTAINER_LIMITATION_MEMORY: _ClassVar[TaskStatus.Reason]
        REASON_CONTAINER_PREEMPTED: _ClassVar[TaskStatus.Reason]
        REASON_CONTAINER_UPDATE_FAILED: _ClassVar[TaskStatus.Reason]
        REASON_MAX_COMPLETION_TIME_REACHED: _ClassVar[TaskStatus.Reason]
        REASON_EXECUTOR_REGISTRATION_TIMEOUT: _ClassVar[TaskStatus.Reason]
        REASON_EXECUTOR_REREGISTRATION_TIMEOUT: _ClassVar[TaskStatus.Reason]
        REASON_EXECUTOR_TERMINATED: _ClassVar[TaskStatus.Reason]
        REASON_EXECUTOR_UNREGISTERED: _ClassVar[TaskStatus.Reason]
        REASON_FRAMEWORK_REMOVED: _ClassVar[TaskStatus.Reason]
        REASON_GC_ERROR: _ClassVar[TaskStatus.Reason]
        REASON_INVALID_FRAMEWORKID: _ClassVar[TaskStatus.Reason]
        REASON_INVALID_OFFERS: _ClassVar[TaskStatus.Reason]
        REASON_IO_SWITCHBOARD_EXITED: _ClassVar[TaskStatus.Reason]
        REASON_MASTER_DISCONNECTED: _ClassVar[TaskStatus.Reason]
        REASON_RECONCILIATION: _ClassVar[TaskStatus.Reason]
        REASON_RESOURCES_UNKNOWN: _ClassVar[TaskStatus.Reason]
        REASON_AGENT_DISCONNECTED: _ClassVar[TaskStatus.Reason]
        REASON_AGENT_DRAINING: _ClassVar[TaskStatus.Reason]
        REASON_AGENT_REMOVED: _ClassVar[TaskStatus.Reason]
        REASON_AGENT_REMOVED_BY_OPERATOR: _ClassVar[TaskStatus.Reason]
        REASON_AGENT_REREGISTERED: _ClassVar[TaskStatus.Reason]
        REASON_AGENT_RESTARTED: _ClassVar[TaskStatus.Reason]
        REASON_AGENT_UNKNOWN: _ClassVar[TaskStatus.Reason]
        REASON_TASK_KILLED_DURING_LAUNCH: _ClassVar[TaskStatus.Reason]
        REASON_TASK_CHECK_STATUS_UPDATED: _ClassVar[TaskStatus.Reason]
        REASON_TASK_HEALTH_CHECK_STATUS_UPDATED: _ClassVar[TaskStatus.Reason]
        REASON_TASK_GROUP_INVALID: _ClassVar[TaskStatus.Reason]
        REASON_TASK_GROUP_UNAUTHORIZED: _ClassVar[TaskStatus.Reason]
        REASON_TASK_INVALID: _ClassVar[TaskStatus.Reason]
        REASON_TASK_UNAUTHORIZED: _ClassVar[TaskStatus.Reason]
        REASON_TASK_UNKNOWN: _ClassVar[TaskStatus.Reason]
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
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    CHECK_STATUS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_STATUS_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_TIME_FIELD_NUMBER: _ClassVar[int]
    LIMITATION_FIELD_NUMBER: _ClassVar[int]
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
    __slots__ = ("refuse_seconds",)
    REFUSE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    refuse_seconds: float
    def __init__(self, refuse_seconds: _Optional[float] = ...) -> None: ...

class Environment(_message.Message):
    __slots__ = ("variables",)
    class Variable(_message.Message):
        __slots__ = ("name", "type", "value", "secret")
        class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            UNKNOWN: _ClassVar[Environment.Variable.Type]
            VALUE: _ClassVar[Environment.Variable.Type]
            SECRET: _ClassVar[Environment.Variable.Type]
        UNKNOWN: Environment.Variable.Type
        VALUE: Environment.Variable.Type
        SECRET: Environment.Variable.Type
        NAME_FIELD_NUMBER: _ClassVar[int]
        TYPE_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        SECRET_FIELD_NUMBER: _ClassVar[int]
        name: str
        type: Environment.Variable.Type
        value: str
        secret: Secret
        def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[Environment.Variable.Type, str]] = ..., value: _Optional[str] = ..., secret: _Optional[_Union[Secret, _Mapping]] = ...) -> None: ...
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    variables: _containers.RepeatedCompositeFieldContainer[Environment.Variable]
    def __init__(self, variables: _Optional[_Iterable[_Union[Environment.Variable, _Mapping]]] = ...) -> None: ...

class Parameter(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Secret(_message.Message):
    __slots__ = ("type", "reference", "value")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[Secret.Type]
        REFERENCE: _ClassVar[Secret.Type]
        VALUE: _ClassVar[Secret.Type]
    UNKNOWN: Secret.Type
    REFERENCE: Secret.Type
    VALUE: Secret.Type
    class Reference(_message.Message):
        __slots__ = ("name", "key")
        NAME_FIELD_NUMBER: _ClassVar[int]
        KEY_FIELD_NUMBER: _ClassVar[int]
        name: str
        key: str
        def __init__(self, name: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...
    class Value(_message.Message):
        __slots__ = ("data",)
        DATA_FIELD_NUMBER: _ClassVar[int]
        data: bytes
        def __init__(self, data: _Optional[bytes] = ...) -> None: ...
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    type: Secret.Type
    reference: Secret.Reference
    value: Secret.Value
    def __init__(self, type: _Optional[_Union[Secret.Type, str]] = ..., reference: _Optional[_Union[Secret.Reference, _Mapping]] = ..., value: _Optional[_Union[Secret.Value, _Mapping]] = ...) -> None: ...

class Image(_message.Message):
    __slots__ = ("type", "docker", "cached")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        APPC: _ClassVar[Image.Type]
        DOCKER: _ClassVar[Image.Type]
    APPC: Image.Type
    DOCKER: Image.Type
    class Docker(_message.Message):
        __slots__ = ("name",)
        NAME_FIELD_NUMBER: _ClassVar[int]
        name: str
        def __init__(self, name: _Optional[str] = ...) -> None: ...
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DOCKER_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    type: Image.Type
    docker: Image.Docker
    cached: bool
    def __init__(self, type: _Optional[_Union[Image.Type, str]] = ..., docker: _Optional[_Union[Image.Docker, _Mapping]] = ..., cached: bool = ...) -> None: ...

class ContainerInfo(_message.Message):
    __slots__ = ("type", "docker", "mesos")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DOCKER: _ClassVar[ContainerInfo.Type]
        MESOS: _ClassVar[ContainerInfo.Type]
    DOCKER: ContainerInfo.Type
    MESOS: ContainerInfo.Type
    class DockerInfo(_message.Message):
        __slots__ = ("image",)
        IMAGE_FIELD_NUMBER: _ClassVar[int]
        image: str
        def __init__(self, image: _Optional[str] = ...) -> None: ...
    class MesosInfo(_message.Message):
        __slots__ = ("image",)
        IMAGE_FIELD_NUMBER: _ClassVar[int]
        image: Image
        def __init__(self, image: _Optional[_Union[Image, _Mapping]] = ...) -> None: ...
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DOCKER_FIELD_NUMBER: _ClassVar[int]
    MESOS_FIELD_NUMBER: _ClassVar[int]
    type: ContainerInfo.Type
    docker: ContainerInfo.DockerInfo
    mesos: ContainerInfo.MesosInfo
    def __init__(self, type: _Optional[_Union[ContainerInfo.Type, str]] = ..., docker: _Optional[_Union[ContainerInfo.DockerInfo, _Mapping]] = ..., mesos: _Optional[_Union[ContainerInfo.MesosInfo, _Mapping]] = ...) -> None: ...

class ContainerStatus(_message.Message):
    __slots__ = ("container_id", "executor_pid")
    CONTAINER_ID_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_PID_FIELD_NUMBER: _ClassVar[int]
    container_id: ContainerID
    executor_pid: int
    def __init__(self, container_id: _Optional[_Union[ContainerID, _Mapping]] = ..., executor_pid: _Optional[int] = ...) -> None: ...

class Labels(_message.Message):
    __slots__ = ("labels",)
    LABELS_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.RepeatedCompositeFieldContainer[Label]
    def __init__(self, labels: _Optional[_Iterable[_Union[Label, _Mapping]]] = ...) -> None: ...

class Label(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Port(_message.Message):
    __slots__ = ("number", "name", "protocol", "visibility", "labels")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    number: int
    name: str
    protocol: str
    visibility: DiscoveryInfo.Visibility
    labels: Labels
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., protocol: _Optional[str] = ..., visibility: _Optional[_Union[DiscoveryInfo.Visibility, str]] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ...) -> None: ...

class Ports(_message.Message):
    __slots__ = ("ports",)
    PORTS_FIELD_NUMBER: _ClassVar[int]
    ports: _containers.RepeatedCompositeFieldContainer[Port]
    def __init__(self, ports: _Optional[_Iterable[_Union[Port, _Mapping]]] = ...) -> None: ...

class DiscoveryInfo(_message.Message):
    __slots__ = ("visibility", "name", "environment", "location", "version", "ports", "labels")
    class Visibility(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FRAMEWORK: _ClassVar[DiscoveryInfo.Visibility]
        CLUSTER: _ClassVar[DiscoveryInfo.Visibility]
        EXTERNAL: _ClassVar[DiscoveryInfo.Visibility]
    FRAMEWORK: DiscoveryInfo.Visibility
    CLUSTER: DiscoveryInfo.Visibility
    EXTERNAL: DiscoveryInfo.Visibility
    VISIBILITY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    visibility: DiscoveryInfo.Visibility
    name: str
    environment: str
    location: str
    version: str
    ports: Ports
    labels: Labels
    def __init__(self, visibility: _Optional[_Union[DiscoveryInfo.Visibility, str]] = ..., name: _Optional[str] = ..., environment: _Optional[str] = ..., location: _Optional[str] = ..., version: _Optional[str] = ..., ports: _Optional[_Union[Ports, _Mapping]] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ...) -> None: ...

class WeightInfo(_message.Message):
    __slots__ = ("weight", "role")
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    weight: float
    role: str
    def __init__(self, weight: _Optional[float] = ..., role: _Optional[str] = ...) -> None: ...

class VersionInfo(_message.Message):
    __slots__ = ("version", "build_date", "build_time", "build_user", "git_sha", "git_branch", "git_tag")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BUILD_DATE_FIELD_NUMBER: _ClassVar[int]
    BUILD_TIME_FIELD_NUMBER: _ClassVar[int]
    BUILD_USER_FIELD_NUMBER: _ClassVar[int]
    GIT_SHA_FIELD_NUMBER: _ClassVar[int]
    GIT_BRANCH_FIELD_NUMBER: _ClassVar[int]
    GIT_TAG_FIELD_NUMBER: _ClassVar[int]
    version: str
    build_date: str
    build_time: float
    build_user: str
    git_sha: str
    git_branch: str
    git_tag: str
    def __init__(self, version: _Optional[str] = ..., build_date: _Optional[str] = ..., build_time: _Optional[float] = ..., build_user: _Optional[str] = ..., git_sha: _Optional[str] = ..., git_branch: _Optional[str] = ..., git_tag: _Optional[str] = ...) -> None: ...

class Flag(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Role(_message.Message):
    __slots__ = ("name", "weight", "frameworks", "resources")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    FRAMEWORKS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    name: str
    weight: float
    frameworks: _containers.RepeatedCompositeFieldContainer[FrameworkID]
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    def __init__(self, name: _Optional[str] = ..., weight: _Optional[float] = ..., frameworks: _Optional[_Iterable[_Union[FrameworkID, _Mapping]]] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ...) -> None: ...

class Metric(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

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
    OFFERS: Event.Type
    RESCIND: Event.Type
    UPDATE: Event.Type
    UPDATE_OPERATION_STATUS: Event.Type
    MESSAGE: Event.Type
    FAILURE: Event.Type
    ERROR: Event.Type
    HEARTBEAT: Event.Type
    class Subscribed(_message.Message):
        framework_id: _mesos_pb2.FrameworkID
        heartbeat_interval_seconds: float
        master_info: _mesos_pb2.MasterInfo
        def __init__(self, framework_id: _Optional[_Union[_mesos_pb2.FrameworkID, _Mapping]] = ..., heartbeat_interval_seconds: _Optional[float] = ..., master_info: _Optional[_Union[_mesos_pb2.MasterInfo, _Mapping]] = ...) -> None: ...
    class Offers(_message.Message):
        offers: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.Offer]
        def __init__(self, offers: _Optional[_Iterable[_Union[_mesos_pb2.Offer, _Mapping]]] = ...) -> None: ...
    class Rescind(_message.Message):
        offer_id: _mesos_pb2.OfferID
        def __init__(self, offer_id: _Optional[_Union[_mesos_pb2.OfferID, _Mapping]] = ...) -> None: ...
    class Update(_message.Message):
        status: _mesos_pb2.TaskStatus
        def __init__(self, status: _Optional[_Union[_mesos_pb2.TaskStatus, _Mapping]] = ...) -> None: ...
    class UpdateOperationStatus(_message.Message):
        status: _mesos_pb2.OperationStatus
        def __init__(self, status: _Optional[_Union[_mesos_pb2.OperationStatus, _Mapping]] = ...) -> None: ...
    class Message(_message.Message):
        agent_id: _mesos_pb2.AgentID
        executor_id: _mesos_pb2.ExecutorID
        data: bytes
        def __init__(self, agent_id: _Optional[_Union[_mesos_pb2.AgentID, _Mapping]] = ..., executor_id: _Optional[_Union[_mesos_pb2.ExecutorID, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...
    class Failure(_message.Message):
        agent_id: _mesos_pb2.AgentID
        executor_id: _mesos_pb2.ExecutorID
        status: int
        def __init__(self, agent_id: _Optional[_Union[_mesos_pb2.AgentID, _Mapping]] = ..., executor_id: _Optional[_Union[_mesos_pb2.ExecutorID, _Mapping]] = ..., status: _Optional[int] = ...) -> None: ...
    class Error(_message.Message):
        message: str
        def __init__(self, message: _Optional[str] = ...) -> None: ...
    type: Event.Type
    subscribed: Event.Subscribed
    offers: Event.Offers
    rescind: Event.Rescind
    update: Event.Update
    update_operation_status: Event.UpdateOperationStatus
    message: Event.Message
    failure: Event.Failure
    error: Event.Error
    def __init__(self, type: _Optional[_Union[Event.Type, str]] = ..., subscribed: _Optional[_Union[Event.Subscribed, _Mapping]] = ..., offers: _Optional[_Union[Event.Offers, _Mapping]] = ..., rescind: _Optional[_Union[Event.Rescind, _Mapping]] = ..., update: _Optional[_Union[Event.Update, _Mapping]] = ..., update_operation_status: _Optional[_Union[Event.UpdateOperationStatus, _Mapping]] = ..., message: _Optional[_Union[Event.Message, _Mapping]] = ..., failure: _Optional[_Union[Event.Failure, _Mapping]] = ..., error: _Optional[_Union[Event.Error, _Mapping]] = ...) -> None: ...

class Call(_message.Message):
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper): ...
    UNKNOWN: Call.Type
    SUBSCRIBE: Call.Type
    TEARDOWN: Call.Type
    ACCEPT: Call.Type
    DECLINE: Call.Type
    ACCEPT_INVERSE_OFFERS: Call.Type
    DECLINE_INVERSE_OFFERS: Call.Type
    REVIVE: Call.Type
    KILL: Call.Type
    SHUTDOWN: Call.Type
    ACKNOWLEDGE: Call.Type
    ACKNOWLEDGE_OPERATION_STATUS: Call.Type
    RECONCILE: Call.Type
    RECONCILE_OPERATIONS: Call.Type
    MESSAGE: Call.Type
    REQUEST: Call.Type
    SUPPRESS: Call.Type
    UPDATE_FRAMEWORK: Call.Type
    class Subscribe(_message.Message):
        framework_info: _mesos_pb2.FrameworkInfo
        suppressed_roles: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, framework_info: _Optional[_Union[_mesos_pb2.FrameworkInfo, _Mapping]] = ..., suppressed_roles: _Optional[_Iterable[str]] = ...) -> None: ...
    class Accept(_message.Message):
        offer_ids: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.OfferID]
        operations: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.Offer.Operation]
        filters: _mesos_pb2.Filters
        def __init__(self, offer_ids: _Optional[_Iterable[_Union[_mesos_pb2.OfferID, _Mapping]]] = ..., operations: _Optional[_Iterable[_Union[_mesos_pb2.Offer.Operation, _Mapping]]] = ..., filters: _Optional[_Union[_mesos_pb2.Filters, _Mapping]] = ...) -> None: ...
    class Decline(_message.Message):
        offer_ids: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.OfferID]
        filters: _mesos_pb2.Filters
        def __init__(self, offer_ids: _Optional[_Iterable[_Union[_mesos_pb2.OfferID, _Mapping]]] = ..., filters: _Optional[_Union[_mesos_pb2.Filters, _Mapping]] = ...) -> None: ...
    class AcceptInverseOffers(_message.Message):
        inverse_offer_ids: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.OfferID]
        filters: _mesos_pb2.Filters
        def __init__(self, inverse_offer_ids: _Optional[_Iterable[_Union[_mesos_pb2.OfferID, _Mapping]]] = ..., filters: _Optional[_Union[_mesos_pb2.Filters, _Mapping]] = ...) -> None: ...
    class DeclineInverseOffers(_message.Message):
        inverse_offer_ids: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.OfferID]
        filters: _mesos_pb2.Filters
        def __init__(self, inverse_offer_ids: _Optional[_Iterable[_Union[_mesos_pb2.OfferID, _Mapping]]] = ..., filters: _Optional[_Union[_mesos_pb2.Filters, _Mapping]] = ...) -> None: ...
    class Revive(_message.Message):
        roles: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, roles: _Optional[_Iterable[str]] = ...) -> None: ...
    class Kill(_message.Message):
        task_id: _mesos_pb2.TaskID
        agent_id: _mesos_pb2.AgentID
        kill_policy: _mesos_pb2.KillPolicy
        def __init__(self, task_id: _Optional[_Union[_mesos_pb2.TaskID, _Mapping]] = ..., agent_id: _Optional[_Union[_mesos_pb2.AgentID, _Mapping]] = ..., kill_policy: _Optional[_Union[_mesos_pb2.KillPolicy, _Mapping]] = ...) -> None: ...
    class Shutdown(_message.Message):
        executor_id: _mesos_pb2.ExecutorID
        agent_id: _mesos_pb2.AgentID
        def __init__(self, executor_id: _Optional[_Union[_mesos_pb2.ExecutorID, _Mapping]] = ..., agent_id: _Optional[_Union[_mesos_pb2.AgentID, _Mapping]] = ...) -> None: ...
    class Acknowledge(_message.Message):
        agent_id: _mesos_pb2.AgentID
        task_id: _mesos_pb2.TaskID
        uuid: bytes
        def __init__(self, agent_id: _Optional[_Union[_mesos_pb2.AgentID, _Mapping]] = ..., task_id: _Optional[_Union[_mesos_pb2.TaskID, _Mapping]] = ..., uuid: _Optional[bytes] = ...) -> None: ...
    class AcknowledgeOperationStatus(_message.Message):
        agent_id: _mesos_pb2.AgentID
        resource_provider_id: _mesos_pb2.ResourceProviderID
        uuid: bytes
        operation_id: _mesos_pb2.OperationID
        def __init__(self, agent_id: _Optional[_Union[_mesos_pb2.AgentID, _Mapping]] = ..., resource_provider_id: _Optional[_Union[_mesos_pb2.ResourceProviderID, _Mapping]] = ..., uuid: _Optional[bytes] = ..., operation_id: _Optional[_Union[_mesos_pb2.OperationID, _Mapping]] = ...) -> None: ...
    class Reconcile(_message.Message):
        class Task(_message.Message):
            task_id: _mesos_pb2.TaskID
            agent_id: _mesos_pb2.AgentID
            def __init__(self, task_id: _Optional[_Union[_mesos_pb2.TaskID, _Mapping]] = ..., agent_id: _Optional[_Union[_mesos_pb2.AgentID, _Mapping]] = ...) -> None: ...
        tasks: _containers.RepeatedCompositeFieldContainer[Call.Reconcile.Task]
        def __init__(self, tasks: _Optional[_Iterable[_Union[Call.Reconcile.Task, _Mapping]]] = ...) -> None: ...
    class ReconcileOperations(_message.Message):
        class Operation(_message.Message):
            operation_id: _mesos_pb2.OperationID
            agent_id: _mesos_pb2.AgentID
            resource_provider_id: _mesos_pb2.ResourceProviderID
            def __init__(self, operation_id: _Optional[_Union[_mesos_pb2.OperationID, _Mapping]] = ..., agent_id: _Optional[_Union[_mesos_pb2.AgentID, _Mapping]] = ..., resource_provider_id: _Optional[_Union[_mesos_pb2.ResourceProviderID, _Mapping]] = ...) -> None: ...
        operations: _containers.RepeatedCompositeFieldContainer[Call.ReconcileOperations.Operation]
        def __init__(self, operations: _Optional[_Iterable[_Union[Call.ReconcileOperations.Operation, _Mapping]]] = ...) -> None: ...
    class Message(_message.Message):
        agent_id: _mesos_pb2.AgentID
        executor_id: _mesos_pb2.ExecutorID
        data: bytes
        def __init__(self, agent_id: _Optional[_Union[_mesos_pb2.AgentID, _Mapping]] = ..., executor_id: _Optional[_Union[_mesos_pb2.ExecutorID, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...
    class Request(_message.Message):
        requests: _containers.RepeatedCompositeFieldContainer[_mesos_pb2.Request]
        def __init__(self, requests: _Optional[_Iterable[_Union[_mesos_pb2.Request, _Mapping]]] = ...) -> None: ...
    class Suppress(_message.Message):
        roles: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, roles: _Optional[_Iterable[str]] = ...) -> None: ...
    class UpdateFramework(_message.Message):
        framework_info: _mesos_pb2.FrameworkInfo
        suppressed_roles: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, framework_info: _Optional[_Union[_mesos_pb2.FrameworkInfo, _Mapping]] = ..., suppressed_roles: _Optional[_Iterable[str]] = ...) -> None: ...
    framework_id: _mesos_pb2.FrameworkID
    type: Call.Type
    subscribe: Call.Subscribe
    accept: Call.Accept
    decline: Call.Decline
    accept_inverse_offers: Call.AcceptInverseOffers
    decline_inverse_offers: Call.DeclineInverseOffers
    revive: Call.Revive
    kill: Call.Kill
    shutdown: Call.Shutdown
    acknowledge: Call.Acknowledge
    acknowledge_operation_status: Call.AcknowledgeOperationStatus
    reconcile: Call.Reconcile
    reconcile_operations: Call.ReconcileOperations
    message: Call.Message
    request: Call.Request
    suppress: Call.Suppress
    update_framework: Call.UpdateFramework
    def __init__(self, framework_id: _Optional[_Union[_mesos_pb2.FrameworkID, _Mapping]] = ..., type: _Optional[_Union[Call.Type, str]] = ..., subscribe: _Optional[_Union[Call.Subscribe, _Mapping]] = ..., accept: _Optional[_Union[Call.Accept, _Mapping]] = ..., decline: _Optional[_Union[Call.Decline, _Mapping]] = ..., accept_inverse_offers: _Optional[_Union[Call.AcceptInverseOffers, _Mapping]] = ..., decline_inverse_offers: _Optional[_Union[Call.DeclineInverseOffers, _Mapping]] = ..., revive: _Optional[_Union[Call.Revive, _Mapping]] = ..., kill: _Optional[_Union[Call.Kill, _Mapping]] = ..., shutdown: _Optional[_Union[Call.Shutdown, _Mapping]] = ..., acknowledge: _Optional[_Union[Call.Acknowledge, _Mapping]] = ..., acknowledge_operation_status: _Optional[_Union[Call.AcknowledgeOperationStatus, _Mapping]] = ..., reconcile: _Optional[_Union[Call.Reconcile, _Mapping]] = ..., reconcile_operations: _Optional[_Union[Call.ReconcileOperations, _Mapping]] = ..., message: _Optional[_Union[Call.Message, _Mapping]] = ..., request: _Optional[_Union[Call.Request, _Mapping]] = ..., suppress: _Optional[_Union[Call.Suppress, _Mapping]] = ..., update_framework: _Optional[_Union[Call.UpdateFramework, _Mapping]] = ...) -> None: ...

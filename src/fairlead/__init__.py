"""fairlead: shares machines among people by Dominant Resource Fairness.

Public names are imported on first use, so that `import fairlead` is cheap.
"""

__version__ = "0.2.0"

TYPE_CHECKING = False  # not `typing`'s, which takes a moment that a command begins with
if TYPE_CHECKING:
    from typing import Any

    from fairlead.client.aio import AsyncClient
    from fairlead.client.checkpoint import checkpointed
    from fairlead.client.executor import Client
    from fairlead.client.jobs import SubmittedJob
    from fairlead.client.parallel import register_joblib
    from fairlead.client.results import CallFailed, SchedulerGone
    from fairlead.client.service_error import ServiceError
    from fairlead.model.documents import DocumentError
    from fairlead.model.problems import Problem
    from fairlead.policies.allocation import Allocation, allocate
    from fairlead.policies.contract import PolicyError

_WHERE = {
    "Allocation": "fairlead.policies.allocation",
    "DocumentError": "fairlead.model.documents",
    "PolicyError": "fairlead.policies.contract",
    "Problem": "fairlead.model.problems",
    "allocate": "fairlead.policies.allocation",
    "checkpointed": "fairlead.client.checkpoint",
    "AsyncClient": "fairlead.client.aio",
    "CallFailed": "fairlead.client.results",
    "Client": "fairlead.client.executor",
    "SchedulerGone": "fairlead.client.results",
    "ServiceError": "fairlead.client.service_error",
    "SubmittedJob": "fairlead.client.jobs",
    "register_joblib": "fairlead.client.parallel",
}

__all__ = [
    "Allocation", "AsyncClient", "CallFailed", "Client", "DocumentError", "PolicyError", "Problem", "SchedulerGone",
    "ServiceError", "SubmittedJob", "__version__", "allocate", "checkpointed", "register_joblib",
]  # fmt: skip


def __getattr__(name: str) -> "Any":
    if name not in _WHERE:
        raise AttributeError(f"module 'fairlead' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return __all__

"""A joblib backend: `fairlead.register_joblib()`, then `with joblib.parallel_config("fairlead", queue="lab"): ...`."""

import os
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import joblib
from joblib.parallel import AutoBatchingMixin, ParallelBackendBase

from fairlead.calls.wire import SLICE_SECONDS
from fairlead.client.executor import Client


class FairleadBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs each batch as a call; `parallel_config` takes the parameters of :class:`fairlead.Client`."""

    MIN_IDEAL_BATCH_DURATION = SLICE_SECONDS
    MAX_IDEAL_BATCH_DURATION = 10 * SLICE_SECONDS
    supports_retrieve_callback = True
    supports_inner_max_num_threads = False
    default_n_jobs = -1

    def __init__(self, nesting_level: int | None = None, **parameters: Any) -> None:
        super().__init__(nesting_level=nesting_level)
        self._parameters = parameters
        self._clients: dict[int, tuple[Client, weakref.finalize[..., Any]]] = {}  # by process: a forked one makes its own

    def _client(self) -> Client:
        """Return the client, which stays while this backend is there: so do its workers, from one `Parallel` to the next."""
        process = os.getpid()
        if process not in self._clients:
            client = Client(**self._parameters)
            self._clients[process] = client, weakref.finalize(self, client.shutdown, wait=False)
        return self._clients[process][0]

    def configure(self, n_jobs: int = 1, *, parallel: Any, **_: Any) -> int:
        self.parallel = weakref.proxy(parallel)  # it refers to us: a cycle would keep the client until garbage is collected
        return self.effective_n_jobs(n_jobs)

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return `n_jobs`; for -1, how many such calls fit on the cluster's nodes."""
        return n_jobs if n_jobs is not None and n_jobs > 0 else self._client().capacity()

    def submit(self, func: Callable[[], Any], callback: Callable[[Future[Any]], None] | None = None) -> Future[Any]:
        future = self._client().executor().submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        if found := self._clients.pop(os.getpid(), None):
            client, end = found
            end.detach()
            client.shutdown(wait=False, cancel_futures=True)

    def terminate(self) -> None:
        self.reset_batch_stats()


def register_joblib() -> None:
    """Register the joblib backend ``"fairlead"``."""
    joblib.register_parallel_backend("fairlead", FairleadBackend)

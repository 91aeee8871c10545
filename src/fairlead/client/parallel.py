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

OF_JOBLIB = {"context", "max_nbytes", "mmap_mode", "prefer", "require", "temp_folder", "verbose"}
"""What joblib gives each backend; the rest is what `Parallel` was given for this one."""


class FairleadBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs each batch as a call; `parallel_config` and `Parallel` take the parameters of :class:`fairlead.Client`."""

    MIN_IDEAL_BATCH_DURATION = SLICE_SECONDS
    MAX_IDEAL_BATCH_DURATION = 10 * SLICE_SECONDS
    supports_retrieve_callback = True
    supports_inner_max_num_threads = False
    default_n_jobs = -1

    def __init__(self, nesting_level: int | None = None, **parameters: Any) -> None:
        super().__init__(nesting_level=nesting_level)
        self._parameters = self._wanted = parameters
        self._clients: dict[str, tuple[Client, weakref.finalize[..., Any]]] = {}

    def _key(self) -> str:
        """Name what a client serves: a forked process makes its own, and so does a `Parallel` with other parameters."""
        return f"{os.getpid()} {self._wanted}"

    def _client(self) -> Client:
        """Return the client, which stays while this backend is there: so do its workers, from one `Parallel` to the next."""
        if (key := self._key()) not in self._clients:
            client = Client(**self._wanted)
            self._clients[key] = client, weakref.finalize(self, client.shutdown, wait=False)
        return self._clients[key][0]

    def configure(self, n_jobs: int = 1, *, parallel: Any, **more: Any) -> int:
        self.parallel = weakref.proxy(parallel)  # it refers to us: a cycle would keep the client until garbage is collected
        self._wanted = self._parameters | {name: value for name, value in more.items() if name not in OF_JOBLIB}
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
        if found := self._clients.pop(self._key(), None):
            client, end = found
            end.detach()
            client.shutdown(wait=False, cancel_futures=True)

    def terminate(self) -> None:
        self.reset_batch_stats()


def register_joblib() -> None:
    """Register the joblib backend ``"fairlead"``."""
    joblib.register_parallel_backend("fairlead", FairleadBackend)

"""Kernels built with AddressSanitizer and UBSan, and the tests over them: `make check-memory`.

A kernel checks no index. Built like this, it ends the process with a report where it reads or writes outside an array, or does
what C leaves undefined. The build lies in `build/checked`. It stands in for the normal one where this module is imported in a
process that has AddressSanitizer's library.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
BUILT = ROOT / "build" / "checked"
SCHEDULING = "fairlead.scheduler.kernel.scheduling"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
# Without optimisation it is built in half the time, and no access is optimised away before it is checked. An access is checked by
# a call, not in place: there is a fifth less to compile.
FLAGS = ["-O0", "-g1", "-fwrapv", "-ffp-contract=off", "-fvisibility=hidden", "-Wno-all", *SANITIZERS]
FLAGS += ["--param", "asan-instrumentation-with-call-threshold=0"]
# Those that call kernels in the process of the test.
TESTS = [
    "below_guarantee", "claims", "claims_in_trees", "claims_kept", "crash", "easy_in_order", "entitled", "explain",
    "fading_policies", "forecasts", "history", "in_line", "keys", "let_in", "offers", "outlook", "oversized_victims", "parcels",
    "policies", "queues_over_time", "reservations", "reserved_bounds", "reserved_ends", "same_decisions", "scaled_guarantees",
    "scheduling", "simulate", "simulated_cluster", "simulated_frameworks", "state_machine", "step", "tables", "used", "yarn",
]  # fmt: skip


def library(name: str = "libasan.so") -> str | None:
    """Where GCC has a library, or AddressSanitizer's; None where one of the two is missing."""
    if not shutil.which("gcc"):
        return None
    asked = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=False)
    path = Path(asked.stdout.strip()).resolve()
    return str(path) if path.is_file() and path.read_bytes()[:4] == b"\x7fELF" else None


def build(*only: str) -> None:
    """Build all modules of kernels, or some, where they are out of date."""
    from setup import in_c, kernels
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    class Checked(build_ext):
        def build_extensions(self) -> None:
            in_c(self.extensions)
            super().build_extensions()

    os.environ["CC"] = "gcc"
    BUILT.mkdir(parents=True, exist_ok=True)
    modules = [each for each in kernels() if not only or each.name in only]
    for module in modules:
        module.extra_compile_args, module.extra_link_args, module.depends = FLAGS, SANITIZERS, [__file__]
    command = Checked(Distribution({"ext_modules": modules}))
    command.build_lib, command.build_temp, command.parallel = str(BUILT), str(BUILT / "objects"), os.cpu_count()
    command.ensure_finalized()
    with (BUILT / "lock").open("w") as lock:  # of what builds at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        command.run()


def environment(**more: str) -> dict[str, str]:
    """In which a Python can load the checked kernels."""
    return {
        **os.environ,
        # AddressSanitizer looks for what throws C++'s exceptions when it is loaded.
        "LD_PRELOAD": f"{library() or ''} {library('libstdc++.so.6') or ''}",
        "ASAN_OPTIONS": "detect_leaks=0",  # Python leaves much to the end of its process
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",  # Python's own would put many objects into one block
        "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT}",
        **more,
    }


class Finder:
    """Finds the checked kernels before the normal ones."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        files = [BUILT / f"{name.replace('.', '/')}{suffix}" for suffix in EXTENSION_SUFFIXES]
        return next((spec_from_file_location(name, file) for file in files if file.is_file()), None)


def use() -> None:
    """Have the checked kernels stand in, and tables end with their last row: what lies behind it is no one's."""
    from fairlead.scheduler.order import Order
    from fairlead.scheduler.tables import Table

    extend, allot = Table.extend, Order._allocate_slots

    def extend_exactly(table: Table, count: int) -> int:
        first = extend(table, count)
        if len(table.rows) > table.n:
            table.keep(np.arange(table.n))
        return first

    def allot_exactly(order: Order, slots: int) -> int:
        base = allot(order, slots)
        order._resize_trees(order.places, order.places)
        return base

    Table.extend, Order._allocate_slots = extend_exactly, allot_exactly


if "libasan" in os.environ.get("LD_PRELOAD", ""):
    sys.meta_path.insert(0, Finder)
    use()


if __name__ == "__main__":
    if not library():
        raise SystemExit("make: GCC with AddressSanitizer is needed: install gcc and libasan")
    build()
    command = [sys.executable, "-m", "pytest", "-p", "checked_kernels", "-n", "auto", "--timeout", "0"]
    seen = ["--hypothesis-profile=ci", "--capture=sys", "-p", "no:faulthandler"]  # no deadlines; reports are seen
    tests = [f"tests/test_{name}.py" for name in TESTS]
    os.execve(sys.executable, [*command, *seen, *tests], environment(FAIRLEAD_FUZZ="2000"))

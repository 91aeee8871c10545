"""Build the kernels: all `kernel/*.pyx` below `src/fairlead`, compiled ahead. pip and uv call this, and so does `make`.

`build/kernels` holds what is made on the way: constants and structs from Python's declarations, and the C. Where there is no C
compiler, the one that `ziglang` brings from PyPI is used.
"""

import gc
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

MADE = Path("build", "kernels")
FLAGS = [
    "-O3",
    "-fwrapv",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-g0",
    "-Wno-all",
]  # the same floats on every machine
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "infer_types": True,
    "allow_none_for_extension_args": False,
    "auto_pickle": False,
    "binding": False,
}


class Kernels(build_ext):
    """Make the C, say in one line what is missing, and find a compiler."""

    def build_extensions(self) -> None:
        if not Path(sysconfig.get_path("include"), "Python.h").is_file():
            raise SystemExit(
                f"fairlead: Python.h of {sys.executable} is missing: install python3-dev (python3-devel), "
                "or name a Python that has it: make PYTHON=/path/to/python3"
            )
        if not has_compiler():
            os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(Path("build", "zig").absolute()))
            self.announce("fairlead: no C compiler here: ziglang compiles the kernels; its cache is build/zig", level=3)
            zig = [sys.executable, "-m", "ziglang", "cc"]
            self.compiler.set_executables(
                compiler=zig, compiler_so=[*zig, "-fPIC"], linker_so=[*zig, "-shared"], compiler_cxx=zig, linker_exe=zig
            )
        in_c(self.extensions)
        if is_gcc(self.compiler.compiler_so[0]):
            for module in self.extensions:  # what a module compiles to is optimised in parts, on all cores
                module.extra_compile_args.append("-flto=auto")
                module.extra_link_args += ["-O3", "-flto=auto"]
        self.parallel = self.parallel or os.cpu_count()
        super().build_extensions()


def has_compiler() -> bool:
    """Whether a C compiler is on the PATH."""
    return any(shutil.which(name) for name in (os.environ.get("CC", "cc").split()[0], "gcc", "clang"))


def kernels() -> list[Extension]:
    """Every module of kernels."""
    return [
        Extension(
            ".".join(path.relative_to("src").with_suffix("").parts),
            [str(path)],
            include_dirs=[str(MADE)],
            extra_compile_args=FLAGS,
        )
        for path in sorted(Path("src", "fairlead").glob("**/kernel/*.pyx"))
    ]


def is_gcc(compiler: str) -> bool:
    """Whether a command is GCC, by whatever name."""
    return (
        "Free Software Foundation"
        in subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    )


def in_c(modules: list[Extension]) -> None:
    """Give modules their C, made anew where it is out of date. An sdist brings it."""
    if Path("PKG-INFO").is_file():
        for module in modules:
            module.sources = [str(MADE / Path(module.sources[0]).relative_to("src").with_suffix(".c"))]
        return
    sys.path.insert(0, "src")
    from Cython.Build import cythonize

    from fairlead.scheduler.kernel.declarations import write

    write(MADE)
    gc.disable()  # it would take a quarter of the time, and Cython ends before it needs the room
    made = cythonize(
        modules, build_dir=str(MADE), include_path=[str(MADE)], compiler_directives=DIRECTIVES, quiet=True,
        nthreads=os.cpu_count() or 1,
    )  # fmt: skip
    gc.enable()
    for module, of_c in zip(modules, made, strict=True):
        module.sources = of_c.sources


if __name__ == "__main__":
    setup(
        ext_modules=kernels(),
        cmdclass={"build_ext": Kernels},
        setup_requires=[] if has_compiler() else ["ziglang"],
        # The manual page and the shells' completion.
        data_files=[
            (str(folder), [str(each) for each in folder.iterdir() if each.is_file()])
            for folder in (Path("share"), *Path("share").glob("**/*"))
            if folder.is_dir()
        ],
    )

"""Build the kernels: all `kernel/*.pyx` below `src/fairlead`, compiled ahead. pip and uv call this, and so does `make`.

`build/kernels` holds what is made on the way: constants and structs from Python's declarations, and the C. Where there is no C
compiler, the one that `ziglang` brings from PyPI is used. The modules keep to the stable ABI: one build serves every Python.
"""

import gc
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

MADE = Path("build", "kernels")
FLAGS = ["-O3", "-fwrapv", "-ffp-contract=off", "-fvisibility=hidden", "-g0", "-Wno-all"]  # the same floats on every machine
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

    def run(self) -> None:
        headers = sysconfig.get_path("include")
        if not Path(headers, "Python.h").is_file():
            version = sysconfig.get_python_version()
            raise SystemExit(
                f"fairlead: {headers}/Python.h is missing: install python{version}-dev (Fedora: python3-devel), "
                "or use a Python that has it"
            )
        if found := compiler():
            os.environ["CC"] = found
        super().run()

    def build_extensions(self) -> None:
        if not compiler():
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


class WithC(sdist):
    """Put the C into the sdist, so that setuptools and a C compiler build it."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        in_c(kernels())
        for made in (*MADE.glob("*.h"), *MADE.glob("src/**/*.c")):
            target = Path(base_dir, made)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(made, target)


def compiler() -> str | None:
    """The command of a C compiler that is here: what CC names, else what Python was built with, else any."""
    for command in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        if command and shutil.which(shlex.split(command)[0]):
            return command
    return None


def kernels() -> list[Extension]:
    """Every module of kernels."""
    return [
        Extension(
            ".".join(path.relative_to("src").with_suffix("").parts),
            [str(path)],
            include_dirs=[str(MADE)],
            define_macros=[("Py_LIMITED_API", "0x030b0000")],
            py_limited_api=True,
            extra_compile_args=FLAGS,
        )
        for path in sorted(Path("src", "fairlead").glob("**/kernel/*.pyx"))
    ]


def is_gcc(compiler: str) -> bool:
    """Whether a command is GCC, by whatever name."""
    return (
        "Free Software Foundation" in subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    )


def in_c(modules: list[Extension]) -> None:
    """Give modules their C, made anew where it is out of date. An sdist brings it."""
    if Path("PKG-INFO").is_file():
        for module in modules:
            module.sources = [str(MADE / Path(module.sources[0]).with_suffix(".c"))]
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
        module.sources, module.depends = of_c.sources, [str(header) for header in MADE.glob("*.h")]


if __name__ == "__main__":
    setup(
        ext_modules=kernels(),
        cmdclass={"build_ext": Kernels, "sdist": WithC},
        options={"bdist_wheel": {"py_limited_api": "cp311"}},
        setup_requires=[] if compiler() else ["ziglang"],
        # The manual page, the shells' completion, and mappings of columns.
        data_files=[
            (str(folder), [str(each) for each in folder.iterdir() if each.is_file()])
            for folder in (Path("share"), *Path("share").glob("**/*"))
            if folder.is_dir()
        ],
    )

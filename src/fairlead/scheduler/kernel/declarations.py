"""Generates what kernels know of Python: constants as a C header, arrays as structs and extension types. Run by the build.

Each constant and each column of a table is declared once, in Python. This writes

    NAME.h, NAME.pxd    constants: integers, floats, and tables of them; ``from NAME cimport *`` in a kernel
    NAME.pxi            for a `.pxd`: the structs, and an extension type for each set of arrays
    NAME_types.pxi      for the `.pyx` beside it: how such a type finds its arrays' addresses

An extension type holds for each array a pointer, `len_NAME` and, in two dimensions, `cols_NAME`. The arrays themselves
are Python attributes of the same names.
"""

import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

_C = {"i8": "i64", "i4": "int32_t", "i2": "int16_t", "i1": "int8_t", "f8": "double", "f4": "float", "b1": "flag"}


def write_if_new(path: Path, text: str) -> None:
    """Write a file unless it has that text already, so that nothing is compiled again for it."""
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)


def constants(folder: Path, name: str, values: Mapping[str, Any]) -> None:
    """Write constants, as `NAME.h` and `NAME.pxd`."""
    head = [f"#ifndef FAIRLEAD_{name.upper()}_H", f"#define FAIRLEAD_{name.upper()}_H", "#include <stdint.h>"]
    declared = ["from libc.stdint cimport int64_t", "", f'cdef extern from "{name}.h":']
    for key, value in values.items():
        if isinstance(value, tuple):
            kind = "double" if any(isinstance(x, float) for x in np.ravel(value).tolist()) else "int64_t"
            shape = "".join(f"[{n}]" for n in np.shape(value))
            head.append(f"static const {kind} {name.upper()}_{key}{shape} = {_as_c(value)};")
            declared.append(f'    const {kind} {key} "{name.upper()}_{key}"{shape}')
        else:
            head.append(f"#define {name.upper()}_{key} {_as_c(value)}")
            declared.append(f'    {"double" if isinstance(value, float) else "int64_t"} {key} "{name.upper()}_{key}"')
    head.append("#endif")
    write_if_new(folder / f"{name}.h", "\n".join(head) + "\n")
    write_if_new(folder / f"{name}.pxd", "\n".join(declared) + "\n")


def _as_c(value: Any) -> str:
    if isinstance(value, tuple):
        return "{" + ", ".join(_as_c(x) for x in value) + "}"
    return f"({value!r})" if isinstance(value, float) else f"INT64_C({int(value)})"


def constants_of(*modules: Any) -> dict[str, Any]:
    """Return the constants of modules: all names in capitals for a number or a tuple of numbers."""
    found: dict[str, Any] = {}
    for module in modules:
        for name, value in vars(module).items():
            if name.isupper() and not name.startswith("_") and _is_number(value):
                if name in found and found[name] != value:
                    raise ValueError(f"{module.__name__}: {name} stands for something else in another module")
                found[name] = value
    return found


def _is_number(value: Any) -> bool:
    if isinstance(value, tuple):
        return len(value) > 0 and all(_is_number(x) for x in value)
    return isinstance(value, int | float) and not isinstance(value, bool)


def types(folder: Path, name: str, sets: Mapping[str, Mapping[str, tuple[Any, int]]]) -> None:
    """Write the extension types for sets of arrays, as `NAME.pxi` and `NAME_types.pxi`."""
    declared: list[str] = []
    made: list[str] = []
    for kind, arrays in sets.items():
        for array, (of, _) in arrays.items():
            columns = np.dtype(of)
            if columns.names:
                declared += [f"cdef struct {_row(kind, array)}:", *_columns(columns), ""]
        declared.append(f"cdef class {kind}(Arrays):")
        made += [f"cdef class {kind}(Arrays):", f"    ARRAYS = {_constant(kind)}", "", "    cdef void point(self, dict a):"]
        for array, (of, dimensions) in arrays.items():
            c = _row(kind, array) if np.dtype(of).names else _C[np.dtype(of).str[1:]]
            declared.append(f"    cdef {c} *{array}")
            declared.append(f"    cdef i64 len_{array}")
            made.append(f'        self.{array} = <{c} *>address_of(a["{array}"])')
            made.append(f'        self.len_{array} = a["{array}"].shape[0]')
            if dimensions == 2:
                declared.append(f"    cdef i64 cols_{array}")
                made.append(f'        self.cols_{array} = a["{array}"].shape[1]')
        declared.append("")
        made.append("")
    write_if_new(folder / f"{name}.pxi", "\n".join(declared))
    write_if_new(folder / f"{name}_types.pxi", "\n".join(made))


def _constant(kind: str) -> str:
    """Return the name of the constant that declares a type's arrays: PREEMPTION_PLAN for PreemptionPlan."""
    return re.sub("(?<!^)(?=[A-Z])", "_", kind).upper()


def _row(kind: str, array: str) -> str:
    """Return the name of the struct of an array's rows."""
    return f"{kind}_{array}"


def _columns(columns: np.dtype[Any]) -> Iterable[str]:
    for name in columns.names or ():
        of = columns[name]
        count = f"[{of.shape[0]}]" if of.shape else ""
        yield f"    {_C[of.base.str[1:]]} {name}{count}"


def write(folder: Path) -> None:
    """Write the declarations that the `declared` module of each kernel folder lists by file name."""
    folder.mkdir(parents=True, exist_ok=True)
    package = Path(__file__).parents[2]
    for file in sorted(package.glob("**/kernel/declared.py")):
        of = import_module(".".join((package.name, *file.relative_to(package).with_suffix("").parts)))
        for name, values in of.CONSTANTS.items():
            constants(folder, name, values)
        for name, sets in of.TYPES.items():
            types(folder, name, sets)

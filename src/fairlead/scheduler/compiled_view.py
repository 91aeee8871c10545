"""A view in compiled code: one number, the address of a block that says where its arrays are.

``v.jobs`` in a kernel reads that block and has the array at hand, as if it had been passed; but a function takes one argument
instead of forty arrays, which compiles several times as fast and costs next to nothing to call. Nothing is counted or freed here:
whoever calls a kernel keeps the view, and the view its arrays.

An array that is read from a view is indexed from 0 on. An index that is negative, which in numpy counts from the end, would be
wrong there and is not tested for, which would be a fifth of what a decision costs: it reads what is not the array's. With
``NUMBA_BOUNDSCHECK=1`` it is an IndexError. (A row or a part of such an array is one like any other.)
"""

import operator
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate, signature
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_builtin,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np import numpy_support
from numba.np.arrayobj import make_array, populate_array

from fairlead.scheduler.view import Arrays as Arrays  # noqa: PLC0414 kernels have both from here, so that numba knows them
from fairlead.scheduler.view import View as View  # noqa: PLC0414

_WORDS: Final = 3
"""Of each array in the block: its address, and its length in two dimensions."""


class ViewArray(types.Array):
    """The type of an array of a view, and of one field of such an array."""


register_model(ViewArray)(models.ArrayModel)


class ViewType(types.Type):
    """The type of all views of a class: they hold arrays of the same names and types."""

    def __init__(self, name: str, arrays: dict[str, ViewArray]) -> None:
        self.arrays, self.places = arrays, {array: place for place, array in enumerate(arrays)}
        super().__init__(name=f"Fairlead{name}")


_known: dict[str, ViewType] = {}


def _type_of_class(kind: type[Arrays]) -> ViewType:
    if kind.__name__ in _known:
        return _known[kind.__name__]
    arrays = {
        name: ViewArray(numpy_support.from_dtype(np.dtype(of)), dimensions, "C")
        for name, (of, dimensions) in kind.ARRAYS.items()
    }
    return _known.setdefault(kind.__name__, ViewType(kind.__name__, arrays))


register_model(ViewType)(models.OpaqueModel)


@typeof_impl.register(Arrays)
def _type_of(value: Arrays, context: Any) -> ViewType:
    """The type of a view. Its class bears it from then on: numba's dispatcher sees that, and need not ask here at each call."""
    kind = _type_of_class(type(value))
    type(value)._numba_type_ = kind
    return kind


@unbox(ViewType)
def _unbox(kind: ViewType, obj: Any, c: Any) -> NativeValue:
    number = c.pyapi.object_getattr_string(obj, "address")
    address = c.pyapi.long_as_longlong(number)
    c.pyapi.decref(number)
    return NativeValue(c.builder.inttoptr(address, ir.IntType(8).as_pointer()))


@infer_getattr
class _Attributes(AttributeTemplate):
    key = ViewType

    def generic_resolve(self, kind: ViewType, name: str) -> ViewArray | None:  # type: ignore[override]
        return kind.arrays.get(name)


@lower_getattr_generic(ViewType)
def _get_array(context: Any, builder: Any, kind: ViewType, view: Any, name: str) -> Any:
    """Read where an array is, and make one there that nobody owns."""
    array_type = kind.arrays[name]
    word = ir.IntType(64)
    block = builder.bitcast(view, word.as_pointer())

    def read(k: int) -> Any:
        # No kernel changes the block, so one reading of it serves all of a loop, whatever the loop stores elsewhere.
        value = builder.load(builder.gep(block, [word(_WORDS * kind.places[name] + k)]))
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        return value

    itemsize = word(context.get_abi_sizeof(context.get_data_type(array_type.dtype)))
    shape = [read(1 + k) for k in range(array_type.ndim)]
    strides = [itemsize] if array_type.ndim == 1 else [builder.mul(shape[1], itemsize), itemsize]
    array = make_array(array_type)(context, builder)
    data = builder.inttoptr(read(0), context.get_data_type(array_type.dtype).as_pointer())
    populate_array(array, data=data, shape=shape, strides=strides, itemsize=itemsize, meminfo=None)
    return array._getvalue()


@infer_getattr
class _Fields(AttributeTemplate):
    key = ViewArray

    def generic_resolve(self, kind: ViewArray, name: str) -> ViewArray | None:  # type: ignore[override]
        if isinstance(kind.dtype, types.Record) and name in kind.dtype.fields:
            return ViewArray(kind.dtype.typeof(name), kind.ndim, "A")
        return None


@lower_builtin(operator.getitem, ViewArray, types.Integer)
@lower_builtin(operator.getitem, ViewArray, types.BaseTuple)
def _get_item(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    array, index = sig.args
    kind, at = _counted_from_zero(context, builder, index, args[1])
    get = context.get_function(operator.getitem, signature(sig.return_type, array.copy(), kind))
    return get(builder, (args[0], at))


@lower_builtin(operator.setitem, ViewArray, types.Any, types.Any)
def _set_item(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    array, index, value = sig.args
    kind, at = _counted_from_zero(context, builder, index, args[1])
    put = context.get_function(operator.setitem, signature(sig.return_type, array.copy(), kind, value))
    return put(builder, (args[0], at, args[2]))


def _counted_from_zero(context: Any, builder: Any, kind: Any, index: Any) -> tuple[Any, Any]:
    """The same index, its whole numbers as ones without a sign: those numba takes as they are."""
    if isinstance(kind, types.BaseTuple):
        kinds: Any = kind  # for mypy, which knows of no tuple that has parts
        values = cgutils.unpack_tuple(builder, index, len(kind))
        parts = [_counted_from_zero(context, builder, part, value) for part, value in zip(kinds, values, strict=True)]
        unsigned = types.Tuple([part for part, _ in parts])
        return unsigned, context.make_tuple(builder, unsigned, [value for _, value in parts])
    if isinstance(kind, types.Integer):
        return types.uintp, context.cast(builder, index, kind, types.uintp)
    return kind, index

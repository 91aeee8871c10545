"""Checks of a problem's numbers and names, the same for arrays and documents.

An error is a :class:`Fault` with its place: ``user[3].tasks: ...`` is row 3 of an array, or the fourth ``[[user]]`` of a
document, which adds its file and line.
"""

import numbers
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairlead.model.faults import shortened
from fairlead.model.quantity import LARGEST
from fairlead.model.specs import LEAST_WEIGHT

Numbers = NDArray[Any]

LEAST, MOST = 1e-60, 1e60
"""Range of amounts other than 0, so that computed numbers neither overflow nor underflow."""
WIDEST = 1e20
"""Largest ratio of a problem's numbers for which floating point is trusted."""
MOST_MACHINES = 10**9
"""Most machines behind one capacity."""
_WHOLE = 2**53
"""Integers up to this one are exact in float64."""


class Fault(ValueError):
    """An error in a problem: its key, its user (None: not a user's), and the remedy."""

    def __init__(self, key: str, row: int | None, message: str) -> None:
        self.place: tuple[str | int, ...] = (key,) if row is None else ("user", row, key)
        self.message = message
        super().__init__(f"{key if row is None else f'user[{row}].{key}'}: {message}")


def numbers_of(key: str, values: ArrayLike, shape: tuple[int, ...], names: Sequence[str] = ()) -> Numbers:
    """Return numbers as float64, or as an object array if float64 cannot hold them; broadcast to a shape.

    Raises Fault for shapes that do not fit, or a value that is not a finite number.

    key : their key in a document
    shape : the first dimension is users, except for a capacity
    names : names of the columns, if several
    """
    array = values if isinstance(values, np.ndarray) else np.asarray(values, object)
    if array.dtype.kind not in "iufO" and array.size:
        raise Fault(key, None, f"{shown(array.ravel()[0])} is not a number")
    try:
        whole = np.broadcast_to(array, shape)
    except ValueError:
        raise Fault(key, None, f"has shape {array.shape}, not {shape}") from None

    def refuse(wrong: NDArray[np.bool_], what: str) -> None:
        refuse_where(key, np.broadcast_to(wrong, shape), whole, what, names)

    # Check before broadcasting: one number may stand for a million users.
    if array.dtype.kind == "O":
        refuse(~_each(_is_number, array), "not a number")
        refuse(~_each(_is_finite, array), "not a finite number")
        if isinstance(values, np.ndarray) or not all(map(_is_held, array.ravel())):
            return np.broadcast_to(exact_array(map(_own, array.ravel())).reshape(array.shape), shape)
    if array.dtype.kind in "iu" and array.size and max(int(array.max()), -int(array.min())) > _WHOLE:
        return np.broadcast_to(exact_array(int(x) for x in array.ravel()).reshape(array.shape), shape)
    array = array.astype(np.float64) if array.dtype != np.float64 else array
    refuse(~np.isfinite(array), "not a finite number")
    return np.broadcast_to(array, shape)


def amounts_of(
    key: str, values: ArrayLike | None, shape: tuple[int, ...], names: Sequence[str], none: int | None = None
) -> Numbers:
    """Return amounts of 0 or more; `none` is the default, and (-1) may stand for "no limit"."""
    array = numbers_of(key, float(none or 0) if values is None else values, shape, names)
    if values is not None:
        absent = (array == none) if none is not None else np.zeros(shape, np.bool_)
        also = "" if none in (None, 0) else f", or {none} for none"
        refuse_where(key, (array < 0) & ~absent, array, f"not an amount: use 0 or more{also}", names)
        out = (array != 0) & ~absent & ((array < LEAST) | (array > MOST))
        refuse_where(key, out, array, f"out of range: use {LEAST:g} to {MOST:g}, or 0", names)
    return array


def tasks_of(values: ArrayLike | None, users: int) -> Numbers:
    """Return the number of tasks that each user can use; -1: any number."""
    array = numbers_of("tasks", -1.0 if values is None else values, (users,))
    wrong = ((array < 0) & (array != -1)) | (array >= LARGEST)
    refuse_where("tasks", wrong, array, "not a number of tasks: use 0 or more, below 2**62; -1 for any number")
    return array


def weights_of(values: ArrayLike | None, shape: tuple[int, ...], names: Sequence[str]) -> Numbers:
    """Return weights: one number per user, or one per user and resource."""
    if values is None:
        return np.broadcast_to(np.ones(1), shape)
    users = shape[0]
    array = values if isinstance(values, np.ndarray) else np.asarray(values, object)
    if array.ndim == 1 and len(array) == users and users != 1:
        values = array[:, None] if isinstance(values, np.ndarray) else array[:, None].tolist()
    found = numbers_of("weight", values, shape, names)
    least = np.nextafter(LEAST_WEIGHT, 0)  # the fraction 1e-9 is slightly less than the float
    refuse_where("weight", ~((found >= least) & (found <= 1e9)), found, "not a weight: use a number from 1e-9 to 1e9", names)
    return found


def machines_of(value: object) -> int:
    """Return the number of machines behind a capacity."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or not 1 <= int(value) <= MOST_MACHINES:
        raise Fault("nodes", None, f"{shown(value)} is not a number of machines: use a whole number from 1 to {MOST_MACHINES}")
    return int(value)


def priorities_of(values: ArrayLike | None, users: int) -> NDArray[np.int64]:
    """Return priorities, whole numbers."""
    array = numbers_of("priority", 0 if values is None else values, (users,))
    what = "not a priority: use a whole number from -1000000 to 1000000"
    refuse_where("priority", (array > 1_000_000) | (array < -1_000_000), array, what)
    whole = array.astype(np.int64)
    refuse_where("priority", array != whole, array, what)
    return whole


def refuse_where(key: str, wrong: Any, array: Numbers, what: str, names: Sequence[str] = ()) -> None:
    """Raise a fault for the first wrong number: ``user[2].demand: cpu: nan is not a finite number``."""
    if not wrong.any():
        return
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    row = at[0] if key != "capacity" else None
    column = f"{names[at[-1]]}: " if names else ""
    value = array[at]
    raise Fault(key, row, f"{column}{shown(value)} is {what}")


def shown(value: Any) -> str:
    """Return a value as a message shows it, shortened."""
    try:
        text = str(value) if isinstance(value, Fraction | Decimal) else repr(getattr(value, "item", lambda: value)())
    except ValueError:
        return "a number of more digits than can be read"
    return shortened(text)


def check_list(key: str, names: object, many: int, of: str) -> None:
    """Raise a fault unless `names` is a list of `many` texts."""
    if isinstance(names, str) or not isinstance(names, Sequence | np.ndarray):
        raise Fault(key, None, f"{shown(names)} is not a list of texts")
    if len(names) != many:
        raise Fault(key, None, f"{len(names)} names for {many} {of}")
    for row, name in enumerate(names):
        if not isinstance(name, str):
            raise Fault(key, None, f"[{row}]: {shown(name)} is not a text")


def check_names(key: str, names: Iterable[str], check: Callable[[str], object]) -> None:
    """Raise a fault for the first repeated name, or the first that `check` refuses with a ValueError."""
    seen = set()
    for row, name in enumerate(names):
        at = row if key == "name" else None
        try:
            check(name)
        except ValueError as error:
            raise Fault(key, at, str(error)) from None
        if name in seen:
            kind = "user" if key == "name" else "resource"
            raise Fault(key, at, f"a {kind} {name!r} already exists: choose another name")
        seen.add(name)


def exact_array(values: Iterable[Any]) -> Numbers:
    """Return an object array of Python numbers, which numpy would partly convert."""
    return np.array([*values, None], object)[:-1]


def fractions_of(values: Numbers) -> Numbers:
    """Return fractions; a float is read as its decimal notation."""
    return exact_array(map(_fraction, values.ravel())).reshape(values.shape)


def _fraction(value: Any) -> Fraction:
    if isinstance(value, numbers.Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    return Fraction(value) if isinstance(value, Decimal) else Fraction(repr(float(value)))


def _each(check: Callable[[Any], bool], array: Numbers) -> NDArray[np.bool_]:
    return np.array([check(x) for x in array.ravel()], np.bool_).reshape(array.shape)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real | Decimal) and not isinstance(value, bool)


def _is_held(value: Any) -> bool:
    """Return True if float64 holds a number exactly."""
    return isinstance(value, float | np.floating) or (isinstance(value, numbers.Integral) and abs(int(value)) <= _WHOLE)


def _own(value: Any) -> Any:
    """Return a Python number, which neither overflows nor warns."""
    if isinstance(value, numbers.Integral):
        return int(value)
    return value if isinstance(value, Fraction | Decimal) else float(value)


def _is_finite(value: Any) -> bool:
    return isinstance(value, numbers.Rational) or bool(np.isfinite(float(value)))

"""Rows in narrow types: made from numbers when they are written, and float32 again when they are read.

Reading is exact. float16 and bfloat16 are converted by their bits, in operations on whole tiles that stay in the cache:
for float16 these take a third of the time of NumPy's own conversion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.row_types import BFLOAT16_BITS, stored_dtype

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.data.reused import Reused

_TILE = 1 << 17  # values, of 4 bytes each: half of a second-level cache
_SIGN_AND_REST = np.int32(-0x70002000)  # of a float16 that was moved up by 13 bits: its sign, and the other 15
_FROM_BIAS = np.float32(2.0**112)  # exponents of float16 are biased by 15, those of float32 by 127
_LARGEST = {"float16": "65,504", "bfloat16": "3.3895e38"}
_EXPONENTS: dict[np.dtype[Any], np.uint16] = {
    np.dtype(np.float16): np.uint16(0x7C00),
    BFLOAT16_BITS: np.uint16(0x7F80),
}  # of infinities and NaN


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether stored values are converted when they are read."""
    return dtype not in (np.float32, np.float64)


def widen(values: Any, buffers: Reused | None = None) -> Any:
    """Finite stored rows (n, d) in the precision in which they are read: as they are, or an exact copy in float32.

    The copy is read-only. buffers: where it is taken from.
    """
    if not is_narrow(values.dtype):
        return values
    out = np.empty(values.size, np.float32) if buffers is None else buffers.take("wide", values.size, np.float32)
    flat = np.ascontiguousarray(values).reshape(-1)
    for start in range(0, len(flat), _TILE):
        part, wide = flat[start : start + _TILE], out[start : start + _TILE]
        if flat.dtype == np.float16:
            bits = wide.view(np.int32)
            bits[:] = part.view(np.int16)
            np.left_shift(bits, 13, out=bits)
            np.bitwise_and(bits, _SIGN_AND_REST, out=bits)
            np.multiply(wide, _FROM_BIAS, out=wide)
        elif flat.dtype == BFLOAT16_BITS:
            bits = wide.view(np.uint32)
            bits[:] = part
            np.left_shift(bits, 16, out=bits)
        else:
            wide[:] = part
    rows = out.reshape(values.shape)
    rows.flags.writeable = False
    return rows


def narrow(values: np.ndarray, name: str) -> np.ndarray:
    """Real numbers in a stored type, those that ``first_unfit`` finds aside.

    Floats are rounded to the nearest, for bfloat16 by way of float32, ties to even; nothing else is rounded.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if name != "bfloat16":
            return values.astype(stored_dtype(name), copy=False)
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        return ((bits + (0x7FFF + (bits >> 16 & 1))) >> 16).astype(np.uint16)


def first_not_finite(stored: np.ndarray) -> int | None:
    """The position of the first infinity or NaN among stored values of float16 or bfloat16; None: there is none."""
    exponent = _EXPONENTS.get(stored.dtype)
    return None if exponent is None else _first(stored, lambda part: _has_exponent(part, exponent))


def first_unfit(values: np.ndarray, name: str) -> int | None:
    """The position of the first number that a narrow type does not hold: not finite or too large, of integers rounded.

    None: there is none.
    """
    dtype = stored_dtype(name)
    if values.dtype == dtype and name != "bfloat16":  # numbers of uint16 are no bits of it
        return first_not_finite(values)
    exponent = _EXPONENTS.get(dtype)
    if exponent is not None:
        return _first(values, lambda part: ~np.isfinite(part) | _has_exponent(narrow(part, name), exponent))
    limits = np.iinfo(dtype)

    def is_unfit(part: np.ndarray) -> Any:
        inside = (part >= limits.min) & (part <= limits.max)
        held = np.where(inside, part, 0)
        return ~inside | (held.astype(dtype) != held)

    return _first(values, is_unfit)


def describe_unfit(value: Any, name: str) -> str:
    """What is wrong with such a number, and what to do, for messages."""
    if not np.isfinite(value):
        found = "NaN" if np.isnan(value) else "infinity"
        return f"{found}, expected a finite number; remove the row or fill in the value first"
    wider = "a store of --dtype float32 holds it"
    if name in ("float16", "bfloat16"):
        return f"{value:.6g}, too large for {name} (up to {_LARGEST[name]}); scale the column, or {wider}"
    limits = np.iinfo(stored_dtype(name))
    return f"{value:.6g}, expected whole numbers from {limits.min:,} to {limits.max:,} ({name}); {wider}"


def _has_exponent(stored: np.ndarray, exponent: np.uint16) -> Any:
    return (stored.view(np.uint16) & exponent) == exponent


def _first(values: np.ndarray, is_bad: Callable[[np.ndarray], Any]) -> int | None:
    """The position of the first bad value in C order, looked for in one tile after the other."""
    flat = np.ascontiguousarray(values).reshape(-1)
    for start in range(0, len(flat), _TILE):
        bad = is_bad(flat[start : start + _TILE])
        if bad.any():
            return start + int(np.argmax(bad))
    return None

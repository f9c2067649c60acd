"""Kernels that somebody brought as functions: what is at fault by its name, and whether one is the one that it was.

They may be called by several threads and processes at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.errors import UsageError
from coremargin.formats.function import CALLABLE, function_name
from coremargin.formats.kernel import kept_places
from coremargin.maths import rows as row_ops
from coremargin.maths.kernel.callables import CallableKernel, first_difference
from coremargin.maths.kernel.functions import KernelFault, relocate_faults

if TYPE_CHECKING:
    from coremargin.maths.kernel.functions import Kernel

Array = NDArray[np.float64]


@contextmanager
def faults_named(
    kernel: Kernel, name: str, ids: NDArray[np.int64] | None = None, chunk: int | None = None
) -> Iterator[None]:
    """What a function gives in here that no kernel does is told with its name, and the rows by theirs.

    ids (n,): of the rows that are asked about, in a chunk of a source of this name; None: they have none. Raises
    UsageError.
    """
    try:
        yield
    except KernelFault as fault:
        at = "" if chunk is None else f", chunk {chunk}"
        where = ""
        if ids is not None and fault.row is not None:
            where = f", row {ids[fault.row]}"
        elif ids is not None and len(ids):
            where = f", rows {ids.min()} to {ids.max()}"
        raise UsageError(f"{name}{at}{where}: the kernel {_name(kernel)}: {fault.text}") from fault.__cause__


def _name(kernel: Kernel) -> str:
    return function_name(kernel.function) if isinstance(kernel, CallableKernel) else kernel.name


def kept_values(kernel: CallableKernel, rows: row_ops.Rows) -> Array:
    """Values (s, s) of the rows (m, d) at ``kept_places`` with each other, by which the function is known again.

    Raises KernelFault.
    """
    places = kept_places(rows.shape[0])

    def work() -> Array:
        points = kernel.points(row_ops.as_float64(row_ops.take(rows, places)))
        return np.asarray(kernel.block(points, points))

    values: Array = relocate_faults(work, places)
    return values


def check_same(kernel: CallableKernel, rows: row_ops.Rows, kept: Array, what: str) -> None:
    """Raises UsageError unless the function gives these rows (m, d) the values (s, s) that were kept; what: of them."""
    places = kept_places(rows.shape[0])
    with faults_named(kernel, what):
        points = kernel.points(row_ops.as_float64(row_ops.take(rows, places)))
        values = kernel.block(points, points)
        wrong = first_difference(values, kept, points.lengths, points.lengths, kernel.eta)
    if wrong is not None:
        raise UsageError(
            f"{what}: the kernel {_name(kernel)} gives {wrong[2]:.17g} where {wrong[3]:.17g} was kept: it is another "
            f"function than it was trained with, or gives rows other values than it did; give that one"
        )


def kernel_told(said: Mapping[str, Any]) -> str:
    """The kernel of a record, for people."""
    numbers = ", ".join(f"{name} {value:.6g}" for name, value in said.items() if name not in ("name", "function"))
    if said["name"] == CALLABLE:
        return f"the function {said['function']!r}, values within {said['error']:g}"
    return f"{said['name']}{f', {numbers}' if numbers else ''}"


def terms_of(parameters: Mapping[str, Any]) -> str:
    """What is claimed with a function as a kernel, for people; "" of other models."""
    if parameters.get("kernel_error") is None:
        return ""
    return (
        f"proven for every positive semi-definite kernel k from which its values are off by "
        f"{parameters['kernel_error']:g} sqrt(k(x,x) k(z,z)) at most; that there is one is assumed of all rows, and "
        f"checked on those that carry the functions"
    )


def with_function(commands: Mapping[str, str], parameters: Mapping[str, Any]) -> dict[str, str]:
    """Commands of a page: that which verifies names a function where one is needed, the reader's and no record's."""
    if parameters.get("kernel_error") is None:
        return dict(commands)
    verify = f"{commands['verify']} --kernel MODULE:FUNCTION"
    return {name: verify if said == commands["verify"] else said for name, said in commands.items()}

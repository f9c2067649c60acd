"""User-defined kernels: errors that name function and rows, and whether a function is the one of the training.

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
from coremargin.formats.kernel import reference_places
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
    """Report values that no kernel has with the name of the function and of the rows.

    ids (n,): of the rows in question, in a chunk of a source of this name; None: they have none. Raises
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


def reference_values(kernel: CallableKernel, rows: row_ops.Rows) -> Array:
    """Values (s, s) of the rows (m, d) at ``reference_places`` with each other, by which the function is recognised.

    Raises KernelFault.
    """
    places = reference_places(rows.shape[0])

    def work() -> Array:
        points = kernel.points(row_ops.as_float64(row_ops.take(rows, places)))
        return np.asarray(kernel.block(points, points))

    values: Array = relocate_faults(work, places)
    return values


def check_same(kernel: CallableKernel, rows: row_ops.Rows, expected: Array, what: str) -> None:
    """Raises UsageError unless the function gives these rows (m, d) the recorded values (s, s); what: whose."""
    places = reference_places(rows.shape[0])
    with faults_named(kernel, what):
        points = kernel.points(row_ops.as_float64(row_ops.take(rows, places)))
        values = kernel.block(points, points)
        wrong = first_difference(values, expected, points.lengths, points.lengths, kernel.eta)
    if wrong is not None:
        raise UsageError(
            f"{what}: the kernel {_name(kernel)} gives {wrong[2]:.17g} where {wrong[3]:.17g} was recorded: the "
            f"model was trained with another function, or this one is not deterministic; give that one"
        )


def describe_kernel(record: Mapping[str, Any]) -> str:
    """A kernel's name and parameters, for people."""
    numbers = ", ".join(f"{name} {value:.6g}" for name, value in record.items() if name not in ("name", "function"))
    if record["name"] == CALLABLE:
        return f"the function {record['function']!r}, values within {record['error']:g}"
    return f"{record['name']}{f', {numbers}' if numbers else ''}"


def terms_of(parameters: Mapping[str, Any]) -> str:
    """The assumptions of a proof with a user-defined kernel, for people; "" for other models."""
    if parameters.get("kernel_error") is None:
        return ""
    return (
        f"proven for every positive semi-definite kernel k from which its values are off by "
        f"{parameters['kernel_error']:g} sqrt(k(x,x) k(z,z)) at most; that there is one is assumed of all rows, and "
        f"checked on those that carry the functions"
    )


def with_function(commands: Mapping[str, str], parameters: Mapping[str, Any]) -> dict[str, str]:
    """Commands of a page; with a user-defined kernel ``verify`` needs a function that the reader names."""
    if parameters.get("kernel_error") is None:
        return dict(commands)
    verify = f"{commands['verify']} --kernel MODULE:FUNCTION"
    return {name: verify if line == commands["verify"] else line for name, line in commands.items()}

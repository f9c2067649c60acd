"""The result of a job with a kernel as a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coremargin.data.scaled import scaling_of
from coremargin.formats.function import function_name
from coremargin.maths.kernel.callables import CallableKernel
from coremargin.models.brought import faults_named, kept_values
from coremargin.models.kernel import KernelModel
from coremargin.problems.common.model import record_of
from coremargin.problems.kernel.spec import OWN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.data.source import Source
    from coremargin.problems.kernel.result import KernelResult


def kernel_model_of(
    source: Source, codes: tuple[int, ...], found: KernelResult, parameters: Mapping[str, Any], **about: Any
) -> KernelModel:
    """A result on a source as a model; codes: label codes of the classes, in their order.

    about: of a member of a fleet its ``view``.
    """
    kernel, scaling = found.kernel, scaling_of(source)
    numbers: dict[str, Any] = {name: getattr(kernel, name) for name in OWN[kernel.name]}
    brought: dict[str, Any] = {}
    if isinstance(kernel, CallableKernel):
        numbers = {"error": kernel.eta, "function": function_name(kernel.function)}
        with faults_named(kernel, source.name, found.rows.ids):
            brought = {"function": kernel.function, "kernel_values": kept_values(kernel, found.rows.rows)}
    record = record_of(
        source, codes, found, "kernel", parameters, len(found.rows),
        kernel={"name": kernel.name, **numbers}, **about,
    )  # fmt: skip
    return KernelModel(
        record=record, duals=found.duals, offsets=found.offsets, lowers=found.lowers, uppers=found.uppers,
        coreset_ids=found.rows.ids, coreset_x=found.rows.rows, coreset_classes=found.rows.classes,
        shift=None if scaling is None else scaling.shift, factor=None if scaling is None else scaling.factor, **brought,
    )  # fmt: skip

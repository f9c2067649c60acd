"""The claims of machines with kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from msgspec import UNSET

from coremargin.formats.function import CALLABLE
from coremargin.verify import margins, values
from coremargin.verify.checks import Check, same_epsilon, same_ratio, typed
from coremargin.verify.claim import any_claim
from coremargin.verify.kernel.brought import Brought, checked, claimed, without
from coremargin.verify.kernel.claim import KernelClaim, Reduction
from coremargin.verify.kernel.proof import KernelProof, columns_told
from coremargin.verify.kernel.values import Function
from coremargin.verify.kind import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coremargin.formats.kernel import KernelRecord
    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.rows import Rows


class KernelKind(Kind[KernelClaim]):
    """The margins or the values of functions of a kernel."""

    def claim(self, files: ModelFiles) -> KernelClaim:
        """A kernel, and for each column dual weights, an intercept, two bounds."""
        record, arrays = cast("KernelRecord", files.record), files.arrays
        asked, kernel = record.parameters, record.kernel
        function = Function(
            kernel.name,
            0.0 if kernel.gamma is UNSET else kernel.gamma,
            1 if kernel.degree is UNSET else kernel.degree,
            0.0 if kernel.coef0 is UNSET else kernel.coef0,
        )
        if kernel.error is not UNSET and kernel.function is not UNSET:
            function = Brought(CALLABLE, 0.0, 1, 0.0, eta=kernel.error, named=kernel.function)
        return KernelClaim(
            **any_claim(files, record.view, soft=record.soft),
            y=arrays["coreset_classes"].astype(np.int64) + 1,
            labels=tuple(record.classes),
            function=function,
            scale=asked.gamma == "scale",
            duals=arrays["duals"],
            offsets=arrays["offsets"],
            lowers=arrays["lowers"],
            uppers=arrays["uppers"],
            loss="" if asked.loss is UNSET else asked.loss,
            cost=0.0 if asked.C is UNSET else float(asked.C),
            weight=None if asked.class_weight is UNSET else asked.class_weight,
            reduced=_reduction(record, arrays),
            kept=arrays.get("kernel_values", np.zeros((0, 0))),
        )

    def with_kernel(self, claim: KernelClaim, kernel: Callable[..., Any] | None) -> KernelClaim:
        """About a function the same claim, once who verifies has said it."""
        function = claim.function
        if not isinstance(function, Brought):
            return super().with_kernel(claim, kernel)
        if kernel is None:
            raise without(function.named)
        return replace(claim, function=replace(function, call=kernel))

    def terms(self, claim: KernelClaim) -> str:
        """Of a function how near it is to a kernel."""
        return claimed(claim.function.eta) if isinstance(claim.function, Brought) else ""

    def same_classes(self, claim: KernelClaim, rows: Rows) -> Check:
        """All of them."""
        text, store = ", ".join(map(repr, claim.labels)), ", ".join(map(repr, rows.classes))
        ok = sorted(map(repr, map(typed, claim.labels))) == sorted(map(repr, map(typed, rows.classes)))
        return Check("classes", ok, text if ok else f"model claims {text}, the store has {store or 'none'}")

    def consistency(self, claim: KernelClaim) -> list[Check]:
        """The intercepts, epsilon, ratio, status."""
        told = f"kernel {claim.function.name}, {columns_told(len(claim.offsets))}"
        through = claim.intercept or not claim.offsets.any()
        text = told if through else f"{told}: expected intercepts of 0, as parameters say"
        status = values.status(claim) if claim.soft else margins.status(claim)
        function = claim.function
        brought = checked(function, claim.x, claim.kept) if isinstance(function, Brought) else []
        return [Check("hypothesis", through, text), *brought, *same_epsilon(claim), *same_ratio(claim), status]

    def scan(self, claim: KernelClaim, rows: Rows) -> KernelProof:
        """Decisions of each row in each column."""
        return KernelProof(claim, rows)

    def proven(self, epsilon: float, *, soft: bool) -> str:
        """Of the margins or of the values, of each column."""
        return values.proven(epsilon) if soft else margins.proven(epsilon)


def _reduction(record: KernelRecord, arrays: Mapping[str, np.ndarray]) -> Reduction | None:
    """What is claimed of fewer rows, where these decide."""
    said = record.reduced
    if said is UNSET:
        return None
    weights = np.zeros(arrays["duals"].shape)
    weights[arrays["reduced_places"]] = arrays["reduced_weights"]
    return Reduction(weights=weights, rows=said.rows, distance=said.distance, changed=said.changed)


KIND = KernelKind()

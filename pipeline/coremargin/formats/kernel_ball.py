"""The record and the arrays of a ball in a kernel's feature space."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import UNSET, UnsetType

from coremargin.formats.ball import OneClass, OneClassParameters
from coremargin.formats.fleet_record import Gamma  # noqa: TC001 - msgspec reads annotations
from coremargin.formats.function import CALLABLE
from coremargin.formats.kernel import Degree, KernelNumbers, NotBelowZero, check_known, check_same_kernel
from coremargin.formats.model_arrays import Numbers, Schema, demand
from coremargin.formats.model_record import Share, Word  # noqa: TC001 - msgspec reads annotations


class KernelBallParameters(OneClassParameters, frozen=True, kw_only=True):
    """What was asked for; gamma: "scale" or a number; nu: the share of the rows that may lie outside, unset: none."""

    kernel: Word
    gamma: Gamma | UnsetType = UNSET
    degree: Degree | UnsetType = UNSET
    coef0: NotBelowZero | UnsetType = UNSET
    nu: Share | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for a kernel that is not known."""
        check_known(self.kernel)


class KernelBall(OneClass, frozen=True, kw_only=True, tag_field="problem", tag="kernel_ball"):
    """A ball around the point sum_i alpha_i phi(x_i) of the coreset's rows in the feature space of a kernel.

    The certificate is about the radius, as of ``Ball``; with nu about the value r + sum C (q - r)_+ of squared
    distances q, as of ``SoftBall``.
    """

    parameters: KernelBallParameters
    kernel: KernelNumbers

    def __post_init__(self) -> None:
        """Raises ValueError for a kernel that is not the one that was asked for, a function, and a map."""
        super().__post_init__()
        check_same_kernel(self.parameters, self.kernel)
        if self.kernel.name == CALLABLE or self.map:
            raise ValueError("expected a ball of a linear, poly or rbf kernel, of rows that are not mapped")

    @property
    def soft(self) -> bool:
        """Rows may lie outside: the bounds are about a value, not a radius."""
        return self.parameters.nu is not UNSET

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the certificate may be about: with nu, a value."""
        return ("duality_gap",) if self.soft else ("radius",)

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with r, if rows may lie outside."""
        return super().schema(names) | ({"square": Numbers("f8", (1,))} if self.soft else {})

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """r is not below 0. Raises DataError."""
        if self.soft:
            demand(arrays["square"][0] >= 0, place, "square", "a number from 0 on")
        super().check_values(arrays, place)


RECORD = KernelBall

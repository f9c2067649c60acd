"""The bound of decision values as an option of hyperplanes and of machines with a kernel."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from coremargin.formats.limits import LARGEST_RELATIVE_MARGIN

BoundOfDecisions = Annotated[
    float,
    Meta(
        description="With --loss hinge: bound of the decision values of all rows, above 1.",
        extra={"metavar": "B"},
    ),
]


def check_relative_margin(bound: float, loss: str | None) -> None:
    """Raises ValueError for a bound out of range, or without the hinge loss."""
    if not 1 < bound <= LARGEST_RELATIVE_MARGIN:  # NaN is none
        raise ValueError(
            f"relative_margin: expected a number above 1, up to {LARGEST_RELATIVE_MARGIN:g}, as decision values of "
            f"rows without a loss are beyond -1 and 1; found {bound}"
        )
    if loss is None:
        raise ValueError("relative_margin: a hard margin has none; give loss 'hinge' too, or leave relative_margin out")
    if loss != "hinge":
        raise ValueError(f"loss: a relative margin has only 'hinge', found {loss!r}")

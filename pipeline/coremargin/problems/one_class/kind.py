"""What the kinds of one class share: options of their jobs, and what all of them say of a model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from coremargin.problems.common.one_model import J, M, OneModel, P
from coremargin.problems.one_class.messages import describe_enclosed

OneClass = Annotated[
    Literal["ball"],
    Meta(description="Enclose rows, whatever their labels: by the smallest ball, or the ellipsoid of least volume."),
]
Only = Annotated[
    str | int | float | bool | None,
    Meta(description="With --one-class: enclose the rows with this label only.", extra={"metavar": "LABEL"}),
]
Nu = Annotated[
    float,
    Meta(
        gt=0,
        lt=1,
        description="With --one-class: the share of the rows that may lie outside, for rows with outliers.",
        extra={"metavar": "SHARE"},
    ),
]


def shape_parameters(job: Any) -> dict[str, Any]:
    """The shape and the class of a job, for the record of its model."""
    only = {} if job.only is None else {"only": str(job.only)}  # as text, which a resumed command line has
    return {"one_class": job.one_class, **only}


class OneClassKind(OneModel[J, P, M]):
    """A kind whose rows need no labels."""

    labelled = False

    def rows_meant(self, model: M) -> str:
        """All rows, or those of a class."""
        return describe_enclosed(model)

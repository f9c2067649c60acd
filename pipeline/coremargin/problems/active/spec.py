"""What a job says about a campaign whose answers come from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from coremargin.formats.choices import Method
from coremargin.formats.limits import MOST_SEED
from coremargin.problems.job import TrainJob


class ActiveJob(TrainJob, tag_field="job", tag="active", frozen=True, kw_only=True):
    """Few labels for many rows: those of the rows that are asked about, from a file; ``out`` is the campaign's folder.

    error, confidence: at most this share of the rows is labelled wrongly, and how sure that is to be. batch: questions
    at a time. oracle: who answers; None where people do.
    """

    epsilon: Annotated[float, Meta(description="Share of the best margin that may be missed.")] = 0.1
    oracle: Path | None = None
    method: Annotated[
        Method,
        Meta(
            description="How rows are chosen: coreset the nearest to the hyperplane of the largest margin, stream the "
            "first within its slab, slab the nearest to one that is found by projections, random any; the others the "
            "nearest to a centre of all hyperplanes that agree with the answers: of the largest ball (chebyshev), of "
            "the mass (ep, hit-and-run, billiard, dikin), or any (perceptron)."
        ),
    ] = "coreset"
    error: Annotated[float, Meta(description="Share of the rows that may be labelled wrongly.")] = 0.01
    confidence: Annotated[float, Meta(description="How sure that share is to be.")] = 0.99
    seed: Annotated[
        Annotated[int, Meta(ge=0, le=MOST_SEED)], Meta(description="Of the rows that are drawn to try the model.")
    ] = 0
    batch: Annotated[Annotated[int, Meta(ge=1)], Meta(description="Questions at a time.")] = 1

    def __post_init__(self) -> None:
        """Refuse what is out of range, and what only jobs have that run in one go. Raises ValueError."""
        super().__post_init__()
        for name, nothing in (("max_scans", None), ("time_limit", None), ("sample", 0.04)):
            if getattr(self, name) != nothing:
                raise ValueError(f"{name}: a campaign has none: interrupt it, and go on with it later; leave it out")
        for name in ("error", "confidence"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(
                    f"{name}: expected a share between 0 and 1, both excluded; found {getattr(self, name)}"
                )

    def parameters(self) -> dict[str, Any]:
        """What the model's record keeps."""
        known = {
            name: getattr(self, name) for name in ("epsilon", "intercept", "method", "error", "confidence", "seed")
        }
        return known if self.scaling is None else known | {"scaling": self.scaling}

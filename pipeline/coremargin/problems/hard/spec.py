"""What a job about a hard margin says: rows are to be separated, all of them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from coremargin.formats.choices import Strategy
from coremargin.problems.job import TrainJob


class HardMarginJob(TrainJob, frozen=True, kw_only=True):
    """The largest margin between two classes.

    strategy: "fast"; "paper" (one example a scan) and "any-violator" are the references.
    """

    strategy: Annotated[
        Strategy,
        Meta(
            description="Of a hard margin. paper: one row a scan (Har-Peled et al. 2006); any-violator: the first one."
        ),
    ] = "fast"

    def parameters(self) -> dict[str, Any]:
        """What the model's record keeps."""
        return {**super().parameters(), "strategy": self.strategy}

"""What a training job is: one strict spec for the command line, for job files and for Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from coremargin.spec import Seconds, Size, Spec


class TrainJob(Spec, tag_field="job", tag="train", frozen=True, kw_only=True):
    """Train a maximum-margin classifier on a store and prove it.

    epsilon: the margin is proven to be at least (1 - epsilon) of the best possible. strategy: "fast"; "paper" (one
    example a scan) and "any-violator" are the references. memory: for the rows in the driver's pool. sample: share of
    the store read first. block: bytes that one task reads. max_scans, time_limit: stop there, with what is proven.
    cluster: a file that says where to run; None chooses by the store's size.
    """

    store: Path
    out: Path
    epsilon: float = 1e-3
    intercept: bool = True
    strategy: Literal["fast", "paper", "any-violator"] = "fast"
    memory: Size = Size(256 * 2**20)
    sample: float = 0.04
    block: Size = Size(128 * 2**20)
    max_scans: Annotated[int, Meta(ge=1)] | None = None
    time_limit: Seconds | None = None
    cluster: Path | None = None

    def __post_init__(self) -> None:
        """Refuse what is out of range, with the whole range; NaN is never in it."""
        if not 0 < self.epsilon < 1:
            raise ValueError(f"epsilon: expected a number between 0 and 1, both excluded; found {self.epsilon}")
        if not 0 < self.sample <= 1:
            raise ValueError(f"sample: expected a share above 0 and up to 1; found {self.sample}")
        for name in ("memory", "block"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1 byte; found {getattr(self, name)}")

    def parameters(self) -> dict[str, Any]:
        """What the model's record keeps: everything that decides about the result, nothing about the machine."""
        return {"epsilon": self.epsilon, "intercept": self.intercept, "strategy": self.strategy}

    def identity(self) -> dict[str, Any]:
        """What must be equal for a checkpoint to be of use."""
        sizes = {"memory": int(self.memory), "sample": self.sample, "block": int(self.block)}
        return {**self.parameters(), **sizes}

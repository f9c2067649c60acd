"""Words that job files, records and Python choose from."""

from __future__ import annotations

from typing import Literal

Strategy = Literal["fast", "paper", "any-violator"]
ScalingKind = Literal["standard", "minmax", "maxabs", "rownorm"]
Loss = Literal["hinge", "squared_hinge"]
LOSS_POWERS: dict[str, int] = {"hinge": 1, "squared_hinge": 2}  #: of what a row's margin lacks
Why = Literal["start", "query", "draw", "example"]  #: a row was asked about
Method = Literal[
    "coreset", "stream", "slab", "random", "chebyshev", "ep", "hit-and-run", "billiard", "dikin", "perceptron"
]

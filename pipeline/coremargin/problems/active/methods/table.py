"""The methods that there are: a line for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.problems.active.methods.centre import Centred
from coremargin.problems.active.methods.coreset import Coreset, Stream
from coremargin.problems.active.methods.random import Random
from coremargin.problems.active.methods.slab import Slab

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.formats.choices import Method as Name
    from coremargin.problems.active.methods.method import Method

METHODS: Mapping[Name, Method] = {
    "coreset": Coreset(),
    "stream": Stream(),
    "slab": Slab(),
    "random": Random(),
    "chebyshev": Centred("chebyshev"),
    "ep": Centred("ep"),
    "hit-and-run": Centred("hit-and-run"),
    "billiard": Centred("billiard"),
    "dikin": Centred("dikin"),
    "perceptron": Centred("perceptron"),
}

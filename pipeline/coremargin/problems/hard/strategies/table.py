"""The strategies by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.problems.hard.strategies.any_violator import AnyViolator
from coremargin.problems.hard.strategies.fast import Fast
from coremargin.problems.hard.strategies.linear_program import LinearProgram
from coremargin.problems.hard.strategies.paper import Paper
from coremargin.problems.hard.strategies.perceptron import Perceptron

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.formats.choices import Strategy as Name
    from coremargin.problems.hard.strategies.strategy import Strategy

STRATEGIES: Mapping[Name, Strategy] = {
    "fast": Fast(),
    "paper": Paper(),
    "any-violator": AnyViolator(),
    "perceptron": Perceptron(),
    "lp": LinearProgram(),
}

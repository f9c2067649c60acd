"""The strategies by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.problems.hard.strategies.alma import Alma
from coremargin.problems.hard.strategies.any_violator import AnyViolator
from coremargin.problems.hard.strategies.chunking import ReducedSets
from coremargin.problems.hard.strategies.core_vectors import CoreVectors
from coremargin.problems.hard.strategies.cutting_planes import CuttingPlanes
from coremargin.problems.hard.strategies.fast import Fast
from coremargin.problems.hard.strategies.kowalczyk import Kowalczyk
from coremargin.problems.hard.strategies.linear_program import LinearProgram
from coremargin.problems.hard.strategies.paper import Paper
from coremargin.problems.hard.strategies.passive_aggressive import PassiveAggressive
from coremargin.problems.hard.strategies.perceptron import Perceptron
from coremargin.problems.hard.strategies.quadratic_program import QuadraticProgram
from coremargin.problems.hard.strategies.romma import Romma
from coremargin.problems.hard.strategies.slab import SlabMethod
from coremargin.problems.hard.strategies.smo import SequentialMinimal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.formats.choices import Strategy as Name
    from coremargin.problems.hard.strategies.strategy import Strategy

STRATEGIES: Mapping[Name, Strategy] = {
    "fast": Fast(),
    "paper": Paper(),
    "any-violator": AnyViolator(),
    "perceptron": Perceptron(),
    "raw-perceptron": Perceptron("raw-perceptron", unit=False),
    "averaged-perceptron": Perceptron("averaged-perceptron", averaged=True),
    "uneven-perceptron": Perceptron("uneven-perceptron", margin=1.0),
    "romma": Romma(),
    "aggressive-romma": Romma(aggressive=True),
    "passive-aggressive": PassiveAggressive(),
    "alma": Alma(),
    "alma-p": Alma(euclidean=False),
    "kowalczyk": Kowalczyk(),
    "slab": SlabMethod(),
    "cutting-planes": CuttingPlanes(),
    "lp": LinearProgram(),
    "primal-qp": QuadraticProgram(dual=False),
    "dual-qp": QuadraticProgram(dual=True),
    "chunking": ReducedSets(fixed_size=False),
    "osuna": ReducedSets(fixed_size=True),
    "smo": SequentialMinimal(),
    "cvm": CoreVectors(),
}

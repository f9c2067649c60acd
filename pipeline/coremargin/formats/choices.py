"""Words that job files, records and Python choose from."""

from __future__ import annotations

from typing import Final, Literal, get_args

Strategy = Literal[
    "fast",
    "paper",
    "any-violator",
    "perceptron",
    "raw-perceptron",
    "averaged-perceptron",
    "uneven-perceptron",
    "romma",
    "aggressive-romma",
    "passive-aggressive",
    "alma",
    "alma-p",
    "kowalczyk",
    "slab",
    "cutting-planes",
    "lp",
    "primal-qp",
    "dual-qp",
    "chunking",
    "osuna",
    "smo",
    "cvm",
]
#: Those that also train with a kernel.
KernelStrategy = Literal[
    "fast",
    "paper",
    "any-violator",
    "perceptron",
    "raw-perceptron",
    "averaged-perceptron",
    "uneven-perceptron",
    "romma",
    "aggressive-romma",
    "passive-aggressive",
    "kowalczyk",
    "smo",
    "cvm",
]
#: Those of several classes at once.
ClassesStrategy = Literal["fast", "paper", "any-violator"]
Centre = Literal["perceptron", "chebyshev", "analytic", "ep", "hit-and-run", "billiard", "dikin", "permutations"]
ErrorPick = Literal["largest", "smallest", "random"]
#: How a store keeps the values of rows; row_types.py says how these are read.
RowType = Literal["float16", "bfloat16", "int8", "uint8", "int16", "float32", "float64"]
ROW_TYPES: Final = get_args(RowType)
ScalingKind = Literal["standard", "minmax", "maxabs", "rownorm", "ellipsoid"]
#: The scaling that does not follow from the statistics of a store: all rows are read to find it.
ELLIPSOID_SCALING: Final = "ellipsoid"
MapKind = Literal["nystroem", "fourier", "polynomial"]
Loss = Literal["hinge", "squared_hinge"]
KernelName = Literal["linear", "poly", "rbf", "callable"]
#: What is taken where a job leaves the choice. Measured on eight real sets (a9a, w8a, Adult, phishing, Spambase, MAGIC,
#: German, banknote), C = 1: both losses certify by one read and predict rows held out alike, within 1 %. The squared
#: hinge has one best hyperplane, intercept included; its proof needs no rows of its own; and the estimator has it, too.
LOSS_TAKEN: Loss = "squared_hinge"
Why = Literal["start", "query", "draw", "example"]  #: a row was asked about
Method = Literal[
    "coreset",
    "stream",
    "slab",
    "random",
    "chebyshev",
    "analytic",
    "ep",
    "hit-and-run",
    "billiard",
    "dikin",
    "permutations",
    "perceptron",
]
ChooseBy = Literal["validation", "risk"]  #: what chooses C and gamma
MultiClass = Literal["ovr", "crammer-singer"]  #: the hyperplanes of three classes or more in a campaign
Hypothesis = Literal["margin", "centre"]  #: which hyperplane of the answered rows a campaign tries and leaves

"""Part (i): how often the claim of a campaign is false, where an adversary makes it false as often as it can.

Rows near the hyperplane, which two examples settle, and rows far away along it, each in a direction of its own: about
those any answer fits a hyperplane that leans a little another way, and the slab is empty whatever the answers are. So
only draws tell. Whenever draws are to come, one row more than may be wrong is wrong, among the far ones; when one of
these is drawn, others are. The adversary does not know what will be drawn: its claims are false in at most a share
delta of the campaigns, and hardly fewer.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from table import Group, Row

from coremargin.active import ActiveLearner

#: What the campaigns claim: a share of wrong rows, and how sure that is.
ERROR, CONFIDENCE = 0.05, 0.8
#: Rows of each campaign, of which so many lie far away, at this distance.
ROWS, FAR, AWAY = 400, 120, 1000.0
#: The adversary gives in after so many attempts: by then four fifths of delta are spent.
ATTEMPTS = 4
#: Claims with this confidence need half as many draws in their first attempt: (delta / 2)^2 = (1 - CONFIDENCE) / 2.
HALF = 1.0 - 2.0 * math.sqrt((1.0 - CONFIDENCE) / 2.0)

#: Campaigns that are played: what they are called, how many classes, and what the learner is told besides.
KINDS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("two classes", 2, {}), ("three classes", 3, {}), ("two classes, by class", 2, {"by_class": True}),
    ("three classes, by class", 3, {"by_class": True}),
)  # fmt: skip


@dataclass
class Adversary:
    """Answers for the rows (n, d) of a campaign; told: by row, in the order asked."""

    learner: ActiveLearner
    rows: np.ndarray
    classes: int
    by_class: bool
    told: dict[int, int] = field(default_factory=dict)
    attempts: int = 0

    def __post_init__(self) -> None:
        """The first choice of wrong rows."""
        self.choose()

    def choose(self) -> None:
        """One row more than may be is wrong, of those without an answer; of one class that is predicted, by class."""
        self.sides, self.wrong = self.learner.predict(self.rows), list[int]()
        self.attempts += 1
        if self.attempts > ATTEMPTS:
            return
        mine = np.flatnonzero(self.sides == 0) if self.by_class else np.arange(len(self.rows))
        mine = mine[~np.isin(mine, list(self.told))]
        far = mine[mine >= ROWS - FAR].tolist()
        enough = math.floor(ERROR * len(mine)) + 1
        self.wrong = far[:enough] if len(far) >= enough else []

    def answer(self, row: int) -> None:
        """Tell the label of a row; the next wrong ones are chosen where the answer has ended an attempt."""
        self.told[row] = self.label(row)
        over = self.learner.evidence is not None
        self.learner.teach([row], [self.told[row]])
        if over or (self.told[row] != self.sides[row] and self.learner.predict(self.rows[[row]])[0] == self.told[row]):
            self.choose()

    def label(self, row: int) -> int:
        """What it answers about a row."""
        return self.told.get(row, int(self.sides[row] + (row in self.wrong)) % self.classes)


def world(seed: int, classes: int) -> np.ndarray:
    """Rows (ROWS, classes + FAR); row k < classes is an example of class k."""
    rng = np.random.default_rng(seed)
    of = np.arange(ROWS - FAR) % classes
    towards = rng.integers(0, classes, FAR)
    near = np.zeros((ROWS - FAR, classes))
    near[np.arange(ROWS - FAR), of] = rng.uniform(1.0, 2.0, ROWS - FAR)
    leans = 0.01 * np.where(of[:, None] == towards, 1.0, -1.0)
    far = np.concatenate([np.zeros((FAR, classes)), AWAY * np.eye(FAR)], axis=1)
    return np.concatenate([np.concatenate([near, leans], axis=1), far])


def is_false(seed: int, classes: int = 2, confidence: float = CONFIDENCE, **options: Any) -> bool:
    """Whether what a campaign claims at its end is not so."""
    rows = world(seed, classes)
    learner = ActiveLearner(
        rows, classes=range(classes), error=ERROR, confidence=confidence, seed=seed, **options
    )  # fmt: skip
    learner.teach(range(classes), range(classes))
    adversary = Adversary(learner, rows, classes, bool(options.get("by_class")), {k: k for k in range(classes)})
    while len(asked := learner.query()[0]):
        adversary.answer(int(asked[0]))
    return False if learner.evidence is None else _is_false(learner.evidence, adversary)


def _is_false(evidence: dict[str, Any], adversary: Adversary) -> bool:
    told = list(adversary.told)
    population = np.setdiff1d(np.arange(ROWS), told[: len(told) - evidence["draws"]])
    labels = np.array([adversary.label(int(row)) for row in population])
    sides = adversary.sides[population]
    parts = [(part, sides == part["label"]) for part in evidence.get("strata", [])]
    for part, mine in parts or [(evidence, np.ones(len(sides), bool))]:
        if int(mine.sum()) != part["population"]:
            raise ValueError(f"expected evidence about {mine.sum()} rows, found it about {part['population']}")
        if not part.get("error_least", 0) <= int((sides != labels)[mine].sum()) <= part["error_bound"]:
            return True
    return False


def most_false(campaigns: int, delta: float = 1.0 - CONFIDENCE) -> float:
    """So many claims may be false: a share delta, and three standard errors."""
    return delta * campaigns + 3.0 * math.sqrt(delta * (1.0 - delta) * campaigns)


def false_claims(campaigns: int) -> Group:
    """A table of how many claims are false, and of how many would be with half the draws."""
    claim = f"at most {ERROR:.0%} wrong, with confidence {CONFIDENCE:.0%}"
    group = Group("i", f"{campaigns:,} campaigns against an adversary: {claim}")
    for name, classes, options in KINDS:
        for draws, confidence in (("", CONFIDENCE), *(() if options else ((", half the draws", HALF),))):
            started = time.perf_counter()
            found = sum(is_false(seed, classes, confidence, **options) for seed in range(campaigns))
            group.rows.append(
                Row(
                    f"{name}{draws}", time.perf_counter() - started,
                    note=f"{found:,} claims false ({found / campaigns:.1%})",
                )
            )  # fmt: skip
    group.notes.append(
        f"at most {1 - CONFIDENCE:.0%} may be false, {most_false(campaigns):,.0f} with three standard errors; the "
        f"adversary gives in after {ATTEMPTS} attempts, which spend {ATTEMPTS / (ATTEMPTS + 1):.0%} of that"
    )
    group.notes.append(f"{ROWS} rows, {FAR} of them far along the hyperplane; half the draws: confidence {HALF:.0%}")
    return group

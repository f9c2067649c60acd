"""Figure 3 of Har-Peled, Roth and Zimak 2006: `python jobs/published/circle.py [--plot FILE]`.

Rows at equal distances on a circle: a line cuts any one of them off from all others. An adversary answers + to all
questions but the last, so that a learner that skips one row cannot know whether it is the only -. They state that zero
wrong rows cannot be proven without querying all labels. Here a learner has to prove it: a share below one row, with
confidence 1 - 1/n, since a lower one would leave one row of many to chance. Another one has to prove that at most 5 %
of the rows are labelled wrongly, by its draws, with confidence 0.99.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from curves import Panel, draw

from coremargin.active import ActiveLearner
from coremargin.errors import LabelError

SIZES = (25, 50, 100, 200, 400)
SHARE, CONFIDENCE = 0.05, 0.99


def circle(rows: int) -> np.ndarray:
    """Rows (n, 2)."""
    angles = 2 * np.pi * np.arange(rows) / rows
    return np.column_stack([np.cos(angles), np.sin(angles)])


def asked(rows: int, share: float, confidence: float) -> tuple[int, bool]:
    """Answers until the learner has no question left, and whether the only - was found."""
    learner = ActiveLearner(circle(rows), classes=["-", "+"], error=share, confidence=confidence)
    told = list[int]()
    try:
        while len(ids := learner.query()[0]):
            told.append(int(ids[0]))
            learner.teach(ids, ["-" if len(told) == rows else "+"])
    except LabelError:  # all answers are the same, and no more than that share of the rows can have another
        return len(told), False
    return len(told), len(told) == rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", type=Path, help="SVG")
    options = parser.parse_args()
    lines: dict[str, list[tuple[float, float]]] = {"none wrong": [], f"at most {SHARE:.0%} wrong": []}
    holds = True
    for rows in SIZES:
        claims = ((0.5 / rows, 1 - 1 / rows), (SHARE, CONFIDENCE))
        for (name, line), (share, confidence) in zip(lines.items(), claims, strict=True):
            answers, found = asked(rows, share, confidence)
            line.append((rows, answers))
            print(f"{rows:5,} rows, {name:18} {answers:5,} answers, the only - {'found' if found else 'not found'}")
            holds = holds and (share == SHARE or (answers == rows and found))
    print(f"{'holds' if holds else 'does not hold':14} zero wrong rows take all labels")
    if options.plot:
        note = f"at most {SHARE:.0%} wrong with confidence {CONFIDENCE}: the number of draws is bounded"
        draw(options.plot, [Panel("Answers on the circle", "rows", lines, (), 0.0)], note)


if __name__ == "__main__":
    main()

"""Figure 3 of Har-Peled, Roth and Zimak 2006: `python jobs/published/circle.py [--plot FILE]`.

(a) Rows at equal distances on a circle: a line cuts any one of them off from all others. An adversary answers + to all
questions but the last, so that a learner that skips one row cannot know whether it is the only -.

(b) The same circle in three dimensions, and a row below its centre that is -: both classes are known, and a plane still
cuts off any one row of the circle together with the row below. The adversary answers + on the circle but for the last.

They state that zero wrong rows cannot be proven without querying all labels. Here a learner has to prove it: a share
below one row, with confidence 1 - 1/n, since a lower one would leave one row of many to chance. Another one has to
prove that at most 5 % of the rows are labelled wrongly, by its draws, with confidence 0.99.
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


def circle_above_a_row(rows: int) -> np.ndarray:
    """The rows of a circle, and one below its centre, the last (n + 1, 3)."""
    flat = np.column_stack([circle(rows), np.zeros(rows)])
    return np.vstack([flat, [0.0, 0.0, -1.0]])


def count_answers(X: np.ndarray, on_circle: int, share: float, confidence: float) -> tuple[int, bool]:
    """Answers until the learner has no question left, and whether the only - on the circle was found.

    X (n, d): rows, the first ``on_circle`` of which are on the circle; all others are -.
    """
    learner = ActiveLearner(X, classes=["-", "+"], error=share, confidence=confidence)
    answered, last = 0, 0
    try:
        while len(ids := learner.query()[0]):
            answered += 1
            last += int(ids[0]) < on_circle
            learner.teach(ids, ["-" if int(ids[0]) >= on_circle or last == on_circle else "+"])
    except LabelError:  # all answers are the same, and no more than that share of the rows can have another
        return answered, False
    return answered, last == on_circle


#: Parts of the figure: rows by the number of rows on the circle.
PARTS = {"(a) in the plane": circle, "(b) in three dimensions": circle_above_a_row}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", type=Path, help="SVG")
    options = parser.parse_args()
    panels, holds = list[Panel](), True
    for part, rows_of in PARTS.items():
        lines: dict[str, list[tuple[float, float]]] = {"none wrong": [], f"at most {SHARE:.0%} wrong": []}
        for size in SIZES:
            X = rows_of(size)
            claims = ((0.5 / len(X), 1 - 1 / len(X)), (SHARE, CONFIDENCE))
            for (name, line), (share, confidence) in zip(lines.items(), claims, strict=True):
                answers, found = count_answers(X, size, share, confidence)
                line.append((size, answers))
                seen = "found" if found else "not found"
                print(f"{part}, {len(X):3,} rows, {name:18} {answers:5,} answers, the only - on the circle {seen}")
                holds = holds and (share == SHARE or (answers == len(X) and found))
        panels.append(Panel(f"Answers on the circle: {part}", "rows", lines, (), 0.0))
    print(f"{'holds' if holds else 'does not hold':14} zero wrong rows take all labels")
    if options.plot:
        note = f"at most {SHARE:.0%} wrong with confidence {CONFIDENCE}: the number of draws is bounded"
        draw(options.plot, panels, note)


if __name__ == "__main__":
    main()

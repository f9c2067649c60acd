"""(t) Sequences of rows that are labelled together: reads, CPU seconds and what is predicted correctly, with a proof.

All rows fit in memory, or a share of the examples is cached from one segment of the store to the next. Features are
those of ``jobs/published/structures.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from table import Group, Row

if TYPE_CHECKING:
    from stores import Settings

#: What each task has to reach, with all rows in memory (None) and with a share of the examples cached: reads, CPU
#: seconds and, of the test rows, the share that is correct, or of chunks F1.
TARGETS: dict[str, tuple[tuple[float | None, float, float | None, float | None], ...]] = {
    "ocr": ((None, 1, 10, 0.855), (0.25, 8, None, None)),
    "conll": ((None, 1, 70, 0.935),),  # memory for eight vectors of weights holds all rows
    "synthetic": ((0.05, 5, None, None),),
}
C = {"ocr": 0.1, "conll": 0.1, "synthetic": 0.002}


def sequences(settings: Settings) -> Iterator[Group]:
    """A group for each set that is there."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "published"))
    from structures import certified, compile_first, read_conll, read_ocr

    compile_first()
    for name, read, folder in (("ocr", read_ocr, "ocr_letters"), ("conll", read_conll, "conll2000")):
        if settings.texts:  # quick: what is made alone
            continue
        if not (settings.data / folder).exists():
            yield Group("t", f"{folder}: not found in {settings.data}, skipped")
            continue
        task = read(settings.data)
        group = Group("t", f"{folder}, chain, hinge, C {C[name]:g}, epsilon 1e-3, {len(task.train.y):,} rows")
        for share, *target in TARGETS[name]:
            group.rows.append(_row(certified(task, "chain", C[name], 1e-3, share=share), share, *target))
        yield group
    count = max(50, settings.rows // 10)
    task = synthetic(count)
    group = Group("t", f"{count:,} generated sequences, chain, hinge, C {C['synthetic']:g}, {len(task.train.y):,} rows")
    for share, *target in TARGETS["synthetic"]:
        group.rows.append(_row(certified(task, "chain", C["synthetic"], 1e-3, share=share), share, *target))
    yield group


def _row(line: Any, share: float | None, reads: float, seconds: float | None, correct: float | None) -> Row:
    """What was measured beside what it has to reach."""
    found = line.accuracy if line.f1 is None else line.f1
    asked = [f"at most {reads:g} reads", "" if seconds is None else f"{seconds:g} s"]
    asked.append("" if correct is None else f"{correct:.1%}")
    reached = line.gap is not None and line.gap <= 1e-3 and line.reads <= reads * 1.005
    reached &= (seconds is None or line.seconds <= seconds) and (correct is None or found >= correct)
    what = "all rows in memory" if share is None else f"{share:.0%} of the examples cached"
    note = f"CPU {line.seconds:.1f} s, {'F1' if line.f1 is not None else 'correct'} {found:.2%}; "
    note += f"asked: {', '.join(filter(None, asked))}: {'reached' if reached else 'NOT reached'}"
    return Row(what, read=line.reads, margin=None if line.gap is None else 1.0 - line.gap, note=note)


def synthetic(count: int, features: int = 64, classes: int = 10) -> Any:
    """Hidden Markov chains of 4 to 16 rows: labels follow a random matrix, rows are normal around label centres."""
    from structures import Rows, Task

    rng = np.random.default_rng(0)
    moves = rng.dirichlet(np.full(classes, 0.3), classes).cumsum(axis=1)
    centres = rng.normal(0, 0.35, (classes, features))

    def part(sequences: int) -> Any:
        lengths = rng.integers(4, 17, sequences)
        first, steps = rng.integers(classes, size=sequences), rng.random((sequences, 16))
        y = np.empty((sequences, 16), np.int64)
        for t in range(16):
            before = first if t == 0 else (moves[y[:, t - 1]] < steps[:, t, None]).sum(axis=1)
            y[:, t] = np.minimum(before, classes - 1)
        labels = y[np.arange(16) < lengths[:, None]]
        X = (centres[labels] + rng.normal(size=(len(labels), features))).astype(np.float32)
        return Rows(X, labels, np.repeat(np.arange(sequences), lengths))

    return Task(part(count), part(max(10, count // 20)), ([], []))

"""The whole problem as one quadratic program in memory, by a library: daqp (Arnstrom, Bemporad, Axehill 2022).

    primal   minimise ||w||^2 / 2          subject to  y (w.x + b) >= 1 for all rows          (Awasthi's lecture, 1.2)
    dual     minimise ||sum a y x||^2 / 2 - sum a   over a >= 0,  sum a y = 0 with an intercept    (Jebara's lecture)

With an intercept the rows are moved to the middle between the means of the classes. They are divided by the length of
the longest: daqp's tolerances are for numbers of that size. All rows are read into memory first. The primal needs
n (d + 1) numbers, the dual n^2: a store that needs more than --memory is refused, and so are more than
``MOST_DUAL_ROWS`` rows for the dual. One more read proves the hyperplane.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.rows import dense
from coremargin.problems.common.sample import read_sample
from coremargin.problems.hard.state import Hypothesis
from coremargin.problems.hard.strategies.strategy import Strategy
from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.common.driver_rows import WorkingSet
    from coremargin.problems.common.sample import Sample
    from coremargin.problems.common.sent import SentRows
    from coremargin.problems.hard.probe import MarginSummary

#: No bound, and the mark of an equality, in daqp's terms.
FREE, EQUALITY = 1e30, 5
#: Violation of a constraint, relative to the length of its normal; and the weight of the proximal steps by which daqp
#: solves the primal, as no curvature bounds b.
TOLERANCE, PROXIMAL = 1e-9, 1e-4
#: Most rows of the dual, whose dense factors take the cube of their number: 2,000 rows take 15 s.
MOST_DUAL_ROWS = 4_000


@dataclass(frozen=True)
class QuadraticProgram(Strategy):
    """Reads all rows, solves one program, and proves it."""

    dual: bool

    proposes = True

    reading = "two reads: one takes all rows into memory, one proves the result"

    def refusal(self, source: Source, memory: int) -> str:
        """Without daqp, and if the program needs more than the memory."""
        try:
            import daqp  # noqa: F401
        except ImportError:
            return "expected the package daqp: pip install 'coremargin[qp]'"
        n, d = source.rows, source.features
        if self.dual and n > MOST_DUAL_ROWS:
            return f"its program has a variable for each of {n:,} rows, at most {MOST_DUAL_ROWS:,}; use strategy 'smo'"
        need = 8 * (n * n if self.dual else n * (d + 1))
        if need <= memory:
            return ""
        shape = f"{n:,} x {n:,}" if self.dual else f"{n:,} x {d + 1:,}"
        return (
            f"its program has {shape} numbers, {format_size(need)}, and memory is {format_size(memory)}; give more "
            f"memory, or use strategy 'fast', which has the same solution"
        )

    def first(self, source: Source, codes: tuple[int, int]) -> Sample:
        """All rows."""
        return read_sample(source, list(range(source.chunks)), codes)

    def rows_sent(self, source: Source, working_set_rows: int) -> int:
        """1: all rows are known."""
        return 1

    def joining(self, summary: MarginSummary, newest: Hypothesis) -> SentRows:
        """The rows that were sent: none."""
        return summary.sent

    def propose(self, working_set: WorkingSet, exact: Hypothesis, *, intercept: bool) -> Hypothesis:
        """The program's hyperplane; the exact one if daqp finds none."""
        import daqp

        rows, y = dense(working_set.rows), working_set.signs.astype(np.float64)
        middle = (rows[y > 0].mean(axis=0) + rows[y < 0].mean(axis=0)) / 2 if intercept else 0.0
        z = y[:, None] * (rows - middle)
        z /= float(np.sqrt((z**2).sum(axis=1).max())) or 1.0
        n, d = z.shape
        if self.dual:
            upper, lower, sense = np.full(n, FREE), np.zeros(n), np.zeros(n, np.int32)
            balance = np.zeros((0, n))
            if intercept:  # as an equality
                balance = y[None, :]
                upper, lower, sense = np.append(upper, 0.0), np.append(lower, 0.0), np.append(sense, np.int32(EQUALITY))
            a, _, flag, _ = daqp.solve(z @ z.T, -np.ones(n), balance, upper, lower, sense)
            w = np.asarray(a) @ z if flag > 0 else np.zeros(d)
        else:
            curvature, normals = np.eye(d), z
            if intercept:
                curvature, normals = np.diag(np.append(np.ones(d), 0.0)), np.column_stack([z, y])
            free = np.full(n, FREE), np.ones(n), np.zeros(n, np.int32)
            steps = {"primal_tol": TOLERANCE, "eps_prox": PROXIMAL if intercept else 0.0}
            v, _, flag, _ = daqp.solve(
                curvature, np.zeros(len(curvature)), np.ascontiguousarray(normals), *free, **steps
            )
            w = np.asarray(v)[:d] if flag > 0 else np.zeros(d)
        length = float(np.linalg.norm(w))
        if not length > 0 or not np.isfinite(length):
            return exact
        values = rows @ (w / length)
        b = (values[y < 0].max() + values[y > 0].min()) / -2 if intercept else 0.0
        return Hypothesis(w / length, float(b))

"""How soft margins are kept: as sums of d x d numbers, as some of the rows, or as all of them. The one place that says.

CPU seconds measured for whole calls on dense float32 rows with 2 to 10 % noise, C = 1, gap 1e-3, by sums | on all rows:

    rows x features     hinge          squared hinge
    30,000 x 300        2.5 | 1.2      1.4 | 0.7
    100,000 x 300       7.0 | 2.2      1.5 | 1.3
    200,000 x 300      10.5 | 3.6      2.1 | 2.7
    60,000 x 784      > 18  | 4.2      6.7 | 2.0
    100,000 x 100       1.8 | 1.1      1.2 | 0.7
    300,000 x 100       1.3 | 2.2      1.0 | 1.3     C = 0.001 and C = 100: the same

Steps by sums cost n d^2, those on all rows n d; few features are left to the sums, which mind odd units less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.problems.soft.bounds import longest

if TYPE_CHECKING:
    from coremargin.problems.soft.problem import SoftMargin
    from coremargin.problems.soft.state import SoftState

#: So many rows per feature are few, and so many features many: then all rows are held, where they fit.
FEW_ROWS, MANY_FEATURES = 50, 200
#: Rows longer than this are left to sums, whose steps mind units less.
FAR = 1e6
#: Summaries of squared hinge hold a (d + 1) x (d + 1) matrix; so many are on the way at a time.
CURVES = 8
#: Bytes that each of the problems which share the memory keeps of a row that they all hold.
KNOWN = 17


def as_rows(problem: SoftMargin) -> bool:
    """True for models that are kept as rows (wide_steps.py), False as d x d sums (soft_steps.py).

    As rows where such sums do not fit into the memory, and where all rows fit and there are few per feature, of which a
    sample tells little, or many features, or they are sparse. The sparse rows that a hinge needs are few bytes, and its
    steps by rows take less time than those by sums; what bends the squared hinge is in its sums alone.
    """
    source, p = problem.source, problem.source.features + 1
    copies = CURVES * problem.sharing if problem.loss == "squared_hinge" else 2  # the hinge's exist while it is solved
    if source.rows < source.features or 8 * p * p * copies > max(problem.memory_bytes, 32 << 20):
        return True
    if source.sparse and problem.loss == "hinge":
        return True
    short = source.rows < FEW_ROWS * source.features
    return (source.sparse or short or source.features >= MANY_FEATURES) and fits(problem)


def can_change(problem: SoftMargin, state: SoftState, stuck: bool) -> bool:
    """Whether a hinge that is solved by sums may go on with all its rows.

    Where very many rows are equal, the band is full of a few of them, of one class perhaps: no dual point of it is in
    balance, or no wider band is to be had (stuck). On all rows the job ends.
    """
    if (not stuck and (state.round < 2 or state.dual > 0)) or longest(problem.source) > FAR:
        return False
    by_sums = problem.loss == "hinge" and not problem.wide and not len(state.held)
    return by_sums and problem.sharing == 1 and fits(problem)


def fits(problem: SoftMargin) -> bool:
    """Whether the memory has room for all rows as they are read, and so much again for what members know of each.

    Sparse rows have their values in float64. Problems that share the memory hold the same rows, once; members that
    leave a fold out have a copy each while they are solved.
    """
    source = problem.source
    values = source.nbytes * (8 // source.dtype.itemsize if source.sparse else 1)
    known = KNOWN * problem.sharing * source.rows
    return max(problem.copies * (values + 8 * source.rows), known) <= problem.memory_bytes

"""What a scan about the soft margin of several classes leads to: the dual bound that it proves, the next hypothesis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import multiclass as mc
from coremargin.maths.margin import gamma
from coremargin.maths.simplex_newton import ClassesModel, Minimum, minimise_classes
from coremargin.problems.common.driver_rows import ClassRows, thin_by_class

if TYPE_CHECKING:
    from coremargin.problems.multiclass.state import ClassesState
    from coremargin.problems.multiclass.summary import ClassesSummary

Array = NDArray[np.float64]

#: The model is solved to this share of the gap that is asked for.
SHARE = 0.05
#: mu of the first proximal step where there is a guess: so many times the last one before it.
AGAIN = 3.0
#: Many rows are solved on a part of them first: every row but so many, down to so few, to this relative gap.
STAGE, STAGE_LEAST, STAGE_GAP = 6, 500, 2e-2


@dataclass(frozen=True)
class Objective:
    """What is minimised: 1/2 ||V||^2 + the losses, class_c (K,) being the c of a row of each class.

    shape: (K, d + 1) of V; constant: the last entry of every row; longest: the longest row with it; sum_error: relative
    error of a sum over all rows; epsilon: the gap that is asked for.
    """

    shape: tuple[int, int]
    class_c: Array
    constant: float
    longest: float
    sum_error: float
    epsilon: float


@dataclass(frozen=True)
class NearMarginModel:
    """fixed_loss - <linear, V> + 1/2 ||V||^2 + the losses of some rows, row_c (m,) theirs."""

    fixed_loss: float
    linear: Array
    rows: ClassRows
    row_c: Array


@dataclass(frozen=True)
class WarmStart:
    """A hypothesis (K, d + 1) that may be near, and duals (m, K) of some rows by id; others are on their side there.

    mu: that of the last proximal step.
    """

    at: Array
    ids: NDArray[np.int64]
    duals: Array
    mu: float


def minimise_rows(objective: Objective, rows: ClassRows, row_c: Array, tolerance: float) -> WarmStart:
    """The minimiser (K, d + 1) of the objective on these rows alone, and their duals (m, K)."""
    warm_start = None
    if len(rows) > STAGE * STAGE_LEAST:
        part = thin_by_class(rows.classes, len(rows) // STAGE)
        classes, size = rows.classes, objective.shape[0]
        whole, sampled = (np.bincount(classes[k], row_c[k], minlength=size) for k in (slice(None), part))
        few = row_c[part] * (whole / np.where(sampled > 0, sampled, 1.0))[classes[part]]
        found = minimise_rows(objective, rows.take(part), few, max(STAGE_GAP, tolerance))
        warm_start = replace(found, ids=found.ids[:0], duals=found.duals[:0])
    model = NearMarginModel(0.0, np.zeros(objective.shape), rows, row_c)
    return _minimise(objective, model, tolerance, warm_start=warm_start)


def _minimise(
    objective: Objective,
    model: NearMarginModel,
    tolerance: float,
    scale: float = 0.0,
    warm_start: WarmStart | None = None,
) -> WarmStart:
    """The minimiser (K, d + 1) of the model, and the duals (m, K) of its rows.

    tolerance: of the model's value, or of ``scale`` where that is larger.
    """
    rows, linear, row_c = model.rows, model.linear, model.row_c
    violations0 = mc.violations(mc.scores_of(rows.rows, linear, objective.constant), rows.classes)
    fixed_loss = model.fixed_loss - 0.5 * float((linear * linear).sum())
    flat, start = ClassesModel(fixed_loss, violations0, rows.rows, rows.classes, row_c, objective.constant), None
    if warm_start is not None and len(rows):
        at = warm_start.at - linear
        worst = flat.violations(flat.scores(at)).argmax(axis=1)
        duals = np.eye(objective.shape[0])[worst] * np.where(worst == rows.classes, 0.0, row_c)[:, None]
        _, mine, known = np.intersect1d(rows.ids, warm_start.ids, assume_unique=True, return_indices=True)
        duals[mine] = warm_start.duals[known]
        start = Minimum(at, np.inf, duals, -np.inf, float(row_c.mean()) / (AGAIN * warm_start.mu))
    found = minimise_classes(flat, tolerance, start, scale=scale)
    mu = float(row_c.mean()) / found.curvature if len(row_c) else 1.0
    return WarmStart(linear + found.at, rows.ids, found.duals, mu)


def dual_step(objective: Objective, state: ClassesState, summary: ClassesSummary) -> tuple[Array, ClassesState]:
    """The minimiser of the scan's model, and the state with its dual bound: it holds for all rows, however far."""
    near = summary.near.ready()
    row_c, far_c = objective.class_c[near.classes] * near.shares, float(summary.far_c[0])
    tolerance = max(SHARE * objective.epsilon, 1e-12)
    free = NearMarginModel(far_c, summary.far_linear, near, row_c)
    known = WarmStart(state.newest, state.proof.ids, state.duals, state.mu)
    step = _minimise(objective, free, tolerance, state.upper, known)
    state = replace(_proven(objective, state, summary, near, step.duals), mu=step.mu)
    guarded = _guarded(objective, state, summary, near, step.at, tolerance)
    return step.at if guarded is None else guarded, state


def _proven(
    objective: Objective, state: ClassesState, summary: ClassesSummary, near: ClassRows, duals: Array
) -> ClassesState:
    """With the dual bound, rounded down, if it is better."""
    far_c = float(summary.far_c[0])
    v = summary.far_linear + mc.kesler_sum(near.rows, near.classes, duals, objective.constant)
    total, length = far_c + float(duals.sum()), float(np.linalg.norm(v))
    error = objective.sum_error + gamma(duals.size)
    off = 16.0 * error * total * objective.longest  # how far v may be: its square counts where v is short
    lower = total - 0.5 * length**2 - 8.0 * error * total - off * (length + 0.5 * off)
    if not lower > state.lower:
        return state
    return replace(state, lower=lower, reference=state.newest, proof=near.bare(), duals=duals)


def _guarded(
    objective: Objective, state: ClassesState, summary: ClassesSummary, near: ClassRows, step: Array, tolerance: float
) -> Array | None:
    """The step again with rows of the sample in the place of far ones, where some of them would change sides."""
    away = state.pool.take(np.flatnonzero(np.isin(state.pool.ids, near.ids, invert=True)))
    if not len(away):
        return None
    t = mc.violations(mc.scores_of(away.rows, state.newest, objective.constant), away.classes)
    was = t.argmax(axis=1)
    would = mc.violations(mc.scores_of(away.rows, step, objective.constant), away.classes).argmax(axis=1)
    if (was == would).all():
        return None
    row_c = objective.class_c[away.classes] * away.shares
    near_c = objective.class_c[near.classes] * near.shares
    row_c = row_c * max(0.0, float(summary.total_c[0]) - float(near_c.sum())) / float(row_c.sum())
    # What the sample says of far rows now is taken out of their sums, and put in again as rows that may change sides.
    weights = np.zeros(t.shape)
    weights[np.arange(len(was)), was] = np.where(was == away.classes, 0.0, row_c)
    linear = summary.far_linear - mc.kesler_sum(away.rows, away.classes, weights, objective.constant)
    fixed_loss = float(summary.far_c[0]) - float(weights.sum())
    rows, row_c = ClassRows.concatenate([near, away]), np.concatenate([near_c, row_c])
    warm_start = WarmStart(state.newest, state.proof.ids, state.duals, state.mu)
    # No rougher than the near-margin model: else the newest hypothesis may do, and the job would stand still.
    return _minimise(
        objective, NearMarginModel(fixed_loss, linear, rows, row_c), max(tolerance, 1e-7), state.upper, warm_start
    ).at

"""An outlier state as figures for people and as a result: incumbents, rows left out, and the proof of the bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.outliers.certificates import Certificate
from coremargin.maths.outliers.explore import Leaf
from coremargin.maths.outliers.storage import certificates_to_arrays, leaves_to_arrays
from coremargin.maths.rows import of_dense
from coremargin.problems.result import STOPPED, Result

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.outliers.certificates import Arena
    from coremargin.maths.outliers.search import Search
    from coremargin.problems.outliers import OutlierMargin
    from coremargin.problems.trim_state import TrimState

#: A proof that needs more than this is not kept; then the upper bound is a claim without its proof, which verify says.
PROOF_BYTES = 64 << 20
#: Rows of the pool, the lowest, that say what a row left out buys.
GAIN_ROWS = 2_000

Proof = tuple[tuple[Leaf, ...], list[Certificate]]

REASONS = {
    **STOPPED,
    "certified": "certified",
    "not_separable": "no rows left out in that number make the others separable",
    "heuristic": "the heuristic's answer, with an upper bound",
}


def figures(state: TrimState) -> dict[str, Any]:
    """What a round is described by."""
    return {
        "lower": state.lower, "lower_now": state.lower_now, "upper": state.upper, "pool_rows": len(state.pool),
        "coreset_rows": sum(len(search.certificates) for search in state.searches), "new_rows": state.new_rows,
        "rows_below": None, "nodes": sum(search.nodes for search in state.searches),
    }  # fmt: skip


def result(problem: OutlierMargin, state: TrimState) -> Result:
    """The model that a state stands for: the incumbent of the largest k; the others are kept beside it."""
    arena, best = problem.arena(state), state.main.best
    weights, gains = _support_and_gains(arena, state)
    proofs: list[Proof] = []
    for search in state.searches:
        proofs.append(_proof(search, sum(len(certificates) for _, certificates in proofs)))
    used = [np.flatnonzero(weights), *(c.rows for _, certificates in proofs for c in certificates)]
    used += [np.array([step if step >= 0 else ~step for step in leaf.path], np.intp) for p, _ in proofs for leaf in p]
    core = np.unique(np.concatenate(used)).astype(np.intp)
    core = core[np.argsort(state.pool.ids[core], kind="stable")]
    extra = _extra(state, proofs, gains, core)
    lost = state.status == "certified" and best.margin <= 0
    status = "not_separable" if lost else "certified" if state.status == "certified" else "stopped"
    w, b = (best.w, best.b) if np.any(best.w) else (state.wishes[0], state.offset)  # before the first scan
    return Result(
        status=cast("Any", status), reason=REASONS["not_separable" if lost else state.status],
        kind="not_separable" if lost else "margin", w=w, b=b, lower=None if lost else best.margin,
        upper=state.upper, ids=state.pool.ids[core], signs=state.pool.signs[core], weights=weights[core],
        rows=of_dense(state.pool.x[core], sparse=problem.source.sparse), final=False, extra=extra,
    )  # fmt: skip


def _support_and_gains(arena: Arena, state: TrimState) -> tuple[Array, Array]:
    """Dual weights (n,) of the pool without the rows left out; and for each of these the margin lost if it stays.

    Over the lowest rows of the pool: what is lost on all rows is at least that.
    """
    weights, out = np.zeros(len(arena)), state.left_out[-1]
    free = np.isin(state.pool.ids, out.ids, invert=True)
    if not arena.bounded(free):
        return weights, np.zeros(len(out.ids))
    base = arena.best(free)
    weights[base.rows] = base.weights
    half = 2.0 if arena.intercept else 1.0
    margins = arena.signs * (arena.x @ state.main.best.w + state.main.best.b)
    lowest = np.flatnonzero(free)[np.argsort(margins[free], kind="stable")[:GAIN_ROWS]]
    near = np.zeros(len(arena), bool)
    near[lowest] = near[base.rows] = True
    gains = []
    for row in out.ids:
        here = state.pool.ids == row
        back = arena.best(near | here, base)
        gain = float(np.linalg.norm(base.point) - np.linalg.norm(back.point)) / half
        gains.append(max(0.0, gain) if here.any() else np.nan)
    return weights, np.array(gains)


def _proof(search: Search, first: int) -> Proof:
    """The leaves that prove the upper bound, and the certificates that they rest on, numbered from ``first``."""
    leaves = search.proof or ()
    used = sorted({i for leaf in leaves for i in leaf.proof})
    number = {old: new for new, old in enumerate(used, first)}
    renamed = tuple(replace(leaf, proof=tuple(number[i] for i in leaf.proof)) for leaf in leaves)
    return renamed, [search.certificates[i] for i in used]


def _extra(state: TrimState, proofs: list[Proof], gains: Array, core: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
    """What the model keeps: a hyperplane and bounds for each k, the rows left out, the proofs over the coreset."""
    searches, out = state.searches, state.left_out[-1]
    place = np.full(len(state.pool), -1)
    place[core] = np.arange(len(core))
    arrays: dict[str, NDArray[Any]] = {
        "outliers_k": np.array([search.k for search in searches]),
        "outliers_lower": np.array([search.best.margin for search in searches]),
        "outliers_upper": np.array([search.upper for search in searches]),
        "outliers_w": np.array([search.best.w for search in searches]),
        "outliers_b": np.array([search.best.b for search in searches]),
        "outliers_nodes": np.array([search.nodes for search in searches]),
        "outliers_ids": out.ids, "outliers_signs": out.signs, "outliers_margins": out.values, "outliers_gains": gains,
    }  # fmt: skip
    leaves = [_placed(leaf, place) for part, _ in proofs for leaf in part]
    certificates = [replace(c, rows=place[c.rows], bits=0) for _, part in proofs for c in part]
    parts = certificates_to_arrays(certificates) | leaves_to_arrays(leaves)
    del parts["since"]
    stored = {f"outliers_proof_{name}": values for name, values in parts.items()}
    stored["outliers_proof_leaves"] = np.array([len(part) for part, _ in proofs])
    return {"ledger_" + k: v for k, v in (arrays | (stored if _small(stored) else {})).items()}


def _placed(leaf: Leaf, place: NDArray[np.intp]) -> Leaf:
    """A leaf whose path names rows of the coreset: ``row`` left out, ``~row`` kept."""
    return replace(leaf, path=tuple(int(place[step]) if step >= 0 else ~int(place[~step]) for step in leaf.path))


def _small(arrays: dict[str, NDArray[Any]]) -> bool:
    return sum(values.nbytes for values in arrays.values()) <= PROOF_BYTES

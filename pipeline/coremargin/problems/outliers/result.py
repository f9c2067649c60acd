"""An outlier state as figures for people and as a result: incumbents, rows left out, and the proof of the bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.problem import Round
from coremargin.maths.outliers.certificates import Certificates
from coremargin.maths.outliers.explore import Leaves
from coremargin.maths.outliers.forecast import outlook
from coremargin.maths.outliers.ragged import Ragged
from coremargin.maths.outliers.storage import certificates_to_arrays, leaves_to_arrays
from coremargin.maths.rows import of_dense
from coremargin.problems.common.driver_rows import WorkingSet
from coremargin.problems.common.result import STOPPED, Result
from coremargin.problems.common.stages import scan_position
from coremargin.problems.outliers.enumerate import subsets_told

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.outliers.certificates import SearchRows
    from coremargin.maths.outliers.search import Search
    from coremargin.problems.outliers.state import OutlierState

#: A proof that needs more than this is not kept; then no upper bound is claimed: what cannot be checked is no claim.
PROOF_BYTES = 1 << 30
#: Rows of the pool of each class, the lowest, that say what a row left out buys.
GAIN_ROWS = 1_000
#: Products of numbers that this may take: some tenths of a second.
GAIN_EFFORT = 300_000_000

Proof = tuple[Leaves, Certificates]

REASONS = {
    **STOPPED,
    "certified": "certified",
    "not_separable": "no rows left out in that number make the others separable",
    "heuristic": "the heuristic's answer, with an upper bound",
    "published": "the published algorithm has ended: its guarantee is a theorem, the upper bound is proven apart",
    "too_large": "the proof is larger than what a model keeps: nothing is claimed that could not be checked",
}


def round_of(state: OutlierState) -> Round:
    """What is told of a state."""
    return Round(
        status=state.status, lower=state.lower, lower_now=state.lower_now, upper=state.upper,
        pool_rows=state.rows_held, new_rows=state.new_rows,
        coreset_rows=sum(len(search.certificates) for search in state.searches),
        more=_searched(state) | subsets_told(state),
        **scan_position(state.round, state.stage, state.stages, going_on=state.reading),
    )  # fmt: skip


def _searched(state: OutlierState) -> dict[str, Any]:
    """How far the searches are, and what is to be expected of the main one."""
    told: dict[str, Any] = {"nodes": sum(search.nodes for search in state.searches)}
    if state.wrong is not None:
        told |= {"outliers": state.main.k, "wrong": state.wrong, "least": state.least}
    if state.main.status == "open" and (expected := outlook(state.main.trace, state.main.work)) is not None:
        told["gap_later"] = expected.later
    return told


def result(state: OutlierState, search_rows: SearchRows, *, sparse: bool) -> Result:
    """The model that a state stands for: the incumbent of the largest k; the others are kept beside it.

    search_rows: those of the state's pool; sparse: whether those of the source are.
    """
    best, pool = state.main.best, state.pool
    weights, gains = _support_and_gains(search_rows, state)
    proofs: list[Proof] = []
    for search in state.searches:
        proofs.append(_proof(search, sum(len(certificates) for _, certificates in proofs)))
    used = [np.flatnonzero(weights), *(certificates.rows.values for _, certificates in proofs)]
    used += [np.maximum(leaves.paths.values, ~leaves.paths.values) for leaves, _ in proofs]
    core = np.unique(np.concatenate(used)).astype(np.intp)
    core = core[np.argsort(pool.ids[core], kind="stable")]
    kept = _proof_arrays(proofs, core, len(pool))
    known = sum(values.nbytes for values in kept.values()) <= PROOF_BYTES
    lost = known and state.status == "certified" and best.margin <= 0
    proven = known and state.status == "certified" and best.margin > 0
    w, b = (best.w, best.b) if np.any(best.w) else (state.next_directions[0], state.offset)  # before all rows are read
    upper = [search.upper if known else np.inf for search in state.searches]
    extra = _extra(state, upper, gains) | (kept if known else {})
    word = "not_separable" if lost else state.status if known else "too_large"
    return Result(
        status="not_separable" if lost else "certified" if proven else "stopped", word=word, reason=REASONS[word],
        kind="not_separable" if lost else "margin", w=w, b=b, lower=None if lost else best.margin, upper=upper[-1],
        proof=WorkingSet(pool.ids[core], of_dense(pool.x[core], sparse=sparse), pool.signs[core], weights[core]),
        final=False,
        staged=bool(np.any(best.w)) and np.array_equal(best.w, state.counted_at),
        extra={f"outliers_{name}": values for name, values in extra.items()},
    )  # fmt: skip


def _support_and_gains(search_rows: SearchRows, state: OutlierState) -> tuple[Array, Array]:
    """Dual weights (n,) of the pool without the rows left out; and for each of these the margin lost if it stays.

    Over the lowest rows of the pool: what is lost on all rows is at least that. The rows come lowest first; what the
    last of them buy is not told (nan) where there are many, or many features: it takes a solve each. Of a job that was
    stopped the weights, too, are of the lowest rows, and of no more steps than that: nobody wants to wait for them.
    """
    weights, out = np.zeros(len(search_rows)), state.left_out[-1]
    free = np.isin(state.pool.ids, out.ids, invert=True)
    if not search_rows.bounded(free):
        return weights, np.zeros(len(out.ids))
    near = _lowest(search_rows, state, free)
    steps = GAIN_EFFORT // (int(near.sum()) * search_rows.x.shape[1])
    base = search_rows.best(near, most_steps=steps) if state.status == "running" else search_rows.best(free)
    weights[base.rows], near[base.rows] = base.weights, True
    gains, half = np.full(len(out.ids), np.nan), 2.0 if search_rows.intercept else 1.0
    # A solve that ended early says too much of the margin without a row: what is reached is true, too.
    whole = state.main.lower if state.status == "running" else float(np.linalg.norm(base.point)) / half
    for place, row in enumerate(out.ids):
        here = state.pool.ids == row
        if here.any() and steps > 0:
            back = search_rows.best(near | here, base, steps)
            gains[place] = max(0.0, whole - float(np.linalg.norm(back.point)) / half)
            steps -= back.steps
    return weights, gains


def _lowest(search_rows: SearchRows, state: OutlierState, free: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The lowest of the free rows (n,) of each class under the incumbent."""
    margins = search_rows.signs * (search_rows.x @ state.main.best.w + state.main.best.b)
    near = np.zeros(len(search_rows), np.bool_)
    for sign in (1, -1):
        mine = np.flatnonzero(free & (search_rows.signs == sign))
        near[mine[np.argsort(margins[mine], kind="stable")[:GAIN_ROWS]]] = True
    return near


def _proof(search: Search, first: int) -> Proof:
    """The leaves that prove the upper bound, and the certificates that they rest on, numbered from ``first``."""
    leaves = search.proof or Leaves.nothing()
    used, number = np.unique(leaves.proofs.values, return_inverse=True)
    proofs = Ragged((number + first).astype(np.int64), leaves.proofs.ends)
    return Leaves(leaves.paths, proofs), search.certificates.take(used)


def _extra(state: OutlierState, upper: list[float], gains: Array) -> dict[str, NDArray[Any]]:
    """What the model keeps beside the proofs: a hyperplane and bounds for each k, the rows left out."""
    searches, out = state.searches, state.left_out[-1]
    return {
        "k": np.array([search.k for search in searches]),
        "lower": np.array([search.best.margin for search in searches]),
        "upper": np.array(upper),
        "w": np.array([search.best.w for search in searches]),
        "b": np.array([search.best.b for search in searches]),
        "nodes": np.array([search.nodes for search in searches]),
        "ids": out.ids, "signs": out.signs, "margins": out.values, "gains": gains,
    }  # fmt: skip


def _proof_arrays(proofs: list[Proof], core: NDArray[np.intp], pool: int) -> dict[str, NDArray[Any]]:
    """The proofs of all k, over the rows ``core`` of a pool of so many rows."""
    place = np.full(pool, -1)
    place[core] = np.arange(len(core))
    leaves = Leaves.joined([part for part, _ in proofs])
    certificates = Certificates.joined([part for _, part in proofs])
    certificates = replace(certificates, rows=Ragged(place[certificates.rows.values], certificates.rows.ends))
    steps = leaves.paths.values  # rows of the coreset: ``row`` left out, ``~row`` kept
    steps = np.where(steps >= 0, place[np.maximum(steps, 0)], ~place[np.maximum(~steps, 0)])
    leaves = replace(leaves, paths=Ragged(steps, leaves.paths.ends))
    parts = certificates_to_arrays(certificates) | leaves_to_arrays(leaves)
    del parts["since"], parts["uses"]
    stored = {f"proof_{name}": values for name, values in parts.items()}
    return stored | {"proof_leaves": np.array([len(part) for part, _ in proofs])}

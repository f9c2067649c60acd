"""An outlier state as a report of a round and as a result: incumbents, excluded rows, and the proof of the bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.problem import Round
from coremargin.maths.outliers.certificates import Certificates
from coremargin.maths.outliers.explore import Leaves
from coremargin.maths.outliers.forecast import forecast_gap
from coremargin.maths.outliers.ragged import Ragged
from coremargin.maths.rows import of_dense
from coremargin.problems.common.driver_rows import WorkingSet
from coremargin.problems.common.result import STOPPED, Result
from coremargin.problems.common.stages import scan_position
from coremargin.problems.outliers.enumeration import enumeration_figures

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.outliers.certificates import SearchRows
    from coremargin.maths.outliers.search import Search
    from coremargin.problems.outliers.state import OutlierState

#: A larger proof is not kept, and no upper bound is then claimed: what cannot be checked is not claimed.
PROOF_BYTES = 1 << 30
#: Lowest rows of each class of the working set from which gains are computed.
GAIN_ROWS = 1_000
#: Multiplications that computing gains may take: a few tenths of a second.
GAIN_EFFORT = 300_000_000

Proof = tuple[Leaves, Certificates]

REASONS = {
    **STOPPED,
    "certified": "certified",
    "not_separable": "excluding that many rows cannot make the others separable",
    "heuristic": "the heuristic's answer, with an upper bound",
    "published": "the published algorithm has finished: its guarantee is a theorem, the upper bound is a proof",
    "too_large": "the proof is too large for a model to keep: nothing is claimed that cannot be checked",
}


def describe_round(state: OutlierState) -> Round:
    """The report of a round."""
    figures: dict[str, Any] = {"nodes": sum(search.nodes for search in state.searches)}
    if state.wrong is not None:
        figures |= {"outliers": state.main.k, "wrong": state.wrong, "least": state.least}
    forecast = forecast_gap(state.main.trace, state.main.work) if state.main.status == "open" else None
    if forecast is not None:
        figures["gap_later"] = forecast.later
    return Round(
        status=state.status,
        lower=state.lower,
        lower_now=state.lower_now,
        upper=state.upper,
        working_set_rows=state.rows_held,
        new_rows=state.new_rows,
        coreset_rows=sum(len(search.certificates) for search in state.searches),
        more=figures | enumeration_figures(state),
        **scan_position(state.round, state.stage, state.stages, going_on=state.in_first_read),
    )


def make_result(state: OutlierState, search_rows: SearchRows, *, sparse: bool) -> Result:
    """The result of a state: the incumbent of the largest k, with those of the others alongside.

    search_rows: of the working set; sparse: whether the rows of the source are.
    """
    best, working_set = state.main.best, state.working_set
    weights, gains = _support_and_gains(search_rows, state)
    proofs: list[Proof] = []
    for search in state.searches:
        proofs.append(_proof(search, sum(len(certificates) for _, certificates in proofs)))
    used = [np.flatnonzero(weights), *(certificates.rows.values for _, certificates in proofs)]
    used += [np.maximum(leaves.paths.values, ~leaves.paths.values) for leaves, _ in proofs]
    core = np.unique(np.concatenate(used)).astype(np.intp)
    core = core[np.argsort(working_set.ids[core], kind="stable")]
    proof_arrays = _proof_arrays(proofs, core, len(working_set))
    fits = sum(values.nbytes for values in proof_arrays.values()) <= PROOF_BYTES
    inseparable = fits and state.status == "certified" and best.margin <= 0
    proven = fits and state.status == "certified" and best.margin > 0
    # Before all rows are read there is no incumbent.
    w, b = (best.w, best.b) if np.any(best.w) else (state.next_directions[0], state.offset)
    upper = [search.upper if fits else np.inf for search in state.searches]
    word = "not_separable" if inseparable else state.status if fits else "too_large"
    excluded = state.excluded[-1]
    extra = {
        "k": np.array([search.k for search in state.searches]),
        "lower": np.array([search.best.margin for search in state.searches]),
        "upper": np.array(upper),
        "w": np.array([search.best.w for search in state.searches]),
        "b": np.array([search.best.b for search in state.searches]),
        "nodes": np.array([search.nodes for search in state.searches]),
        "ids": excluded.ids,
        "signs": excluded.signs,
        "margins": excluded.values,
        "gains": gains,
        **(proof_arrays if fits else {}),
    }
    coreset_x = of_dense(working_set.x[core], sparse=sparse)
    return Result(
        status="not_separable" if inseparable else "certified" if proven else "stopped",
        word=word,
        reason=REASONS[word],
        kind="not_separable" if inseparable else "margin",
        w=w,
        b=b,
        lower=None if inseparable else best.margin,
        upper=upper[-1],
        proof=WorkingSet(working_set.ids[core], coreset_x, working_set.signs[core], weights[core]),
        final=False,
        staged=bool(np.any(best.w)) and np.array_equal(best.w, state.counted_at),
        extra={f"outliers_{name}": values for name, values in extra.items()},
    )


def _support_and_gains(search_rows: SearchRows, state: OutlierState) -> tuple[Array, Array]:
    """Dual weights (n,) of the working set without the excluded rows, and each of these rows' gain in margin.

    Gains come from the lowest rows of the working set; the gain on all rows is at least that. They are computed lowest
    row first, a solve each, and are nan from where GAIN_EFFORT ends. In a stopped job the weights, too, come from the
    lowest rows and no more steps than that, so that stopping is quick.
    """
    weights, excluded = np.zeros(len(search_rows)), state.excluded[-1]
    free = np.isin(state.working_set.ids, excluded.ids, invert=True)
    if not search_rows.has_bound(free):
        return weights, np.zeros(len(excluded.ids))
    near = _lowest(search_rows, state, free)
    steps = GAIN_EFFORT // (int(near.sum()) * search_rows.x.shape[1])
    base = search_rows.best(near, most_steps=steps) if state.status == "running" else search_rows.best(free)
    weights[base.rows], near[base.rows] = base.weights, True
    gains, half = np.full(len(excluded.ids), np.nan), 2.0 if search_rows.intercept else 1.0
    # A solve that stopped early overstates the margin without a row; the margin that is reached is safe.
    whole = state.main.lower if state.status == "running" else float(np.linalg.norm(base.point)) / half
    for place, row in enumerate(excluded.ids):
        here = state.working_set.ids == row
        if here.any() and steps > 0:
            back = search_rows.best(near | here, base, steps)
            gains[place] = max(0.0, whole - float(np.linalg.norm(back.point)) / half)
            steps -= back.steps
    return weights, gains


def _lowest(search_rows: SearchRows, state: OutlierState, free: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """A mask (n,) of the lowest free rows of each class under the incumbent."""
    margins = search_rows.signs * (search_rows.x @ state.main.best.w + state.main.best.b)
    near = np.zeros(len(search_rows), np.bool_)
    for sign in (1, -1):
        mine = np.flatnonzero(free & (search_rows.signs == sign))
        near[mine[np.argsort(margins[mine], kind="stable")[:GAIN_ROWS]]] = True
    return near


def _proof(search: Search, first: int) -> Proof:
    """The leaves that prove the upper bound, and their certificates, numbered from ``first``."""
    leaves = search.proof or Leaves.empty()
    used, number = np.unique(leaves.proofs.values, return_inverse=True)
    proofs = Ragged((number + first).astype(np.int64), leaves.proofs.ends)
    return Leaves(leaves.paths, proofs), search.certificates.take(used)


def _proof_arrays(proofs: list[Proof], core: NDArray[np.intp], rows: int) -> dict[str, NDArray[Any]]:
    """The proofs of all k in terms of the coreset; core: its positions in a working set of ``rows`` rows."""
    place = np.full(rows, -1)
    place[core] = np.arange(len(core))
    leaves = Leaves.concatenate([part for part, _ in proofs])
    certificates = Certificates.concatenate([part for _, part in proofs])
    certificates = replace(certificates, rows=Ragged(place[certificates.rows.values], certificates.rows.ends))
    steps = leaves.paths.values  # ``row`` excluded, ``~row`` kept
    steps = np.where(steps >= 0, place[np.maximum(steps, 0)], ~place[np.maximum(~steps, 0)])
    leaves = replace(leaves, paths=Ragged(steps, leaves.paths.ends))
    parts = certificates.to_arrays() | leaves.to_arrays()
    del parts["valid_from"], parts["uses"]
    stored = {f"proof_{name}": values for name, values in parts.items()}
    return stored | {"proof_leaves": np.array([len(part) for part, _ in proofs])}

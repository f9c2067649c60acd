"""Scaling by an ellipsoid: the ellipsoid of least volume around the rows, which is found before they are scaled.

Other scalings follow from statistics that ingest kept. This one takes a read of its own: that of a job with
``one_class = "ellipsoid"``, with the memory, blocks and cluster of the training. The ellipsoid is part of the model
(formats/ellipsoid_scaling.py), and ``verify`` checks both. A run that is resumed finds it again, to the bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import solve_triangular

from coremargin.blas import one_blas_thread
from coremargin.data.difference import difference, earlier
from coremargin.data.moments import moments
from coremargin.data.store import Store
from coremargin.data.view import root
from coremargin.engine.checkpoint import NoCheckpoint
from coremargin.engine.loop import Callbacks, Engine, OutOfTime, rounds
from coremargin.errors import RunError, UsageError
from coremargin.formats.ellipsoid_scaling import EPSILON, MOST_COLUMNS, PREFIX
from coremargin.maths.breakdown import quiet
from coremargin.maths.enclosing_ellipsoid import Ellipsoid, is_certified
from coremargin.maths.margin import gamma
from coremargin.maths.rows import dense
from coremargin.maths.stopping import stoppable
from coremargin.problems.ellipsoid.enclosing_ellipsoid import solver_bytes
from coremargin.problems.ellipsoid.kind import EllipsoidJob
from coremargin.problems.one_class.rows import EnclosedRows
from coremargin.problems.registry import kind_of, problem_of
from coremargin.spec import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.data.source import Source
    from coremargin.engine.protocols import Executor
    from coremargin.models.fleet import AnyModel
    from coremargin.problems.job import TrainJob

    Arrays = dict[str, NDArray[Any]]

#: The share of the least volume that is aimed at. Where float64 does not prove it, less is enough: ``EPSILON``.
_AIM = 5e-7
#: Rows that are compared with an earlier ellipsoid at a time.
_SLICE = 1 << 16


@dataclass(frozen=True)
class FittedEllipsoid:
    """The arrays of an ellipsoid as models have them, and what it has cost: an entry of ``run.json``."""

    arrays: Arrays
    cost: dict[str, Any]


def preliminary_ellipsoid(job: TrainJob, source: Source) -> Arrays | None:
    """An ellipsoid from the statistics of columns, with the axes of the coordinates; None for other scalings.

    The problem that is made with it has the sizes of the one to come, and refuses what that would refuse before
    anything is read. Raises UsageError for rows that are not scaled by ellipsoids.
    """
    if not job.scaling_takes_read:
        return None
    if source.sparse:
        raise UsageError(
            f"{source.name}: scaling 'ellipsoid' would turn the zeros of sparse rows into other values; use 'maxabs', "
            f"which keeps zeros, or ingest the rows as dense ones"
        )
    if source.features > MOST_COLUMNS:
        raise UsageError(
            f"{source.name}: scaling 'ellipsoid' is for at most {MOST_COLUMNS} columns, found {source.features:,}: "
            f"each row is multiplied by a matrix; use 'standard', or ingest fewer columns (--drop)"
        )
    need = solver_bytes(source.features)
    if need > job.memory_bytes:
        raise UsageError(
            f"{source.name}: scaling 'ellipsoid' takes {format_size(need)} of memory for {source.features:,} columns, "
            f"found {format_size(job.memory_bytes)}; give more memory, leave out columns, or choose 'standard'"
        )
    found = moments(source)
    with np.errstate(over="ignore"):
        size = np.sqrt(found.variance)
    columns = np.flatnonzero(~found.constant & np.isfinite(size) & (size > 0))
    if not len(columns):
        raise UsageError(f"{source.name}: scaling 'ellipsoid': all rows are equal, so that they span no ellipsoid")
    arrays = {"centre": found.mean[columns], "axes": np.diag(1.0 / size[columns]), "bounds": np.full(2, np.inf)}
    return {PREFIX + name: values for name, values in (arrays | {"span_columns": columns}).items()}


def fit_ellipsoid(
    job: TrainJob,
    source: Source,
    executor: Executor,
    deadline: float,
    held: Callable[[], frozenset[int]] = frozenset,
) -> FittedEllipsoid:
    """Find the ellipsoid that scales the rows of a job.

    deadline: on the clock of ``time.perf_counter``; held: returns the chunks in memory. Raises RunError if there is no
    certified one by then, or in float64.
    """
    started = time.perf_counter()
    cost: dict[str, Any] = {"scans": 0, "stages": 0, "bytes_read": 0}
    fit = EllipsoidJob(
        store=job.store,
        out=job.out,
        one_class="ellipsoid",
        epsilon=_AIM,
        memory=job.memory,
        sample=job.sample,
        block=job.block,
    )
    problem = problem_of(fit, source)
    block = max(fit.block, problem.least_block_bytes)
    engine = Engine(
        source, executor, NoCheckpoint(), Callbacks(), block, deadline, held=held, most_ahead=fit.memory_bytes
    )
    try:
        with one_blas_thread(), quiet(), stoppable(engine.check_time):
            state = problem.start()
            for step in rounds(engine, problem, state):
                state = step.state
                if step.cost is not None:
                    cost["stages" if step.round.stage is not None else "scans"] += 1
                    cost["bytes_read"] += step.cost.bytes_read
    except OutOfTime:
        raise RunError(
            f"{source.name}: scaling 'ellipsoid': the time limit is over before the ellipsoid of the rows is found: "
            f"nothing was trained; give more time, or choose scaling 'standard'"
        ) from None
    model: Any = kind_of(fit).model(fit, problem, state)
    claims, rank = model.certificate, model.rank
    given, lower, upper = Ellipsoid(model.centre, model.axes), claims.lower or 0.0, claims.upper or math.inf
    spare = _rounding(given)
    lower, upper = lower * (1.0 - spare), upper * (1.0 + spare)
    if not is_certified(lower, upper, EPSILON, rank):
        raise RunError(
            f"{source.name}: scaling 'ellipsoid': no ellipsoid of these rows is proven to have the least volume to "
            f"{EPSILON:g} (volume radii {lower:.9g} and {upper:.9g}): some columns almost depend on others, or lie too "
            f"far from 0 for their range; leave them out, subtract a constant from them, or choose scaling 'standard'"
        )
    axes = math.sqrt(rank) * given.volume_radius / upper * given.factor
    arrays = dict(model.numbers)
    arrays |= {"axes": axes, "bounds": np.array([lower, upper]), "coreset_x": dense(model.coreset_x)}
    cost |= {"rank": rank, "coreset_rows": claims.coreset_rows, "seconds": time.perf_counter() - started}
    return FittedEllipsoid({PREFIX + name: values for name, values in arrays.items()}, cost)


def earlier_ellipsoid(model: AnyModel, source: Source) -> FittedEllipsoid | None:
    """The ellipsoid of an earlier model, if it is proven to be that of the rows as they are now.

    So it is if no row of its proof has left, and the rows that have come lie inside. None: it may be another one.
    """
    numbers = getattr(model, "numbers", {})
    arrays = {name: values for name, values in numbers.items() if name.startswith(PREFIX)}
    store = root(source)
    if not arrays or PREFIX + "span_columns" in arrays or not isinstance(store, Store):
        return None
    ellipsoid = Ellipsoid(arrays[PREFIX + "centre"], arrays[PREFIX + "axes"])
    changes = difference(earlier(store, model.store_digest), store)
    removed, entering = EnclosedRows(source).changes(changes)
    entering = np.union1d(entering, np.arange(changes.before, store.rows))
    if np.isin(arrays[PREFIX + "coreset_ids"], removed).any():
        return None
    level = float(arrays[PREFIX + "bounds"][1]) / ellipsoid.volume_radius / (1.0 + _rounding(ellipsoid))
    for start in range(0, len(entering), _SLICE):
        x = dense(source.rows_at(entering[start : start + _SLICE])[0])
        z = (x - ellipsoid.centre) @ ellipsoid.factor.T
        if not (np.einsum("ij,ij->i", z, z) <= level * level).all():
            return None
    return FittedEllipsoid(arrays, {"kept": True, "rows_compared": len(entering), "bytes_read": 0})


def _rounding(ellipsoid: Ellipsoid) -> float:
    """More than rounding of axes and sums changes levels, as a share of them: by the condition of Skeel."""
    rank, axes = len(ellipsoid.centre), ellipsoid.factor
    inverse = solve_triangular(axes, np.eye(rank), lower=True)
    return 2.0 * gamma(2 * rank + 16) * (1.0 + float(np.linalg.norm(np.abs(axes) @ np.abs(inverse)))) + 1e-12

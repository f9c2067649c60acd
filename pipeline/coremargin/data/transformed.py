"""What is made of rows as they are read, and belongs to the model: they are scaled, then mapped.

Maps are fitted to the rows of a source by scikit-learn's own classes: of one seed, one map to the bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from coremargin.blas import one_blas_thread
from coremargin.data.extent import gamma_scale
from coremargin.data.mapped import LastRead, Mapped, map_of, mapped, mapped_each
from coremargin.data.scaled import scaled, unscaled
from coremargin.errors import UsageError
from coremargin.formats.feature_map import map_width, sketched
from coremargin.maths.feature_map import Fourier, Nystroem, Polynomial
from coremargin.maths.rows import is_sparse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coremargin.data.source import Source
    from coremargin.formats.choices import ScalingKind
    from coremargin.formats.map_asked import MapAsked
    from coremargin.maths.mapping import FeatureMap


#: Rows that landmarks are chosen from, for each of them, and at least.
SAMPLE_PER_LANDMARK, SAMPLE_LEAST = 10, 2000
#: Share of the largest eigenvalue of the landmarks' kernel below which directions are left out.
_FAINT = 1e-8
#: The sample is read in runs of so many rows: about a page of narrow ones.
RUN = 8


def fitted(source: Source, asked: MapAsked) -> FeatureMap:
    """The map that is asked for of the rows of a source, scaled as they are to be.

    Raises UsageError for more landmarks than rows, and for a scale that cannot be determined; DataError for numbers
    that never vary.
    """
    return fitted_each(source, [asked])[0]


def fitted_each(source: Source, asked: Sequence[MapAsked]) -> list[FeatureMap]:
    """The same of maps that differ in gamma only: landmarks, which gamma does not decide about, are chosen once."""
    one = asked[0]
    gammas = [gamma_scale(source) if each.gamma == "scale" else float(each.gamma) for each in asked]
    with one_blas_thread(), threadpool_limits(1, user_api="openmp"):  # the same bits on any number of cores
        if one.map == "nystroem":
            landmarks = _landmarks(source, one)
            return [_nystroem(landmarks, one, gamma) for gamma in gammas]
        if one.map == "fourier":
            return [_fourier(source, one, gamma) for gamma in gammas]
        return [_polynomial(source, one, gamma) for gamma in gammas]


def _landmarks(source: Source, asked: MapAsked) -> np.ndarray:
    """Rows (M, d) float64 of a sample, spread over it."""
    from sklearn.cluster import kmeans_plusplus

    m = int(asked.components or 0)
    if m > source.rows:
        raise UsageError(f"components: expected at most the {source.rows:,} rows of {source.name}, found {m:,}")
    sample = _sample(source, m, asked.map_seed)
    landmarks, _ = kmeans_plusplus(sample, m, random_state=_state(asked.map_seed))
    return np.asarray(landmarks.toarray() if is_sparse(landmarks) else landmarks, np.float64)


def _nystroem(landmarks: np.ndarray, asked: MapAsked, gamma: float) -> Nystroem:
    from sklearn.kernel_approximation import Nystroem as Fitted

    made = Fitted(kernel="rbf", gamma=gamma, n_components=len(landmarks), random_state=_state(asked.map_seed))
    made.fit(landmarks)
    points = np.ascontiguousarray(made.components_)
    return Nystroem(points, np.ascontiguousarray(_root(points, made.normalization_, gamma)), gamma)


def _root(points: np.ndarray, root: np.ndarray, gamma: float) -> np.ndarray:
    """The inverse root (M, M) of the landmarks' kernel as it was fitted, or without directions that rounding decides.

    Of landmarks that almost coincide, for this gamma, an inverse root has huge numbers, which mapped rows, and what is
    proven about them, lose digits by. What such directions tell rows apart by is less than ``_FAINT`` of the kernel.
    """
    from scipy.spatial.distance import cdist

    values, vectors = np.linalg.eigh(np.exp(-gamma * cdist(points, points, "sqeuclidean")))
    kept = values > _FAINT * values[-1]
    return root if kept.all() else (vectors[:, kept] / np.sqrt(values[kept])) @ vectors[:, kept].T


def _sample(source: Source, landmarks: int, seed: int) -> Any:
    """Rows from all over the source, in runs: of each part of the same length one run, anywhere in it."""
    wanted = min(source.rows, max(SAMPLE_LEAST, SAMPLE_PER_LANDMARK * landmarks))
    if wanted * 2 > source.rows:  # runs would leave out parts of a small source, landmarks may need all of it
        ids = np.arange(source.rows)[:: max(1, source.rows // wanted)][: max(wanted, landmarks)]
    else:
        runs = -(-wanted // RUN)
        edges = np.linspace(0, source.rows - RUN, runs + 1)
        starts = edges[:-1] + np.random.default_rng(seed).random(runs) * np.maximum(np.diff(edges) - RUN, 0.0)
        ids = (starts.astype(np.int64)[:, None] + np.arange(RUN)).ravel()
    return source.rows_at(ids)[0]


def _state(seed: int) -> Any:
    """What scikit-learn takes for a seed, of any size."""
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(seed)))


def _fourier(source: Source, asked: MapAsked, gamma: float) -> Fourier:
    from sklearn.kernel_approximation import RBFSampler

    made = RBFSampler(gamma=gamma, n_components=int(asked.components or 0), random_state=_state(asked.map_seed))
    made.fit(np.zeros((1, source.features)))
    return Fourier(np.ascontiguousarray(made.random_weights_), np.ascontiguousarray(made.random_offset_))


def _polynomial(source: Source, asked: MapAsked, gamma: float) -> Polynomial:
    width = map_width(asked, source.features)
    if not sketched(asked, source.features):
        return Polynomial(source.features, width, gamma, asked.degree, asked.coef0)
    from sklearn.kernel_approximation import PolynomialCountSketch

    made = PolynomialCountSketch(
        gamma=gamma, degree=asked.degree, coef0=asked.coef0, n_components=width, random_state=_state(asked.map_seed)
    )
    made.fit(np.zeros((1, source.features)))
    index, sign = made.indexHash_.astype(np.int64), made.bitHash_.astype(np.int8)
    return Polynomial(source.features, width, gamma, asked.degree, asked.coef0, index, sign)


class Transforms(Protocol):
    """Who says what is made of rows: a job."""

    @property
    def scaling(self) -> ScalingKind | None:
        """How they are scaled."""

    @property
    def asked_maps(self) -> Sequence[MapAsked]:
        """How they are mapped: by none, by one, or by several that differ in gamma."""


def transformed(
    source: Source,
    how: Transforms,
    kept: Sequence[FeatureMap] = (),
    ellipsoid: Mapping[str, np.ndarray] | None = None,
) -> Source:
    """The source with its rows as a job's problem is about them; kept: the maps of the model before, to go on with.

    ellipsoid: the arrays of scaling by an ellipsoid. Maps are fitted to a few rows of the source, which are read.
    Raises BadRow, UsageError.
    """
    asked = how.asked_maps
    if asked and map_of(source) is not None:
        raise UsageError(f"{source.name}: the rows are mapped already; give the source under them")
    rows = scaled(source, how.scaling, ellipsoid)
    if not asked:
        return rows
    maps = kept or fitted_each(rows, asked)
    return mapped(rows, maps[0]) if len(maps) == 1 else mapped_each(rows, maps)


def untransformed(source: Source) -> Source:
    """The source whose rows a mapped or scaled view shows; any other source itself."""
    inner = source.base if isinstance(source, Mapped) else source
    return unscaled(inner.base if isinstance(inner, LastRead) else inner)

"""Feature maps: a linear model of mapped rows approximates a kernel model of the rows.

z(x) of a row x (d,), in float64; M is the width of z, g is gamma:

    nystroem     N k,  k_j = exp(-g ||x - l_j||^2)           landmarks l (M, d), normalization N (M, M), symmetric
    fourier      sqrt(2 / M) cos(W'x + o)                    weights W (d, M), offsets o (M,)
    polynomial   all products of ``degree`` entries of u = (sqrt(g) x, sqrt(c)), c = coef0, each once, times the root of
                 its multiplicity: z(x).z(y) = (g x.y + c)^degree. No last entry if c = 0
    sketch       the inverse Fourier transform of the product of those of ``degree`` count sketches of u: entry j of u
                 is added, by its sign, to one of M places; z(x).z(y) is about (g x.y + c)^degree

These are the transforms of scikit-learn's Nystroem (rbf), RBFSampler and PolynomialCountSketch, to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from math import factorial, sqrt
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.mapping import ROUNDED, Array, FeatureMap
from coremargin.maths.margin import gamma as rounding

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: gamma ||l - centre||^2 above which kernels are made of differences: a product of lengths loses this many units of the
#: last place of an exponent, which are then as many of the kernel where a row is near a landmark.
_CANCELS = 1e3
#: Factor by which gamma ||l||^2 may be larger for sparse rows, which are multiplied without centring.
_FARTHER = 2.0
#: Bound on the error of a mapped row by the phases of a Fourier map; the verifier allows the same.
_PHASES = 1e-10
_UNIT = float(np.finfo(float).eps) / 2
_UNDERFLOW = 1e-307  # error of a product by underflow; the verifier allows the same


@dataclass(frozen=True, eq=False)
class Nystroem(FeatureMap):
    """The Nystroem map of exp(-gamma ||x - y||^2). Dense rows are centred at the landmarks' mean, for accuracy."""

    KIND: ClassVar[str] = "nystroem"

    landmarks: Array
    normalization: Array
    gamma: float

    @property
    def features(self) -> int:  # type: ignore[override]
        """Features of a row."""
        return int(self.landmarks.shape[1])

    @property
    def width(self) -> int:  # type: ignore[override]
        """One feature per landmark."""
        return len(self.landmarks)

    def numbers(self) -> dict[str, NDArray[Any]]:
        """landmarks (M, d), normalization (M, M), gamma (1,)."""
        return {
            "landmarks": self.landmarks,
            "normalization": self.normalization,
            "gamma": np.array([self.gamma]),
        }

    def longest(self, lengths: Array) -> Array:
        """Mapped rows are projections of points on the unit sphere, which rounding may lengthen."""
        return np.full(len(lengths), 1.0 + ROUNDED)

    def moves(self, longest: float) -> float:
        """The error of an exponent is g (||x|| + ||l||)^2 about the centre, for far rows a share of itself: v e^-v <=
        1/e.

        For sparse rows that are multiplied without centring, lengths are from the origin; for differences, the error is
        a share, too. N makes an error in k at most ||N|| times longer, and its sums have their own.
        """
        matrix, root = np.abs(self.normalization), sqrt(self.width)
        whole = float(np.linalg.norm(matrix))
        most = min(whole, sqrt(float(matrix.sum(axis=0).max()) * float(matrix.sum(axis=1).max())))
        spread = 1.0 if self.cancels else 9.0 * max(0.4, self._widest * (_FARTHER if self._as_they_are else 1.0))
        kernel = spread * rounding(self.features + 12) + 16 * _UNIT
        return 2.1 * root * (most * kernel + rounding(self.width + 4) * whole)

    @cached_property
    def _centre(self) -> Array:
        return np.asarray(self.landmarks.mean(axis=0))

    @cached_property
    def _near(self) -> tuple[Array, Array]:
        """2 gamma (l - centre) transposed (d, M), and gamma ||l - centre||^2 (M,)."""
        near = self.landmarks - self._centre
        return np.ascontiguousarray(2 * self.gamma * near.T), self.gamma * np.einsum("ij,ij->i", near, near)

    @cached_property
    def _turned(self) -> Array:
        return np.ascontiguousarray(self.normalization.T)

    @cached_property
    def cancels(self) -> bool:
        """Whether distances are computed from differences. Kernels of rows farther out than all landmarks vanish."""
        return self._widest > _CANCELS

    @property
    def _widest(self) -> float:
        """gamma times the square of the largest distance of a landmark from the centre."""
        return float(self._near[1].max())

    @cached_property
    def _as_they_are(self) -> bool:
        """Whether sparse rows are multiplied as sparse rows: about the origin, products cancel little more."""
        return float(self._from_origin[1].max()) <= _FARTHER * self._widest

    @cached_property
    def _from_origin(self) -> tuple[Array, Array]:
        """2 gamma l transposed (d, M), and gamma ||l||^2 (M,)."""
        lengths = np.einsum("ij,ij->i", self.landmarks, self.landmarks)
        return np.ascontiguousarray(2 * self.gamma * self.landmarks.T), self.gamma * lengths

    def _tile(self, x: Array, out: Array) -> None:
        if self.cancels:
            from scipy.spatial.distance import cdist  # only here: other maps do not need it

            np.matmul(np.exp(-self.gamma * cdist(x, self.landmarks, "sqeuclidean")), self._turned, out=out)
            return
        products, squares = self._near
        x -= self._centre
        self._finish(x @ products, self.gamma * np.einsum("ij,ij->i", x, x), squares, out)

    def _sparse_tile(self, x: csr_array, out: Array) -> None:
        if self.cancels or not self._as_they_are:
            self._tile(x.toarray(), out)
            return
        products, squares = self._from_origin
        self._finish(x @ products, self.gamma * x.multiply(x).sum(axis=1), squares, out)

    def _finish(self, kernel: Array, own: Array, squares: Array, out: Array) -> None:
        """kernel (t, M): 2 gamma x.l; own (t,) and squares (M,): gamma times squares of lengths."""
        kernel -= squares
        kernel -= own[:, None]
        np.minimum(kernel, 0.0, out=kernel)
        np.exp(kernel, out=kernel)
        np.matmul(kernel, self._turned, out=out)


@dataclass(frozen=True, eq=False)
class Fourier(FeatureMap):
    """Random Fourier features of the kernel exp(-gamma ||x - y||^2), gamma being in the weights."""

    KIND: ClassVar[str] = "fourier"

    weights: Array
    offsets: Array

    @property
    def features(self) -> int:  # type: ignore[override]
        """Features of a row."""
        return int(self.weights.shape[0])

    @property
    def width(self) -> int:  # type: ignore[override]
        """One feature per frequency."""
        return int(self.weights.shape[1])

    def numbers(self) -> dict[str, NDArray[Any]]:
        """weights (d, M), offsets (M,)."""
        return {"weights": self.weights, "offsets": self.offsets}

    def longest(self, lengths: Array) -> Array:
        """M entries of at most sqrt(2 / M)."""
        return np.full(len(lengths), sqrt(2.0) * (1.0 + ROUNDED))

    def moves(self, longest: float) -> float:
        """The allowed error of phases, here and in the verifier; ``surest`` ensures that they have less."""
        return 2.1 * _PHASES

    def surest(self) -> float:
        """The phases of a row have an error of g ||w|| ||x||, and the mapped row of sqrt(2) times that."""
        longest = float(np.sqrt(np.einsum("ij,ij->j", self.weights, self.weights)).max())
        unit = 1.5 * rounding(self.features + 8) * longest
        return 0.9 * _PHASES / unit if unit > 0 else np.inf

    def _tile(self, x: Array, out: Array) -> None:
        np.matmul(x, self.weights, out=out)
        self._finish(out)

    def _sparse_tile(self, x: csr_array, out: Array) -> None:
        out[:] = x @ self.weights
        self._finish(out)

    def _finish(self, out: Array) -> None:
        out += self.offsets
        np.cos(out, out=out)
        out *= sqrt(2.0 / self.width)


@dataclass(frozen=True, eq=False)
class Polynomial(FeatureMap):
    """The map of (gamma x.y + coef0)^degree, exact or, with places and signs (degree, k), a sketch of ``width``."""

    KIND: ClassVar[str] = "polynomial"

    features: int
    width: int
    gamma: float
    degree: int
    coef0: float
    index: NDArray[np.int64] | None = None
    sign: NDArray[np.int8] | None = None

    def numbers(self) -> dict[str, NDArray[Any]]:
        """gamma (1,); for a sketch also index and sign (degree, k)."""
        made: dict[str, NDArray[Any]] = {"gamma": np.array([self.gamma])}
        return made if self.index is None or self.sign is None else made | {"index": self.index, "sign": self.sign}

    def longest(self, lengths: Array) -> Array:
        """||z|| is ||u||^degree; for a sketch, at most that of ||u|| sqrt(k), the sum of the sizes of its entries."""
        with np.errstate(over="ignore"):
            square = self.gamma * lengths * lengths + self.coef0
            spread = 1 if self.index is None else self.index.shape[1]
            return np.asarray((square * spread) ** (self.degree / 2) * (1 + 1e-9))

    def moves(self, longest: float) -> float:
        """The error of products is a share of each entry, or underflow; of a sketch, a share of sums of |entries|."""
        most, lost = float(self.longest(np.array([longest]))[0]), sqrt(self.width) * _UNDERFLOW
        if self.index is None:
            return 2.1 * (rounding(4 * self.degree + 16) * most + lost)
        terms = self.degree * (self.index.shape[1] + 8 + 16 * int(np.log2(2 * self.width)))
        return 2.1 * (rounding(terms + 16) * most + lost)

    def _tile(self, x: Array, out: Array) -> None:
        u = x * sqrt(self.gamma)
        if self.coef0 > 0:
            u = np.concatenate([u, np.full((len(u), 1), sqrt(self.coef0))], axis=1)
        if self.index is None:
            self._products(u, out)
        else:
            self._sketch(u, out)

    def _products(self, u: Array, out: Array) -> None:
        places, weights = self.monomials
        np.take(u, places[0], axis=1, out=out)
        for place in places[1:]:
            out *= u[:, place]
        out *= weights

    @cached_property
    def monomials(self) -> tuple[NDArray[np.intp], Array]:
        """The entries of u that are multiplied (degree, M), and the weights (M,)."""
        every = list(combinations_with_replacement(range(self.features + (self.coef0 > 0)), self.degree))
        places = np.array(every, np.intp).T.reshape(self.degree, -1)
        return np.ascontiguousarray(places), np.array([_order_root(chosen) for chosen in every])

    @cached_property
    def _sketches(self) -> list[Any]:
        """For each factor, the matrix (M, k) that adds the entries of u, with their signs, at their places."""
        from scipy.sparse import csr_array  # only here: other maps do not need it

        assert self.index is not None and self.sign is not None  # noqa: S101, PT018 - for the type checker
        k = self.index.shape[1]
        shape, every = (self.width, k), np.arange(k)
        pairs = zip(self.sign, self.index, strict=True)
        return [csr_array((sign.astype(np.float64), (index, every)), shape=shape) for sign, index in pairs]

    def _sketch(self, u: Array, out: Array) -> None:
        product: Any = 1.0
        for sketch in self._sketches:
            product = product * np.fft.fft((sketch @ u.T).T, axis=1)
        out[:] = np.fft.ifft(product, axis=1).real


def _order_root(chosen: tuple[int, ...]) -> float:
    """The square root of the number of orders of these entries."""
    ways = factorial(len(chosen))
    for entry in set(chosen):
        ways //= factorial(chosen.count(entry))
    return sqrt(ways)


def feature_map(kind: str, numbers: Mapping[str, NDArray[Any]], shape: tuple[int, int, int, float]) -> FeatureMap:
    """The map of these arrays, by name; shape: features, width, and degree and coef0 of a polynomial."""
    if kind == Nystroem.KIND:
        return Nystroem(numbers["landmarks"], numbers["normalization"], float(numbers["gamma"][0]))
    if kind == Fourier.KIND:
        return Fourier(numbers["weights"], numbers["offsets"])
    features, width, degree, coef0 = shape
    gamma = float(numbers["gamma"][0])
    return Polynomial(features, width, gamma, degree, coef0, numbers.get("index"), numbers.get("sign"))

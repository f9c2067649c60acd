"""(q) Balls, soft balls and ellipsoids around rows without labels, each against one pure pass over the same store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from against_pass import threads
from measure import interleaved, paired_ratio
from table import Group
from training import pass_here, timing, train_here, trained_row

from coremargin.data.writer import StoreWriter

if TYPE_CHECKING:
    from pathlib import Path

    from stores import Settings

Draw = Callable[[np.random.Generator, int, int], np.ndarray]

PLANTED = 50  #: rows far outside, that may be left out


def normal(rng: np.random.Generator, rows: int, features: int) -> np.ndarray:
    """N(0, I)."""
    return rng.standard_normal((rows, features), dtype=np.float32)


def cube(rng: np.random.Generator, rows: int, features: int) -> np.ndarray:
    """Uniform in [-1, 1)^d."""
    return rng.random((rows, features), dtype=np.float32) * 2 - 1


def heavy_tails(rng: np.random.Generator, rows: int, features: int) -> np.ndarray:
    """Rows of a multivariate t distribution with 2 degrees of freedom."""
    return normal(rng, rows, features) / np.sqrt(rng.chisquare(2, (rows, 1)) / 2).astype(np.float32)


def clusters(rng: np.random.Generator, rows: int, features: int) -> np.ndarray:
    """20 clusters, whose centres are 3 N(0, I)."""
    centres = 3 * normal(rng, 20, features)
    return centres[rng.integers(0, 20, rows)] + normal(rng, rows, features)


def sorted_clusters(rng: np.random.Generator, rows: int, features: int) -> np.ndarray:
    """The same, cluster after cluster."""
    centres = 3 * normal(rng, 20, features)
    return np.repeat(centres, -(-rows // 20), axis=0)[:rows] + normal(rng, rows, features)


def scales(rng: np.random.Generator, rows: int, features: int) -> np.ndarray:
    """Correlated columns of scales from exp(-1.5) to exp(1.5)."""
    mixing = np.linalg.qr(normal(rng, features, features))[0]
    sizes = np.exp(np.linspace(-1.5, 1.5, features))
    return normal(rng, rows, features) @ (sizes[:, None] * mixing).astype(np.float32)


def unit_rows(rng: np.random.Generator, rows: int, features: int) -> np.ndarray:
    """Rows of length 1 with a common direction."""
    found = normal(rng, rows, features)
    found[:, 0] += 3
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def one_class(settings: Settings) -> Iterator[Group]:
    """A group for each kind of problem: several data sets, each against a pure pass over it."""
    wide, few = min(64, 3 * settings.features), min(20, settings.features)
    ball = Group("q", f"smallest ball to 1e-9, {settings.rows:,} rows")
    for name, draw, features in (
        ("normal", normal, few), ("normal", normal, wide), ("normal", normal, settings.features), ("cube", cube, wide),
        ("t, 2 degrees of freedom", heavy_tails, wide), ("20 clusters", clusters, wide),
        ("correlated, unlike scales", scales, wide), ("unit rows", unit_rows, wide),
    ):  # fmt: skip
        _measure(ball, f"{name}, d = {features}", _store(settings, draw, features), settings, epsilon=1e-9)
    _measure(ball, "sorted clusters, d = 3", _store(settings, sorted_clusters, 3), settings, epsilon=1e-9)
    mnist = settings.real_store("mnist_all")
    if mnist is not None:
        _measure(ball, "MNIST, 60,000 x 784", mnist, settings, epsilon=1e-9)
    yield ball
    if settings.large_rows:
        rows, what = settings.large_rows, f"smallest ball to 1e-9, {settings.large_rows:,} rows"
        large = Group("q", what)
        _measure(large, f"normal, d = {wide}", _large_store(settings, rows, wide), settings, epsilon=1e-9)
        yield large
    planted = _store(settings, normal, few, planted=PLANTED)
    left_out = Group("q", f"smallest ball with {PLANTED} planted rows left out, proven")
    _measure(left_out, f"normal, d = {few}", planted, settings, epsilon=1e-6, outliers=PLANTED)
    yield left_out
    alike = Group("q", f"smallest ball with rows left out, none planted, {settings.rows:,} rows, proven")
    for k in (5, 10):
        store, what = _store(settings, normal, few), f"normal, d = {few}, {k} rows left out"
        _measure(alike, what, store, settings, epsilon=1e-3, outliers=k)
    yield alike
    soft = Group("q", f"soft ball, linear, {settings.rows:,} rows")
    for name, draw in (("normal", normal), ("t, 2 degrees of freedom", heavy_tails)):
        for nu, epsilon in ((0.01, 1e-4), (0.01, 1e-9), (0.05, 1e-4)):
            store, what = _store(settings, draw, few), f"{name}, d = {few}, nu {nu}, epsilon {epsilon:g}"
            _measure(soft, what, store, settings, epsilon=epsilon, nu=nu)
    yield soft
    ellipsoid = Group("q", "ellipsoid of least volume to 1e-6 of the volume")
    for rows, features in ((settings.rows, 20), (settings.rows, 50), (max(1, settings.rows // 5), 100)):
        width = min(features, settings.features)
        store = _store(replace(settings, rows=rows), normal, width)
        _measure(ellipsoid, f"normal, {rows:,} x {width}", store, settings, one_class="ellipsoid", epsilon=1e-6)
    yield ellipsoid


def _measure(
    group: Group, what: str, path: Path, settings: Settings, *, one_class: str = "ball", **options: Any
) -> None:
    """Rows of a pure pass over a store and of the training, in turn."""
    samples = interleaved(
        {
            "pass": lambda: pass_here(path, threads()),
            "train": lambda: train_here(path, threads(), one_class=one_class, **options),
        },
        settings.repetitions,
    )
    ratio, passing = paired_ratio(samples["train"], samples["pass"]), timing(samples["pass"])["seconds"]
    note = f"{samples['train'][-1].answer['status']}, pass {passing:.2f} s"
    group.rows.append(trained_row(what, samples["train"], ratio=ratio, note=note))


def _store(settings: Settings, draw: Draw, features: int, planted: int = 0) -> Path:
    """Unlabelled rows in 400 chunks, some of them moved far outside. Used again if it is there."""
    name = f"{draw.__name__}-{settings.rows}x{features}-{planted}.zarr"
    path = settings.work / name
    if path.exists():
        return path
    rng = np.random.default_rng(1)
    rows = draw(rng, settings.rows, features)
    rows[rng.choice(len(rows), planted, replace=False)] *= 4
    with StoreWriter.create(path, features=features, chunk_rows=max(1, settings.rows // 400)) as writer:
        writer.write(rows, None, origin=draw.__name__)
    return path


def _large_store(settings: Settings, rows: int, features: int) -> Path:
    """Normal rows, written a million at a time. Used again if it is there."""
    path = settings.work / f"normal-{rows}x{features}.zarr"
    if path.exists():
        return path
    rng = np.random.default_rng(2)
    with StoreWriter.create(path, features=features) as writer:
        for first in range(0, rows, 1_000_000):
            writer.write(normal(rng, min(1_000_000, rows - first), features), None, origin="normal")
    return path

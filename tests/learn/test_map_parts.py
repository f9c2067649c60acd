"""Rows that are mapped in parts of a chunk: the same rows to the bit, the same certificates, and room for a part."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import coremargin
from coremargin.blas import one_blas_thread
from coremargin.data import mapped as mapped_rows
from coremargin.data.arrays import ArraySource
from coremargin.data.mapped import mapped, mapped_each
from coremargin.data.parts import parts_of
from coremargin.data.transformed import fitted
from coremargin.engine.protocols import Block
from coremargin.formats.map_asked import MapAsked
from coremargin.problems.outliers.probe import OutlierProbe
from coremargin.verify import feature_map as checked
from coremargin.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

ROWS, SMALL = 600, 8 * 48 * 40
PROBLEMS: dict[str, dict[str, Any]] = {
    "hard": {}, "hinge": {"loss": "hinge"}, "squared hinge": {"loss": "squared_hinge", "C": 10.0},
    "folds": {"loss": "hinge", "C": [0.1, 1.0], "folds": 2}, "hard folds": {"folds": 2},
    "gammas": {"gamma": [0.5, 2.0], "loss": "hinge"}, "outliers": {"outliers": 2, "epsilon": 0.1},
    "classes": {"classes": "crammer-singer", "loss": "hinge"}, "hard classes": {"classes": "crammer-singer"},
    "memory": {"loss": "hinge", "C": [0.1, 1.0], "memory": "100 KiB"},
}  # fmt: skip


def rows(gap: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, 2) in a disc and a ring, so far apart."""
    rng = np.random.default_rng(3)
    inside = np.arange(ROWS) % 2
    angle = rng.uniform(0, 2 * np.pi, ROWS)
    radius = np.where(inside, rng.uniform(0, 1, ROWS), rng.uniform(1 + gap, 2 + gap, ROWS))
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]).astype(np.float32), inside


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a few rows."""
    monkeypatch.setattr(mapped_rows, "SLICE_BYTES", SMALL)


@pytest.mark.usefixtures("small")
def test_parts_are_the_chunk() -> None:
    """Row by row, with labels, weights and numbers of rows; shares sum up to all of it."""
    X, y = rows(0.3)
    given = np.arange(ROWS, dtype=float)
    source = ArraySource(X, y, chunk_rows=550, weights=given)
    made = mapped(source, fitted(source, MapAsked(map="nystroem", components=40, gamma=1.0)))
    with one_blas_thread():
        for chunk in range(made.chunks):
            whole, codes = made.read(chunk)
            parts = [(part, part.rows.copy()) for part in parts_of(made, chunk)]
            assert len(parts) == (3, 1)[chunk]
            assert np.array_equal(np.concatenate([own for _, own in parts]), whole)
            assert np.array_equal(np.concatenate([part.codes for part, _ in parts]), codes)
            weights = [part.weights for part, _ in parts if part.weights is not None]
            assert np.array_equal(np.concatenate(weights), given[slice(*made.span(chunk))])
            ends = [(part.start, part.stop) for part, _ in parts]
            assert [ends[0][0], *(stop for _, stop in ends)] == [*(start for start, _ in ends), made.span(chunk)[1]]
            assert sum(part.share for part, _ in parts) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("hard", "hinge") else pytest.mark.slow) for name in PROBLEMS]
)
def test_certificates_do_not_depend_on_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Each holds of all rows, as verify says, and both are of one optimum."""
    asked = PROBLEMS[name]
    X, y = rows(-0.2 if "loss" in asked else 0.3)
    coremargin.ingest(X, tmp_path / "s", labels=y, chunk_bytes=2400)
    said = {"map": "fourier", "components": 40, "gamma": 1.0, "epsilon": 1e-3} | asked
    models = []
    for size in (1 << 26, SMALL):
        monkeypatch.setattr(mapped_rows, "SLICE_BYTES", size)
        monkeypatch.setattr(checked, "_PART_BYTES", size)
        monkeypatch.setattr(checked, "_BLOCK", 512 if size > SMALL else 77)
        models.append(coremargin.train(tmp_path / "s", out=tmp_path / str(size), **said))
        assert models[-1].status == "certified"
        verify(tmp_path / str(size), tmp_path / "s")
    every = [getattr(model, "members", {"": model}) for model in models]
    for one, other in zip(*(members.values() for members in every), strict=True):
        a, b = one.certificate, other.certificate
        assert max(a.lower, b.lower) <= min(a.upper, b.upper) * (1 + 1e-9)


def test_a_scan_has_room_for_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it takes at most does not grow with the rows of a chunk."""
    monkeypatch.setattr(mapped_rows, "SLICE_BYTES", 1 << 20)
    most = []
    for n in (4_000, 16_000):
        X = np.random.default_rng(0).standard_normal((n, 3)).astype(np.float32)
        source = ArraySource(X, np.arange(n) % 2, chunk_rows=n)
        problem = _problem(source)
        state = problem.unsolved()
        probe = problem.probe(state)
        with one_blas_thread():
            tracemalloc.start()
            probe.narrow(Block(0, (0,)))(problem.source, Block(0, (0,)))
            most.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert most[1] < 8 * (16_000 * 100)  # the mapped chunk alone
    assert most[1] < 2 * most[0]


def test_an_outlier_scan_of_parts_is_that_of_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same lowest rows; one lower bound per chunk, above no row that is not sent."""
    source = ArraySource(*rows(0.3), chunk_rows=400)
    made = mapped(source, fitted(source, MapAsked(map="fourier", components=100, gamma=0.1)))
    w, none = np.random.default_rng(0).normal(size=(100, 1)), np.zeros(0, np.int64)
    probe = OutlierProbe(w / np.linalg.norm(w), 5, (1, 0), none, 0.0, -1.0, 1.0, bins=4, chunk_rows=400)
    found = []
    for size in (1 << 26, SMALL):
        monkeypatch.setattr(mapped_rows, "SLICE_BYTES", size)
        found.append(probe(made, Block(0, (0, 1))))
    whole, parts = found
    assert np.array_equal(parts.ids, whole.ids)
    assert np.array_equal(parts.row_id, whole.row_id)
    assert parts.chunk.tolist() == [0, 1]
    assert np.allclose(parts.values, whole.values, atol=1e-12)
    X, codes = made.rows_at(np.arange(ROWS))
    for k, sign in enumerate((1, -1)):
        left = np.setdiff1d(np.flatnonzero(codes == probe.codes[k]), parts.ids[k])
        least = [sign * (X[some] @ probe.directions[:, 0]) for some in (left[left < 400], left[left >= 400])]
        assert (parts.unsent_bounds[:, k] <= [float(values.min()) for values in least]).all()


def test_several_maps_share_the_room_for_parts() -> None:
    """A part that one of them has mapped, and that nobody holds any more, is where the next one maps its own."""
    source = ArraySource(np.arange(192.0).reshape(96, 2))
    each = mapped_each(source, [fitted(source, MapAsked(map="fourier", components=3, gamma=g)) for g in (1.0, 2.0)])
    places = [[part.rows.ctypes.data for part in parts_of(one, 0)] for one in each.each]
    assert places[0] == places[1]
    both = [next(parts_of(one, 0)).rows for one in each.each]
    assert not np.array_equal(*both)


def _problem(source: ArraySource) -> Any:
    from coremargin.problems.registry import new_job, problem_of

    job = new_job(store="s", out="m", map="fourier", components=100, gamma=0.1, loss="squared_hinge", memory="1 MiB")
    return problem_of(job, source)

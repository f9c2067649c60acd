"""What all kinds of one class have in common: the rows that count, the sample, options."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coremargin
from coremargin.data.store import Store
from coremargin.problems.ball import enclosing_ball
from coremargin.problems.ellipsoid import enclosing_ellipsoid
from coremargin.problems.kernel_ball import kernel_ball
from coremargin.problems.one_class.rows import EnclosedRows
from coremargin.problems.soft_ball import soft_ball
from coremargin.problems.soft_ellipsoid import soft_ellipsoid
from coremargin.verify.examine import examine

#: Options by kind.
KINDS: dict[str, dict[str, Any]] = {
    "ball": {"one_class": "ball"},
    "soft_ball": {"one_class": "ball", "nu": 0.2},
    "ellipsoid": {"one_class": "ellipsoid"},
    "soft_ellipsoid": {"one_class": "ellipsoid", "nu": 0.2},
    "kernel_ball": {"one_class": "ball", "kernel": "rbf", "gamma": 0.1},
}


@pytest.fixture
def _small_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a few chunks."""
    for room, name in (
        (enclosing_ball, "EnclosingBall"),
        (soft_ball, "SoftBall"),
        (enclosing_ellipsoid, "EnclosingEllipsoid"),
        (soft_ellipsoid, "SoftEllipsoid"),
        (kernel_ball, "KernelBall"),
    ):
        monkeypatch.setattr(room, "SAMPLE_BYTES", 500)
        monkeypatch.setattr(room, name, partial(getattr(room, name), sample_bytes=500))
        monkeypatch.setattr(room, "SMALL_BYTES", 0, raising=False)


@pytest.mark.usefixtures("_small_samples")
@pytest.mark.parametrize("at", [7, 203])
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_sample_of_rows_of_weight_0_is_no_obstacle(tmp_path: Path, kind: str, at: int) -> None:
    """Of 400 rows 12 count, in one place of the store: the model is that of these rows alone."""
    rows = np.random.default_rng(3).standard_normal((400, 3))
    weights = np.where((np.arange(400) >= at) & (np.arange(400) < at + 12), 1.0, 0.0)
    coremargin.ingest(rows, tmp_path / "s.zarr", unlabelled=True, weights=weights, chunk_bytes=8 * 24, dtype="float64")
    model: Any = coremargin.train(tmp_path / "s.zarr", **KINDS[kind], epsilon=1e-6, out=tmp_path / "m")
    assert model.status == "certified"
    assert examine(tmp_path / "m", tmp_path / "s.zarr").ok
    alone: Any = coremargin.train(rows[weights > 0], **KINDS[kind], epsilon=1e-6)
    assert model.radius == pytest.approx(alone.radius, rel=1e-3)
    assert model.certificate.upper == pytest.approx(alone.certificate.upper, rel=1e-5)


def test_a_chunk_with_a_row_that_counts_is_added_to_a_sample_without_any(tmp_path: Path) -> None:
    """The first such chunk; a sample with rows that count stays what it is."""
    rows, labels = np.arange(80.0)[:, None], np.repeat([0, 1], 40)
    weights = np.where(np.isin(np.arange(80), [3, 70]), 1.0, 0.0)
    coremargin.ingest(rows, tmp_path / "s.zarr", labels=labels, weights=weights, chunk_bytes=32)
    source = Store.open(tmp_path / "s.zarr")
    for only, chunk in ((None, 0), (0, 0), (1, 8)):
        found = EnclosedRows(source, only).sample_chunks(0.1, 40)
        assert chunk in found
        assert len(found) == 2
    counted, _ = EnclosedRows(source, 1).read([8])
    assert np.asarray(counted).tolist() == [[70.0]]

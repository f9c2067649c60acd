"""Verification of a hinge that was proven in stages: each chunk has a reference of its own, and forgeries are named."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import coremargin
from coremargin.errors import ClaimRefuted, DataError
from coremargin.models.model import Model
from coremargin.problems.soft import make
from coremargin.problems.soft.near_margin import SoftMargin
from coremargin.verify import verify
from coremargin.verify.examine import examine
from model_kit import altered, store_of

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, CHUNK = 3000, 50


@pytest.fixture(scope="module", params=[True, False], ids=["intercept", "origin"])
def proven(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(model, store) of a hinge that one read of three stages proved, with far rows at each of their references."""
    rng, folder = np.random.default_rng(3), tmp_path_factory.mktemp("stages")
    X = rng.normal(size=(ROWS, 4)).astype(np.float32) + np.float32(0.2 * request.param)
    labels: list[Any] = ["b" if one else "a" for one in X[:, 0] + X[:, 1] + rng.normal(size=ROWS) > 0.3]
    labels[7] = None
    store = store_of(folder / "s.zarr", X, labels, CHUNK)
    with pytest.MonkeyPatch.context() as patch:
        few = partial(SoftMargin, memory_bytes=200_000, sample_bytes=8000)
        patch.setattr(make, "SoftMargin", lambda *given, **options: _limited(few, given, options))
        patch.setattr("coremargin.problems.soft.near_margin.NEAR_BYTES_LEAST", 20_000)
        coremargin.train(
            store, out=folder / "m", loss="hinge", C=0.5, epsilon=0.05, intercept=request.param, cluster="threads"
        )
    return folder / "m", store


def _limited(kind: Any, given: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return kind(*given[:6], **(options | {"sample_share": 0.1}))


def failures(model: Path, store: Path) -> dict[str, str]:
    """Names and messages of the false claims."""
    return {check.name: check.text for check in examine(model, store).failures}


def test_a_true_certificate_is_confirmed(proven: tuple[Path, Path]) -> None:
    """What one read has proven holds, with several references, and most rows far from the margin."""
    model, store = proven
    known = Model.load(model)
    assert known.numbers["reference"].shape == (len(np.unique(known.numbers["reference_of"])), 5)
    assert len(known.numbers["reference"]) >= 2
    assert len(known.numbers["reference_of"]) == ROWS // CHUNK
    assert 0 < len(known.alpha) < 0.7 * ROWS
    result = verify(model, store)
    assert result.claimed_lower <= result.lower <= result.upper <= result.claimed_upper
    assert result.status == "certified"
    assert known.certificate.lower is not None
    assert result.lower <= known.certificate.lower * (1 + 1e-9)  # the claim gives little away


def turned(values: np.ndarray) -> np.ndarray:
    """Other references than those of their chunks."""
    return (values + 1) % (values.max() + 1)


def first(place: int, value: float) -> Callable[[np.ndarray], np.ndarray]:
    """With another entry."""

    def change(values: np.ndarray) -> np.ndarray:
        values.flat[place] = value
        return values

    return change


@pytest.mark.specimens(4)
@pytest.mark.parametrize(
    "change",
    [
        {"reference": lambda v: v[::-1].copy()},
        {"reference": np.zeros_like},
        {"reference": lambda v: np.repeat(v[:1], len(v), axis=0)},
        {"reference": lambda v: v * 1.5},
        {"reference": first(-1, 1e200)},
        {"reference_of": lambda v: v[::-1].copy()},
        {"reference_of": turned},
        {"reference_of": np.zeros_like},
        {"alpha": lambda v: v * 0.9},
        {"alpha": np.zeros_like},
        {"alpha": first(0, -1e-3)},
        {"alpha": first(0, 0.6)},
        {"record": {"certificate.lower": lambda v: v * (1 + 1e-6)}},
        {"record": {"certificate.upper": lambda v: v * (1 - 1e-3)}},
        {"record": {"parameters.C": 0.45}},
        {"record": {"parameters.C": 0.55}},
        {"w": lambda v: v * 3},
    ],
    ids="-".join,
)
def test_forgeries_are_refuted(proven: tuple[Path, Path], tmp_path: Path, change: dict[str, Any]) -> None:
    """Other references, other chunks of theirs, other duals, other bounds: no claim beyond what they prove passes.

    A point of other references may be one that proves as much: then it is no forgery.
    """
    model, store = proven
    path = altered(model, tmp_path / "m", **change)
    found = examine(path, store)
    assert found.failures
    with pytest.raises(ClaimRefuted):
        verify(path, store)


@pytest.mark.parametrize("chunks", [1, ROWS // CHUNK - 1, ROWS // CHUNK + 1])
def test_each_chunk_has_a_reference(proven: tuple[Path, Path], tmp_path: Path, chunks: int) -> None:
    """For fewer or more chunks than the store has: it is said how many."""
    model, store = proven
    path = altered(model, tmp_path / "m", reference_of=lambda v: np.resize(v, chunks))
    text = failures(path, store)["dual weights"]
    assert f"references for {chunks:,} chunks, the store has 60" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reference_of": first(0, -1)}, "reference_of: expected places among the references"),
        ({"reference_of": first(0, 99)}, "reference_of: expected places among the references"),
        ({"reference_of": lambda v: v[:0]}, "reference_of: expected places among the references"),
        ({"reference": lambda v: v[:0]}, "reference_of: expected places among the references"),
        ({"reference_of": lambda v: v.astype(float)}, "reference_of: expected int64"),
        ({"reference": lambda v: v[0]}, "reference: expected shape"),
        ({"reference": lambda v: v[:, :-1]}, "reference: expected shape"),
        ({"reference": first(0, np.nan)}, "reference: expected finite numbers"),
    ],
)
def test_references_that_make_no_sense_are_unreadable(
    proven: tuple[Path, Path], tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    """Places and shapes are looked at before any row is read."""
    model, store = proven
    with pytest.raises(DataError, match=message):
        verify(altered(model, tmp_path / "m", **change), store)


def test_a_squared_hinge_may_have_them_too(proven: tuple[Path, Path], tmp_path: Path) -> None:
    """Whatever the references, slacks at them are a dual point, of which no more is believed than it proves."""
    model, store = proven
    none: dict[str, Any] = dict.fromkeys(("alpha", "coreset_ids", "coreset_y"), lambda v: v[:0])
    squared = {
        "parameters.loss": "squared_hinge", "certificate.coreset_rows": 0, "certificate.lower": 0.0,
        "certificate.ratio": 0.0, "status": "stopped",
    }  # fmt: skip
    path = altered(model, tmp_path / "m", {**squared, "certificate.upper": 1e6}, coreset_x=np.zeros((0, 0)), **none)
    assert verify(path, store).lower > 0
    lie = altered(path, tmp_path / "lie", {"certificate.lower": 9e5, "certificate.ratio": 0.9})
    assert "dual bound" in failures(lie, store)

"""Whole numbers that float32 does not hold are counted and named, whatever they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from coremargin.data.ingest import ingest
from coremargin.data.rows import rounded_whole
from coremargin.data.store import Store
from coremargin.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

EDGE = 1 << 24


def _by_hand(values: list[Any], dtype: str) -> list[int]:
    """Python's own whole numbers judge."""
    limit = 1 << (np.finfo(dtype).nmant + 1)
    return [k for k, v in enumerate(values) if abs(v) > limit and int(np.dtype(dtype).type(v)) != v]


@pytest.mark.parametrize("kind", ["int32", "int64", "uint32", "uint64", "float64"])
def test_rounded_whole(rng: np.random.Generator, kind: str) -> None:
    """Exactly the whole numbers with more than 24 digits between their first and last 1 are found, of either sign."""
    top = 31 if kind in ("int32", "uint32") else 53 if kind == "float64" else 63
    values = [EDGE, EDGE + 1, EDGE + 2, 2 * EDGE + 2, 2 * EDGE + 1, 0, 1, (1 << top) - 1, 1 << (top - 1)]
    values += [int(v) for v in rng.integers(0, (1 << top) - 1, 200)]
    if not kind.startswith("u"):
        values += [-v for v in values]
    if kind == "int64":
        values.append(-(1 << 63))
    array = np.array(values, dtype=kind)
    assert rounded_whole(array, "float32").tolist() == _by_hand(values, "float32")
    assert rounded_whole(array.reshape(-1, 1), "float64").tolist() == _by_hand(values, "float64")


def test_measurements_are_not_counted() -> None:
    """Fractions, floats beyond 2^53 and values of the store's own precision are rounded like any measurement."""
    large = np.array([EDGE + 1.5, 1e300, 2.0**60 + 2.0**30, 1e-3])
    assert rounded_whole(large, "float32").tolist() == []
    assert rounded_whole(np.array([EDGE + 1.0]), "float64").tolist() == []
    assert rounded_whole(np.array([3e38], np.float32), "float32").tolist() == []
    assert rounded_whole(np.zeros((0, 2)), "float32").tolist() == []


def test_ingest_says_what_it_rounds(tmp_path: Path, run_cli: Callable[..., Result]) -> None:
    """The first place and the number of them are told, with what keeps them; then nothing is rounded."""
    (tmp_path / "a.csv").write_text("id,size,label\n5,1,a\n16777217,2,b\n16777219,16777220,b\n")
    text = run_cli("ingest", tmp_path / "a.csv", tmp_path / "a.zarr").stdout
    assert "whole numbers rounded to float32: 2; --dtype float64 keeps them" in text
    assert "line 3, column 'id': 16777217 became 16777216" in text
    wide = run_cli("ingest", tmp_path / "a.csv", tmp_path / "b.zarr", "--dtype", "float64").stdout
    assert "rounded" not in wide


@pytest.mark.parametrize("sparse", [False, True])
def test_arrays_of_whole_numbers(tmp_path: Path, sparse: bool) -> None:
    """Arrays and sparse matrices of integers are counted likewise."""
    X = np.array([[1, 0], [0, -(EDGE + 1)], [EDGE + 3, EDGE + 4]])
    report = ingest(csr_array(X) if sparse else X, tmp_path / "s.zarr", labels=[0, 1, 1])
    assert report.rounded == 2
    assert report.rounded_at is not None
    assert f"{-(EDGE + 1)} became {-EDGE}" in report.rounded_at
    assert ingest(X, tmp_path / "d.zarr", labels=[0, 1, 1], dtype="float64").rounded == 0


@pytest.mark.parametrize("suffix", ["csv", "svm"])
@pytest.mark.parametrize(
    ("digits", "held"),
    [
        ("9" * 5000, False),
        ("9" * 400, False),
        ("1" + "0" * 309, False),
        ("0" * 5000 + "9" * 20, False),
        ("0" * 5000 + "1" + "0" * 20, True),
        ("0" * 5000 + "7", True),
        (str(2**53), True),
        (str(2**53 + 1), False),
        (str(2**70), True),
        (str(2**70 + 1), False),
    ],
    ids=lambda value: f"{len(value)} digits" if isinstance(value, str) else "",
)
@pytest.mark.parametrize("sign", ["", "-"])
def test_whole_numbers_of_any_length_in_text(tmp_path: Path, suffix: str, digits: str, held: bool, sign: str) -> None:
    """Those that float64 holds arrive; others are refused in their line, however many digits or zeros they have."""
    number = sign + digits
    path = tmp_path / f"rows.{suffix}"
    path.write_text(f"a,b,label\n1,2,1\n3,{number},-1\n" if suffix == "csv" else f"\n1 1:1 2:2\n-1 1:3 2:{number}\n")
    options: dict[str, Any] = {"dtype": "float64"} | ({"label": "label"} if suffix == "csv" else {})
    if held:
        ingest(path, tmp_path / "out.zarr", **options)
        assert float(Store.open(tmp_path / "out.zarr").rows_at(np.array([1]))[0][0, 1]) == float(number)
    else:
        with pytest.raises(DataError, match=r"line 3.*expected whole numbers up to 2\^53"):
            ingest(path, tmp_path / "out.zarr", **options)

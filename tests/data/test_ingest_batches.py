"""Batches of arrays and matrices from Python: one source, the store of which is that of the rows in one array."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from coremargin.data.ingest import ingest
from coremargin.data.store import Store
from coremargin.errors import BadRow, CoremarginError, DataError, LabelError, NoRows, UsageError

Refused = Callable[..., str]
Rows = tuple[Any, np.ndarray]

MIB = 2**20
MEASURE = """
import os, sys
import numpy as np, pandas as pd
from coremargin.data.ingest import ingest
from coremargin.engine.task import high_water_bytes
import pyarrow.compute, pyarrow.ipc

def batches(count):
    rng = np.random.default_rng(0)
    for _ in range(count):
        frame = pd.DataFrame(rng.random((50_000, 20))).rename(columns=str)
        yield frame.assign(job=rng.choice(["a", "b"], 50_000), label=rng.integers(0, 2, 50_000))

start = high_water_bytes(os.getpid())
report = ingest(batches(int(sys.argv[1])), sys.argv[2], categorical="auto", missing="mean")
print(report.rows, high_water_bytes(os.getpid()) - start)
"""


@pytest.fixture(params=["dense", "sparse"])
def rows(request: pytest.FixtureRequest, rng: np.random.Generator) -> Rows:
    """700 rows of 30 features, most of them 0, and their labels."""
    X = scipy.sparse.random_array((700, 30), density=0.1, rng=rng, format="csr")
    return X if request.param == "sparse" else X.toarray(), rng.choice(["a", "b"], 700)


def parts(rows: Rows) -> list[Rows]:
    """The rows in parts of 300, one of them without any."""
    bounds = [(0, 300), (300, 300), (300, 600), (600, 700)]
    return [(rows[0][start:stop], rows[1][start:stop]) for start, stop in bounds]


GIVEN: dict[str, tuple[Callable[[Rows], Any], bool]] = {
    "list": (lambda rows: [X for X, _ in parts(rows)], True),
    "iterator": (lambda rows: (X for X, _ in parts(rows)), True),
    "function": (lambda rows: lambda: [X for X, _ in parts(rows)], True),
    "pairs": (lambda rows: iter(parts(rows)), False),
    "list of pairs": (parts, False),
}


@pytest.mark.parametrize("kind", GIVEN)
def test_batches_give_the_store_of_the_array(rows: Rows, tmp_path: Path, kind: str) -> None:
    """Arrays or matrices in batches, with their labels or beside them, make the store of one array, to the bit."""
    make, beside = GIVEN[kind]
    ingest(rows[0], tmp_path / "array.zarr", labels=rows[1])
    report = ingest(make(rows), tmp_path / "rows.zarr", labels=rows[1] if beside else None)
    expected, found = Store.open(tmp_path / "array.zarr"), Store.open(tmp_path / "rows.zarr")
    assert report.label_from == ("labels" if beside else "the batches")
    assert found.sparse == scipy.sparse.issparse(rows[0])
    assert found.digest == expected.digest


ones = np.ones((4, 3))

BAD: dict[str, tuple[Callable[[], Any], type[CoremarginError], str]] = {
    "labels are missing": (lambda: iter([ones]), LabelError, "labels are missing: expected one per row"),
    "other features": (
        lambda: iter([(ones, [0, 1, 0, 1]), (ones[:, :2], [0, 1, 0, 1])]), DataError,
        "batch 1: found 2 features, expected 3 as in the first batch",
    ),
    "fewer labels": (
        lambda: iter([(ones, [0, 1, 0])]), DataError, "batch 0: holds 4 rows, labels of shape (3,): expected as many",
    ),
    "no labels midway": (
        lambda: iter([(ones, [0, 1, 0, 1]), ones]), DataError,
        "batch 1: found no labels, expected labels as in the first batch",
    ),
    "no array": (
        lambda: iter([(ones, [0, 1, 0, 1]), ("rows", [1])]), UsageError,
        "batch 1: found str, expected an array of two dimensions or a CSR matrix",
    ),
    "not finite": (
        lambda: iter([(ones, [0, 1, 0, 1]), (ones * [1, np.nan, 1], [0, 1, 0, 1])]), BadRow,
        "batch 1, row 0, feature 1: found NaN",
    ),
    "no number": (
        lambda: iter([(ones, [0, 1, 0, 1]), (ones.astype(object), [0, 1, 0, 1])]), UsageError,
        "batch 1: dtype object: expected real numbers",
    ),
    "a function without batches": (lambda: lambda: 7, UsageError, "batches: found a function that gives int, expected"),
    "no rows": (lambda: iter([(ones[:0], [])] * 2), NoRows, "batches: no rows: expected at least one"),
    "odd label": (
        lambda: iter([(ones, [0, 1, 0, 1]), (ones, ["x"] * 4)]), LabelError, "batch 1, row 0: found the label 'x'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_batches_are_refused_by_place(refused: Refused, kind: str) -> None:
    """What is wrong with a batch is said by its number and row, and nothing is left behind."""
    make, error, text = BAD[kind]
    assert refused(make(), error).startswith(text)


def test_labels_in_pairs_and_beside_them_are_refused(refused: Refused) -> None:
    """Labels that come with arrays leave no room for others."""
    text = refused(iter([(ones, [1, 0, 1, 0])]), UsageError, labels=[1, 0, 1, 0])
    assert text == "batches: labels come with the rows: leave --labels and --unlabelled out"


def test_what_the_batches_raise_is_raised(tmp_path: Path) -> None:
    """An exception of the code that gives batches comes out as it is, and no store appears."""

    def batches() -> Iterator[Rows]:
        yield ones, np.array([0, 1, 0, 1])
        raise KeyError("page 2")

    with pytest.raises(KeyError, match="page 2"):
        ingest(batches(), tmp_path / "rows.zarr")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_iterator_takes_little_memory(tmp_path: Path) -> None:
    """Rows of 700 MB that can be read once, and are looked at first, take the memory of batches: 330 to 390 MB seen."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, "90", str(tmp_path / "rows.zarr")],
        capture_output=True, text=True, check=True, timeout=170,
    )  # fmt: skip
    rows, peak = map(int, done.stdout.split())
    assert rows == 4_500_000
    assert peak < 500 * MIB

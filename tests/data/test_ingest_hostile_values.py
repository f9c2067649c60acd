"""Arrays from Python that are none, or larger than the memory: refused with what they are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from coremargin.data import machine_memory
from coremargin.data.ingest import ingest
from coremargin.errors import DataError, LabelError, UsageError

Refused = Callable[..., str]
X = np.ones((4, 3))
MASKED = np.ma.array(X, mask=[[True, False, False]] * 4)


def test_what_is_no_array_is_refused(refused: Refused) -> None:
    """Ragged lists and masked values are refused as rows, labels and weights: nothing behind a mask is used."""
    assert refused([[1, 2], [3]], UsageError, unlabelled=True).startswith("array: expected an array, found a list that")
    assert "array: some values are masked" in refused(MASKED, UsageError, unlabelled=True)
    assert "array, row 0: found no label" in refused(X, LabelError, labels=MASKED[:, 0])
    assert "weights: some values are masked" in refused(X, UsageError, labels=[0, 1, 0, 1], weights=MASKED[:, 0])
    assert "weights: expected an array" in refused(X, UsageError, labels=[0, 1, 0, 1], weights=[[1], [1, 2], [1], [1]])
    ragged = [np.zeros((2, 2)), *[np.zeros((2, 3))] * 3]
    assert "labels: expected a list of labels, found one of arrays" in refused(X, UsageError, labels=ragged)


def test_masked_arrays_without_a_mask_are_arrays(tmp_path: Any) -> None:
    """An array that could be masked, and is not, is taken."""
    assert ingest(np.ma.array(X), tmp_path / "rows.zarr", labels=np.ma.array([0, 1, 0, 1])).rows == 4


def broken(how: Callable[[Any], Any]) -> Any:
    """A Dask array (4, 3) of two blocks, whose blocks are not what it says."""
    return da.from_array(X, chunks=(2, 3)).map_blocks(how, dtype=float, meta=np.empty((0, 0)))


def failing(block: Any) -> Any:
    """A block that cannot be computed."""
    raise RuntimeError("no such bucket")


BLOCKS = {
    "one that fails": (
        failing,
        "Dask array, block 0: cannot be computed: RuntimeError: no such bucket; correct the graph",
    ),
    "fewer rows": (lambda block: block[:1], "Dask array, block 0: found shape (1, 3), expected 2 rows of 3 features"),
    "fewer features": (
        lambda block: block[:, :1],
        "Dask array, block 0: found shape (2, 1), expected 2 rows of 3 features",
    ),
    "another type": (lambda block: block.astype(str), "Dask array, block 0: found values of type <U32, expected real"),
    "another sparse type": (
        lambda block: sp.csr_array(block[:, :2]),
        "Dask array, block 0: found shape (2, 2), expected",
    ),
}


@pytest.mark.parametrize(("how", "message"), BLOCKS.values(), ids=BLOCKS)
def test_blocks_that_are_not_what_was_said_are_named(refused: Refused, how: Callable[[Any], Any], message: str) -> None:
    """Whatever a Dask graph raises or returns instead of its rows is refused by block."""
    assert message in refused(broken(how), DataError, unlabelled=True)


def test_labels_from_a_graph_that_fails_are_named(refused: Refused) -> None:
    """The same of labels, and a label that is none is named by its row among all blocks."""
    labels = da.from_array(np.array([0, 1, 0, 1]), chunks=2)
    failed = labels.map_blocks(failing, dtype=int, meta=np.empty(0, int))
    assert "labels, block 0: cannot be computed: RuntimeError: no such bucket" in refused(X, DataError, labels=failed)
    odd = labels.astype(float).map_blocks(lambda block: np.where(block == 1, np.inf, block), dtype=float)
    assert "labels, row 1: found inf, expected a label" in refused(X, LabelError, labels=odd)


def test_a_matrix_whose_csr_no_memory_holds_is_refused(refused: Refused) -> None:
    """Two values in two trillion rows are small in one kind of matrix, and terabytes as rows."""
    huge = sp.coo_array((np.ones(2), ([0, 2**40], [0, 1])), shape=(2**41, 3))
    message = refused(huge, DataError, unlabelled=True)
    assert message.startswith("array: 2 values in 2,199,023,255,552 rows as CSR: takes 16.0 TiB of memory, ")
    floats = sp.csr_array(X)
    floats.indptr = floats.indptr.astype(float)
    assert "array: found row starts and indices of types float64 and int32" in refused(
        floats, DataError, unlabelled=True
    )
    wide = sp.csr_array((4, 2**26 + 1))
    assert "array: found 67,108,865 features, expected at most 67,108,864" in refused(wide, DataError, unlabelled=True)


def test_memory_that_ends_is_an_error_with_a_name(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever memory ends after all, the message names the source and what is left."""

    def ends(*_: Any, **__: Any) -> None:
        raise MemoryError("8.0 GiB for an array")

    monkeypatch.setattr("coremargin.data.sources.arrays.array_batches", ends)
    message = refused(X, DataError, unlabelled=True)
    assert message.startswith("rows: takes more memory than the ")
    assert "GiB that are there (8.0 GiB for an array); allow more" in message


LIMITED = """
import resource, sys
from coremargin.data.machine_memory import available_bytes
import psutil
used = psutil.Process().memory_info().vms
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), -1))
sys.stdout.write(str(available_bytes()))
"""


def test_available_memory_knows_its_limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """What is there is the least of what the machine, `ulimit -v` and the control group leave."""
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True, timeout=60)
    assert 200 << 20 < int(done.stdout) <= 256 << 20
    monkeypatch.setattr(machine_memory, "_of_groups", lambda: [machine_memory.Limit(99999, 12345)])
    assert machine_memory.available_bytes() == 12345

"""The order in which rows are drawn."""

from __future__ import annotations

import hashlib
from itertools import islice

import numpy as np
import pytest

from coremargin.formats.draws import drawn


def test_every_row_is_drawn_once() -> None:
    """An order of all rows, another for another attempt, seed or digest."""
    orders = [list(drawn(*which, 500)) for which in [("a", 0, 1), ("a", 0, 2), ("a", 1, 1), ("b", 0, 1)]]
    assert all(sorted(order) == list(range(500)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4


def test_the_definition_by_hand() -> None:
    """The first numbers of the first block, as the module's text says."""
    block = hashlib.sha256(b"coremargin draws 1 sha256:x 7 3 0").digest()
    numbers = [int.from_bytes(block[k : k + 8], "big") for k in (0, 8, 16, 24)]
    assert list(islice(drawn("sha256:x", 7, 3, 10**15), 4)) == [number % 10**15 for number in numbers]


@pytest.mark.parametrize("rows", [1, 2, 3, 1000])
def test_no_row_is_favoured(rows: int) -> None:
    """The first draw of many attempts is uniform: the chi-squared statistic is near its degrees of freedom."""
    first = np.array([next(drawn("x", 0, attempt, rows)) for attempt in range(20 * rows)])
    counts = np.bincount(first, minlength=rows)
    spread = float(((counts - 20.0) ** 2 / 20.0).sum())
    assert spread <= rows - 1 + 5 * np.sqrt(2 * max(rows - 1, 1))


def test_rows_beyond_64_bits_of_choice_are_rejected_fairly() -> None:
    """With 3 * 2^62 rows a quarter of all numbers is passed over: the rest is below the number of rows."""
    rows = 3 << 62
    assert max(islice(drawn("x", 0, 1, rows), 1000)) < rows

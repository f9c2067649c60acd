"""Rows in memory keep together what is known of each, whatever that is called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from coremargin.problems.common.pool import Pool
from coremargin.problems.multiclass.classes import ClassRows


def rows_of(kind: type[Any], ids: list[int], *, sparse: bool) -> Any:
    """Rows whose values, labels and weights say their id."""
    at = np.array(ids, np.int64)
    x = np.column_stack([at, at**2]).astype(np.float64)
    label = (at % 2).astype(np.int32) if kind is ClassRows else np.where(at % 2, 1, -1).astype(np.int8)
    return kind(at, csr_array(x) if sparse else x, label, at / 3)


def assert_says_its_ids(held: Any, ids: list[int]) -> None:
    """These ids in this order, and nothing has come apart."""
    assert held.ids.tolist() == ids
    x = held.rows.toarray() if hasattr(held.rows, "toarray") else held.rows
    assert x.tolist() == [[float(k), float(k * k)] for k in ids]
    label, weight = (held.classes, held.shares) if isinstance(held, ClassRows) else (held.signs, held.weights)
    assert label.tolist() == [k % 2 if isinstance(held, ClassRows) else (1 if k % 2 else -1) for k in ids]
    assert weight.tolist() == [k / 3 for k in ids]
    assert len(held) == len(ids)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", [Pool, ClassRows])
def test_rows_stay_together(kind: type[Any], *, sparse: bool) -> None:
    """Some of them, several parts joined, brought into order and stored: each row keeps values, label and weight."""
    one, other = rows_of(kind, [5, 2, 9], sparse=sparse), rows_of(kind, [4, 1], sparse=sparse)
    assert_says_its_ids(one.take(np.array([2, 0])), [9, 5])
    assert_says_its_ids(kind.joined([one, other]), [5, 2, 9, 4, 1])
    assert_says_its_ids(kind.joined([one, other]).in_order(), [1, 2, 4, 5, 9])
    arrays = one.to_arrays("near")
    assert_says_its_ids(kind.from_arrays("near", arrays), [5, 2, 9])
    assert all(name.startswith("near_") for name in arrays)


def test_arrays_have_the_names_of_earlier_checkpoints() -> None:
    """Dense rows of two classes are ``rows`` on disk, those of several are ``x``."""
    pool = rows_of(Pool, [1], sparse=False).to_arrays("held")
    assert pool.keys() == {"held_ids", "held_signs", "held_weights", "held_rows"}
    rows = rows_of(ClassRows, [1], sparse=False).to_arrays("proof")
    assert rows.keys() == {"proof_ids", "proof_classes", "proof_shares", "proof_x"}

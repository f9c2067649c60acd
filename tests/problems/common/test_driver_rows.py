"""Rows in memory keep together what is known of each, whatever that is called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from coremargin.problems.common.driver_rows import ClassRows, WorkingSet
from coremargin.problems.outliers.state import OutlierWorkingSet
from coremargin.problems.soft.rows_with_c import RowsWithC

#: What each kind of rows calls the label and the number that a row has.
NAMES = {WorkingSet: ("signs", "weights"), RowsWithC: ("signs", "row_c"), ClassRows: ("classes", "shares")}


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
    label, weight = (getattr(held, name) for name in NAMES[type(held)])
    assert label.tolist() == [k % 2 if isinstance(held, ClassRows) else (1 if k % 2 else -1) for k in ids]
    assert weight.tolist() == [k / 3 for k in ids]
    assert len(held) == len(ids)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", NAMES)
def test_rows_stay_together(kind: type[Any], *, sparse: bool) -> None:
    """Some of them, several parts joined, brought into order and stored: each row keeps values, label and weight."""
    one, other = rows_of(kind, [5, 2, 9], sparse=sparse), rows_of(kind, [4, 1], sparse=sparse)
    assert_says_its_ids(one.take(np.array([2, 0])), [9, 5])
    assert_says_its_ids(kind.concatenate([one, other]), [5, 2, 9, 4, 1])
    assert_says_its_ids(kind.concatenate([one, other]).in_order(), [1, 2, 4, 5, 9])
    arrays = one.to_arrays("near")
    assert_says_its_ids(kind.from_arrays("near", arrays), [5, 2, 9])
    assert all(name.startswith("near_") for name in arrays)


@pytest.mark.parametrize("kind", [WorkingSet, RowsWithC, OutlierWorkingSet])
def test_no_rows_can_be_joined_with_some(kind: type[Any]) -> None:
    """Without rows, what is known of them has the types that it has with rows: joined to some, nothing changes."""
    numbers = [np.array([0.5])] if kind in NAMES else []
    some = kind(np.array([7], np.int64), np.array([[1.0, 2.0]]), np.array([-1], np.int8), *numbers)
    empty = kind.nothing(2)
    assert len(empty) == 0
    mine, joined = some.to_arrays("held"), kind.concatenate([empty, some]).to_arrays("held")
    assert {name: (values.dtype, values.tolist()) for name, values in joined.items()} == {
        name: (values.dtype, values.tolist()) for name, values in mine.items()
    }
    assert kind.nothing(2, sparse=True).rows.shape == (0, 2)


def test_a_number_of_a_row_has_one_name() -> None:
    """Dual weights are ``weights`` on disk, C is ``row_c``; rows of two classes are ``rows``, of several ``x``."""
    pool = rows_of(WorkingSet, [1], sparse=False).to_arrays("held")
    assert pool.keys() == {"held_ids", "held_signs", "held_weights", "held_rows"}
    soft = rows_of(RowsWithC, [1], sparse=False).to_arrays("held")
    assert soft.keys() == {"held_ids", "held_signs", "held_row_c", "held_rows"}
    rows = rows_of(ClassRows, [1], sparse=False).to_arrays("proof")
    assert rows.keys() == {"proof_ids", "proof_classes", "proof_shares", "proof_x"}

from __future__ import annotations

from dataclasses import dataclass, fields, make_dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from coremargin.maths.rows import Rows, from_arrays
from coremargin.problems.common.driver_rows import WorkingSet
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays


@dataclass(frozen=True)
class Example:
    """A field of every kind that states and answers have."""

    count: int
    status: str
    bound: float
    best: NDArray[np.float64] | None
    row_x: Rows
    held: WorkingSet
    codes: NDArray[np.int8]


STATUSES = ("running", "certified")


def example(*, sparse: bool) -> Example:
    """Three rows and numbers that have no short decimal form."""
    x = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    rows = csr_array(x) if sparse else x
    pool = WorkingSet(np.arange(3), rows.astype(np.float64), np.array([1, -1, 1], np.int8), np.full(3, 1 / 3))
    return Example(7, "certified", 1 / 3, np.array([np.nan, -0.0]), rows, pool, np.zeros((0, 2), np.int8))


def again(arrays: dict[str, NDArray]) -> Example:
    """The example that these arrays are about."""
    makers = {"row_x": from_arrays, "held": WorkingSet.from_arrays}
    return Example(**state_from_arrays(Example, arrays, makers, STATUSES, may_lack=("best",)))


@pytest.mark.parametrize("sparse", [False, True])
def test_fields_come_back_to_the_bit(sparse: bool) -> None:
    """Numbers, words, arrays and rows of both kinds are the same bits, of the same type, after a trip by arrays."""
    arrays = state_to_arrays(example(sparse=sparse), STATUSES)
    assert all(isinstance(values, np.ndarray) and values.dtype.kind in "fi" for values in arrays.values())
    back = again(arrays)
    assert (back.count, back.status, back.bound) == (7, "certified", 1 / 3)
    assert isinstance(back.count, int)
    assert isinstance(back.row_x, csr_array) == sparse
    after = state_to_arrays(back, STATUSES)
    assert list(after) == list(arrays)
    for name, values in arrays.items():
        assert (after[name].dtype, after[name].shape) == (values.dtype, values.shape), name
        assert after[name].tobytes() == values.tobytes(), name


def test_only_what_may_be_missing_is_none() -> None:
    """A field that was None is None again; an array that was lost is an error that names it, whichever it is."""
    arrays = state_to_arrays(replace(example(sparse=False), best=None), STATUSES)
    assert "best" not in arrays
    assert again(arrays).best is None
    for name in arrays:
        rest = {other: values for other, values in arrays.items() if other != name}
        with pytest.raises(KeyError, match=name if name in {f.name for f in fields(Example)} - {"held"} else "held_"):
            again(rest)


@dataclass(frozen=True)
class Inner:
    """A part with a field of its own."""

    count: int


@dataclass(frozen=True)
class Twice:
    """A whole whose part has a field of the same name."""

    part: Inner
    count: int


def test_two_arrays_of_one_name_are_refused() -> None:
    """A part's array never takes the place of another one, whichever comes first: the name and the field are told."""
    with pytest.raises(ValueError, match=r"Twice\.count: .*'count'"):
        state_to_arrays(Twice(Inner(1), 2))
    pool = WorkingSet(np.arange(2), np.zeros((2, 1)), np.ones(2, np.int8), np.zeros(2))
    names = list(pool.to_arrays("held"))
    clash = make_dataclass("Clash", [(names[0], int), ("held", WorkingSet)])
    with pytest.raises(ValueError, match=rf"Clash\.held: .*'{names[0]}'"):
        state_to_arrays(clash(1, pool))

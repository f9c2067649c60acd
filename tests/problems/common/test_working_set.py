from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coremargin.problems.common.driver_rows import WorkingSet
from coremargin.problems.common.sent import SentRows


def working_set_of(ids: list[int], weights: list[float] | None = None) -> WorkingSet:
    """A working set whose rows say their id."""
    at = np.array(sorted(ids), np.int64)
    working_set = WorkingSet.nothing(1).add(
        SentRows.one_part(at, at[:, None].astype(np.float32), np.where(at % 2, 1, -1).astype(np.int8))
    )
    return working_set if weights is None else working_set.weighted(np.array(weights))


def says_its_ids(working_set: WorkingSet) -> bool:
    """Whether ids, rows and signs still belong together, each id once."""
    return bool(
        (working_set.rows[:, 0] == working_set.ids).all()
        and (working_set.signs == np.where(working_set.ids % 2, 1, -1)).all()
        and len(set(working_set.ids.tolist())) == len(working_set.ids)
        and len(working_set) == len(working_set.weights)
    )


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_adding_is_a_union(one: set[int], other: set[int]) -> None:
    """Rows that are added appear once, behind those that were there; old weights stay, new ones are 0."""
    working_set = working_set_of(list(one)).weighted(np.arange(len(one)) + 1.0)
    at = np.array(sorted(other, reverse=True), np.int64)
    grown = working_set.add(
        SentRows.one_part(at, at[:, None].astype(np.float64), np.where(at % 2, 1, -1).astype(np.int8))
    )
    assert set(grown.ids.tolist()) == one | other
    assert grown.ids[: len(working_set)].tolist() == working_set.ids.tolist()
    assert says_its_ids(grown)
    assert (grown.weights[np.isin(grown.ids, working_set.ids)] == working_set.weights).all()
    assert (grown.weights[np.isin(grown.ids, working_set.ids, invert=True)] == 0).all()


@given(st.sets(st.integers(0, 30), min_size=1), st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_the_lowest_rows_stay_and_rows_with_weight_always(ids: set[int], limit: int, seed: int) -> None:
    """What leaves has no weight and no smaller margin than any row without weight that stays; the limit is kept."""
    rng = np.random.default_rng(seed)
    weights = np.where(rng.random(len(ids)) < 0.3, rng.random(len(ids)), 0.0)
    working_set, margins = working_set_of(list(ids)).weighted(weights), rng.integers(0, 4, len(ids)).astype(float)
    kept = working_set.lowest(margins, limit)
    gone = np.setdiff1d(np.arange(len(working_set)), kept)
    assert (np.diff(kept) > 0).all()
    assert len(kept) == min(len(ids), max(limit, int((weights > 0).sum())))
    assert (weights[gone] == 0).all()
    free = kept[weights[kept] == 0]
    if len(gone) and len(free):
        assert margins[gone].min() >= margins[free].max()
    assert says_its_ids(working_set.take(kept))


def test_support_and_classes() -> None:
    """The support is where weights are; both classes are there when both signs are."""
    working_set = working_set_of([2, 5, 8], [0.0, 1.0, 0.5])
    assert working_set.support.tolist() == [1, 2]
    assert working_set.both_classes
    assert not working_set_of([2, 4]).both_classes
    assert not WorkingSet.nothing(3).both_classes
    assert len(WorkingSet.nothing(3)) == 0

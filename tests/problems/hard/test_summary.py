from __future__ import annotations

import dataclasses
from functools import reduce

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coremargin.problems.common.sent import SentRows
from coremargin.problems.hard.probe import MarginSummary


@st.composite
def summaries(draw: st.DrawFn) -> MarginSummary:
    """A summary about 3 hypotheses in 2 features, with many ties, some classes unseen."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    smallest = rng.integers(-2, 3, (2, 3)) * 0.1
    smallest[rng.random((2, 3)) < 0.2] = np.inf
    m, c = rng.integers(0, 4, 2)
    return MarginSummary(
        smallest=smallest,
        smallest_id=rng.integers(0, 5, (2, 3)),
        chunks=rng.integers(0, 9, c),
        chunk_lower=rng.standard_normal((c, 2)),
        sent=SentRows.one_part(
            rng.integers(0, 99, m),
            rng.standard_normal((m, 2)).astype(np.float32),
            rng.choice(np.array([-1, 1], np.int8), m),
        ),
        histogram=rng.integers(0, 9, (2, 4)),
        below=rng.integers(0, 9, 1),
    )


def same(one: MarginSummary, other: MarginSummary) -> bool:
    """Equal bits, shapes and kinds in every field."""
    names = [f.name for f in dataclasses.fields(MarginSummary) if f.name != "sent"]
    pairs = [(getattr(one, name), getattr(other, name)) for name in names]
    pairs += [(getattr(one.sent, name), getattr(other.sent, name)) for name in ("ids", "rows", "signs")]
    return all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


@given(summaries(), summaries(), summaries())
def test_merging_is_associative(a: MarginSummary, b: MarginSummary, c: MarginSummary) -> None:
    """How neighbours are grouped does not change a bit of the answer."""
    assert same(a.merge(b).merge(c), a.merge(b.merge(c)))


@given(summaries())
def test_the_empty_summary_is_the_identity(a: MarginSummary) -> None:
    """Merging with the summary of no rows, on either side, changes nothing."""
    nothing = MarginSummary.nothing(3, 2, np.dtype(np.float32), 4)
    assert same(a.merge(nothing), a)
    assert same(nothing.merge(a), a)


@given(st.lists(summaries(), min_size=1, max_size=5))
def test_merging_keeps_the_smallest_and_the_sums(parts: list[MarginSummary]) -> None:
    """Smallest values are minima, counts are sums, rows and bounds are there in order; ties go to the smaller id."""
    whole = reduce(MarginSummary.merge, parts)
    values = np.array([part.smallest for part in parts])
    assert (whole.smallest == values.min(axis=0)).all()
    ids = np.where(values == values.min(axis=0), [part.smallest_id for part in parts], np.iinfo(np.int64).max)
    assert (whole.smallest_id == ids.min(axis=0)).all()
    assert (whole.row_id == np.concatenate([part.row_id for part in parts])).all()
    assert (whole.chunk_lower == np.concatenate([part.chunk_lower for part in parts])).all()


@given(summaries())
def test_arrays_are_exact(a: MarginSummary) -> None:
    """A summary written as arrays and read back has the same bits."""
    assert same(MarginSummary.from_arrays(a.to_arrays()), a)

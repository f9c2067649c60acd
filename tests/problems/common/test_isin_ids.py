"""Sets of row ids."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coremargin.problems.common.driver_rows import isin_ids

IDS = st.lists(st.integers(0, 20) | st.integers(0, 2**62), max_size=30)


@given(ids=IDS, others=IDS)
def test_ids_are_found_among_others(ids: list[int], others: list[int]) -> None:
    """The answer is that of a set, in the order of the ids, whatever repeats."""
    found = isin_ids(np.array(ids, np.int64), np.array(others, np.int64))
    assert found.tolist() == [one in set(others) for one in ids]

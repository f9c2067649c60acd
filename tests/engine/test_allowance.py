"""How much may be kept for retraining."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coremargin.engine.allowance import FREE_WORK, HEADERS, Allowance, size_of


@pytest.mark.parametrize("most", [0, 1, 50, 1000])
@pytest.mark.parametrize("limit", [0, 500, 4000, 10_000])
def test_as_many_rows_as_fit_are_kept(limit: int, most: int) -> None:
    """Where all that is wanted is too much, fewer rows are, and not many fewer than there is room for."""
    found = Allowance(limit).within(lambda rows: {"rows": np.zeros((rows, 2))}, most)
    rows = len(found["rows"])
    assert rows in (0, most) or size_of(found) <= limit
    if rows < most and limit > HEADERS:
        assert rows >= 0.85 * (limit - HEADERS) // 16 - 1


def test_what_no_fewer_rows_make_smaller_is_asked_twice() -> None:
    """What does not depend on the rows is not made again and again."""
    asked = list[int]()

    def kept(rows: int) -> dict[str, Any]:
        asked.append(rows)
        return {"sums": np.zeros(1000)}

    assert size_of(Allowance(100).within(kept, 1 << 20)) > 100
    assert len(asked) == 2


def test_work_for_retraining_alone_is_asked_for() -> None:
    """By default only little of it pays; whoever asks has any."""
    assert Allowance().pays(FREE_WORK)
    assert not Allowance().pays(2 * FREE_WORK)
    assert Allowance(requested=True).pays(1e15)

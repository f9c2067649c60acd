"""Names of features: those of different columns are different, or the columns are refused with their names."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from coremargin.data.ingest import ingest
from coremargin.data.tables.rows import refuse_same_features
from coremargin.errors import DataError
from coremargin.formats.column_kinds import Categories, Column, Numbers


@pytest.mark.parametrize(
    ("columns", "words", "said"),
    [
        ({"a": ["b=c", "x"], "a=b": ["c", "y"]}, {"categorical": "auto"}, "'a' and 'a=b' both make a feature 'a=b=c'"),
        ({"v": [[1.0, 2.0]] * 2, "v[1]": [1.0, 2.0]}, {}, r"'v' and 'v\[1\]' both make a feature 'v\[1\]'"),
        (
            {"n": [1.0, None], "n (missing)": [1.0, 2.0]},
            {"missing": "indicator"},
            r"both make a feature 'n \(missing\)'",
        ),
    ],
)
def test_features_of_one_name_are_refused(tmp_path: Path, columns: Any, words: dict[str, Any], said: str) -> None:
    """Both columns are named, and once one is renamed, or dropped, the rows are taken."""
    frame = pd.DataFrame({**columns, "label": [0, 1]})
    with pytest.raises(DataError, match=said):
        ingest(frame, tmp_path / "rows.zarr", **words)
    assert not (tmp_path / "rows.zarr").exists()
    assert ingest(frame, tmp_path / "rows.zarr", drop=list(columns)[1], **words).rows == 2


def described(names: Sequence[str], rng: np.random.Generator) -> list[Column]:
    """Columns of these names: numbers, or categories of a few of the same letters."""
    values = ["=", "a", "a=", "=a", "b", "(missing)"]
    return [
        Numbers(name=name, indicator=rng.random() < 0.3)
        if rng.random() < 0.5
        else Categories(name=name, values=rng.choice(values, 3, replace=False).tolist(), missing=rng.random() < 0.5)
        for name in names
    ]


def test_exactly_the_same_names_are_found(rng: np.random.Generator) -> None:
    """Whatever the columns, they are refused where two of them share a feature, and only there."""
    names = ["a", "a=", "a=a", "a==", "a (missing)", "a=a (missing)", "b", "b=a"]
    refused = 0
    for _ in range(400):
        columns = described(rng.permutation(names)[: rng.integers(2, 6)].tolist(), rng)
        same = any(set(one.features) & set(other.features) for one, other in combinations(columns, 2))
        refused += same
        try:
            refuse_same_features(columns, "rows")
            assert not same
        except DataError:
            assert same
    assert 50 < refused < 350

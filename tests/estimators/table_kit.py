"""Tables with columns of every kind, for the estimator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

#: What becomes of the columns of ``mixed``.
WORDS: dict[str, Any] = {"categorical": "auto", "dates": "auto", "text": "note", "missing": "indicator"}


#: The same without prose, whose features are many.
SMALL: dict[str, Any] = {"categorical": "auto", "dates": "auto", "missing": "indicator"}


def penguins() -> pd.DataFrame:
    """Palmer's penguins, as their package ships them: words, numbers, gaps."""
    package = pytest.importorskip("palmerpenguins")
    return pd.read_csv(Path(package.__file__).parent / "data" / "penguins.csv")


def mixed(rng: np.random.Generator, rows: int = 400) -> tuple[pd.DataFrame, pd.Series]:
    """Numbers, categories, dates and prose, numbers and categories with gaps; and labels that go with them."""
    frame = pd.DataFrame({
        "age": rng.normal(40.0, 10.0, rows),
        "job": rng.choice(["baker", "miner", "nurse"], rows),
        "since": pd.Timestamp("2019-03-01") + pd.to_timedelta(rng.integers(0, 1500, rows), unit="D"),
        "note": rng.choice(["a good day", "a bad night", "good work", "nothing"], rows),
    })  # fmt: skip
    score = frame["age"] / 10 + 2 * (frame["job"] == "nurse") + frame["note"].str.contains("good") - 5
    label = pd.Series(np.where(score + rng.normal(0, 0.5, rows) > 0, "yes", "no"), name="answer")
    frame.loc[rng.choice(rows, 7, replace=False), "age"] = np.nan
    frame.loc[rng.choice(rows, 7, replace=False), "job"] = None
    return frame, label


def small(rng: np.random.Generator, rows: int = 400) -> tuple[pd.DataFrame, pd.Series]:
    """The same without prose."""
    frame, label = mixed(rng, rows)
    return frame.drop(columns="note"), label

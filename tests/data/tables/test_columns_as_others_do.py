"""What columns become, held against scikit-learn and pandas: one-hot, hashing, filling in, tf-idf, dates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from coremargin.data.ingest import ingest
from coremargin.data.store import Store


@pytest.fixture
def frame() -> pd.DataFrame:
    """1,200 rows with columns of every kind, gaps among them."""
    rng = np.random.default_rng(5)
    n = 1200
    return pd.DataFrame({
        "age": rng.integers(17, 90, n),
        "job": rng.choice(["Private", "State", "Self", "None of these", "ä, ö"], n, p=[0.5, 0.2, 0.2, 0.05, 0.05]),
        "gap": np.where(rng.random(n) < 0.2, np.nan, np.round(rng.normal(size=n), 3)),
        "when": pd.to_datetime("2021-01-01") + pd.to_timedelta(rng.integers(0, 10**8, n), unit="s"),
        "flag": rng.random(n) < 0.3,
        "city": [f"city {k}" for k in rng.integers(0, 290, n)],
        "note": rng.choice(["good value", "bad, very bad value", "no word at all", "value"], n),
        "label": rng.choice(["low", "high"], n),
    })  # fmt: skip


@pytest.fixture(params=["csv", "parquet"])
def made(request: pytest.FixtureRequest, tmp_path: Path, frame: pd.DataFrame) -> Any:
    """``made(columns, **words)``: rows (n, d) and names of the features of a store made of some columns in a file.

    Rows of very many features are sparse.
    """

    def make(columns: list[str], **words: Any) -> tuple[Any, list[str]]:
        path = tmp_path / f"rows.{request.param}"
        part = frame[[*columns, "label"]]
        part.to_csv(path, index=False) if request.param == "csv" else part.to_parquet(path)
        store = tmp_path / "rows.zarr"
        ingest(path, store, dtype="float64", overwrite=store.exists(), **words)
        opened = Store.open(store)
        assert opened.columns is not None
        rows = opened.rows_at(np.arange(len(frame)))[0]
        few = opened.sparse and opened.features < 10_000
        return rows.toarray() if few else rows, list(opened.columns.features)

    return make


def test_categories_are_one_hot(made: Any, frame: pd.DataFrame) -> None:
    """A column of words becomes what OneHotEncoder makes of it, in its order."""
    rows, names = made(["job"], categorical="auto")
    encoder = OneHotEncoder(sparse_output=False).fit(frame[["job"]])
    assert np.array_equal(rows, encoder.transform(frame[["job"]]))
    assert names == [f"job={value}" for value in encoder.categories_[0]]


def test_the_most_frequent_categories_have_features(made: Any, frame: pd.DataFrame) -> None:
    """With --categories 3 the others share one feature, as OneHotEncoder's infrequent categories do."""
    rows, names = made(["job"], categorical="job", categories=3)
    encoder = OneHotEncoder(sparse_output=False, max_categories=4).fit(frame[["job"]])
    assert np.array_equal(rows, encoder.transform(frame[["job"]]))
    assert names[-1] == "job (other)"


def test_many_categories_are_hashed(made: Any, frame: pd.DataFrame) -> None:
    """A column of more than 1,000 values becomes what FeatureHasher makes of it."""
    rng = np.random.default_rng(6)
    frame["city"] = [f"city {k}" for k in rng.permutation(1200)]
    rows, names = made(["age", "city"], categorical="city")
    hasher = FeatureHasher(1024, input_type="string").transform([[value] for value in frame["city"]])
    assert np.array_equal(rows[:, 1:], hasher.toarray())
    assert names[:2] == ["age", "city#0"]


@pytest.mark.parametrize("policy", ["mean", "median", "most-frequent"])
def test_missing_numbers_are_filled_in(made: Any, frame: pd.DataFrame, policy: str) -> None:
    """The value in a gap is SimpleImputer's."""
    rows, names = made(["age", "gap"], missing=policy)
    imputer = SimpleImputer(strategy=policy.replace("-", "_")).fit(frame[["age", "gap"]])
    assert np.allclose(rows, imputer.transform(frame[["age", "gap"]]), rtol=1e-14, atol=0)
    assert names == ["age", "gap"]


def test_an_indicator_says_what_is_missing(made: Any, frame: pd.DataFrame) -> None:
    """With the policy "indicator" a feature says where the mean stands in, as MissingIndicator does."""
    rows, names = made(["age", "gap"], missing="indicator")
    assert names == ["age", "gap", "gap (missing)"]
    assert np.array_equal(rows[:, 2:], MissingIndicator().fit_transform(frame[["age", "gap"]]))
    assert np.allclose(rows[:, :2], SimpleImputer().fit_transform(frame[["age", "gap"]]), rtol=1e-14)


def test_policies_may_differ(made: Any, frame: pd.DataFrame) -> None:
    """A column named with its policy has another one than the rest."""
    frame["other"] = frame["gap"].to_numpy()[::-1]
    rows, _ = made(["gap", "other"], missing=("median", "other=mean"))
    for place, strategy in enumerate(("median", "mean")):
        column = frame[[["gap", "other"][place]]]
        assert np.allclose(rows[:, place], SimpleImputer(strategy=strategy).fit_transform(column)[:, 0], rtol=1e-14)


def test_booleans_are_1_and_0(made: Any, frame: pd.DataFrame) -> None:
    """True and false need no word."""
    rows, _ = made(["flag"])
    assert np.array_equal(rows[:, 0], frame["flag"])


@pytest.mark.specimens(1)
def test_text_is_weighed_by_how_rare_words_are(made: Any, frame: pd.DataFrame) -> None:
    """Prose becomes what HashingVectorizer and TfidfTransformer make of it."""
    rows, names = made(["note"], text="note")
    counts = HashingVectorizer(n_features=2**18, norm=None, alternate_sign=False).transform(frame["note"])
    assert abs(rows - TfidfTransformer().fit_transform(counts)).max() < 1e-12
    assert names[5] == "note#5"


def test_dates_are_years_and_circles(made: Any, frame: pd.DataFrame) -> None:
    """A date has the weekday that pandas sees, and lies on the circles of its year and day."""
    rows, names = made(["when"], dates="auto")
    by_name = dict(zip(names, rows.T, strict=True))
    when = frame["when"].dt
    for number, day in enumerate(("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")):
        assert np.array_equal(by_name[f"when ({day})"], when.weekday == number)
    seconds = (frame["when"] - pd.Timestamp("2000-01-01")).dt.total_seconds().to_numpy()
    years = seconds / (365.2425 * 86400)
    assert np.allclose(by_name["when (years since 2000)"], years, rtol=1e-14)
    assert np.allclose(by_name["when (sine of the year)"], np.sin(2 * np.pi * years), atol=1e-11)
    hours = (when.hour + when.minute / 60 + when.second / 3600).to_numpy()
    assert np.allclose(by_name["when (cosine of the day)"], np.cos(2 * np.pi * hours / 24), atol=1e-12)


def test_a_median_of_many_values_is_that_of_a_sample() -> None:
    """Beyond the sample's size memory stays as it is, and the median is off by no more than a sample's is."""
    from coremargin.data.tables.survey import NumberStatistics

    found = NumberStatistics({"median"}, sample=1000, seed=3)
    for part in np.array_split(np.random.default_rng(0).permutation(100_000), 50):
        found.add(part.astype(float))
    assert abs(found.median - 50_000) < 5 * 50_000 / np.sqrt(1000)  # five deviations of a sample's median
    assert sum(len(values) for values, _ in found._parts) <= 2000
    assert found.mean == 49_999.5

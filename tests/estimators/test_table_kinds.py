"""Whatever holds the rows of a table, a file included, the estimator gives the answer of the data frame."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from scipy.sparse import random_array

import coremargin
from coremargin.errors import DataError, UsageError
from coremargin.estimators import MarginCoresetClassifier
from table_kit import SMALL, small


class Streamed:
    """A table of a library that nobody here knows, such as polars: it gives itself to Arrow and has a length."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._table = pa.Table.from_pandas(frame, preserve_index=False)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def arrow(frame: pd.DataFrame, _: Path) -> pa.Table:
    """A table of Arrow."""
    return pa.Table.from_pandas(frame, preserve_index=False)


def dataset(frame: pd.DataFrame, folder: Path) -> pyarrow.dataset.Dataset:
    """A data set of Arrow in a file."""
    return pyarrow.dataset.dataset([parquet(frame, folder)])


def parquet(frame: pd.DataFrame, folder: Path) -> Path:
    """A file of Parquet."""
    path = folder / f"rows-{len(list(folder.iterdir()))}.parquet"
    pq.write_table(arrow(frame, folder), path)
    return path


def files(frame: pd.DataFrame, folder: Path) -> list[str]:
    """Two files."""
    return [str(parquet(part, folder)) for part in (frame[:100], frame[100:])]


KINDS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "table": arrow,
    "reader": lambda frame, folder: arrow(frame, folder).to_reader(),
    "streamed": lambda frame, _: Streamed(frame),
    "data set": dataset,
    "Dask": lambda frame, _: dd.from_pandas(frame, npartitions=3),
    "iterator": lambda frame, _: iter([frame[:100], frame[100:]]),
    "list": lambda frame, _: [frame[:100], frame[100:]],
    "function": lambda frame, _: lambda: iter([frame[:100], frame[100:]]),
    "file": lambda frame, folder: str(parquet(frame, folder)),
    "files": files,
}


@pytest.fixture
def rows(rng: np.random.Generator) -> tuple[pd.DataFrame, pd.Series]:
    """A table with columns of every kind, and labels."""
    return small(rng, 200)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_table_gives_the_same_answer(
    kind: str, rows: tuple[pd.DataFrame, pd.Series], tmp_path: Path
) -> None:
    """Labels by name or beside; what is predicted may come in any of these kinds, with its label or without it."""
    frame, label = rows
    whole = frame.assign(answer=label)
    expected = MarginCoresetClassifier(loss="hinge", columns=SMALL).fit(whole, "answer")
    named = MarginCoresetClassifier(loss="hinge", columns=SMALL).fit(KINDS[kind](whole, tmp_path), "answer")
    beside = MarginCoresetClassifier(loss="hinge", columns=SMALL).fit(KINDS[kind](frame, tmp_path), label)
    for machine in (named, beside):
        np.testing.assert_array_equal(machine.coef_, expected.coef_)
        assert machine.feature_names_in_.tolist() == frame.columns.tolist()
        np.testing.assert_array_equal(machine.predict(frame), expected.predict(frame))
        np.testing.assert_array_equal(machine.predict(KINDS[kind](frame, tmp_path)), expected.predict(frame))
    np.testing.assert_array_equal(named.predict(KINDS[kind](whole, tmp_path)), expected.predict(frame))


def test_labels_may_come_with_batches(rows: tuple[pd.DataFrame, pd.Series]) -> None:
    """Pairs of tables and labels need no y."""
    frame, label = rows
    pairs = [(frame[:100], label[:100]), (frame[100:], label[100:])]
    machine = MarginCoresetClassifier(loss="hinge", columns=SMALL).fit(iter(pairs))
    expected = MarginCoresetClassifier(loss="hinge", columns=SMALL).fit(frame, label)
    np.testing.assert_array_equal(machine.coef_, expected.coef_)
    np.testing.assert_array_equal(machine.predict(iter(pairs)), expected.predict(frame))


def test_matrices_may_come_in_a_list(rng: np.random.Generator) -> None:
    """CSR matrices in a list or from an iterator are the rows of all of them, and so when they are predicted."""
    X, y = random_array((200, 30), density=0.2, format="csr", dtype=np.float32, rng=rng), np.arange(200) % 2
    expected = MarginCoresetClassifier(loss="hinge").fit(X, y)
    listed = MarginCoresetClassifier(loss="hinge").fit([X[:50], X[50:]], y)
    paired = MarginCoresetClassifier(loss="hinge").fit(iter([(X[:50], y[:50]), (X[50:], y[50:])]))
    for machine in (listed, paired):
        np.testing.assert_array_equal(machine.coef_, expected.coef_)
        assert machine.n_features_in_ == 30
        np.testing.assert_array_equal(machine.predict([X[:7], X[7:]]), expected.predict(X))
        np.testing.assert_array_equal(machine.predict(X), expected.predict(X))
    with pytest.raises(ValueError, match="has 29 features, but MarginCoresetClassifier is expecting 30"):
        listed.predict([X[:, :29]])


def test_lists_of_numbers_in_a_column_need_no_word() -> None:
    """A column of vectors becomes a feature for each place."""
    frame = pd.DataFrame({"v": [[0.0, 1.0], [1.0, 0.0], [0.0, 2.0], [1.0, 0.5]] * 5})
    machine = MarginCoresetClassifier(loss="hinge").fit(frame, [0, 1] * 10)
    assert machine.get_feature_names_out().tolist() == ["v[0]", "v[1]"]
    assert machine.predict(frame).tolist() == [0, 1] * 10


def test_models_of_stores_with_columns_predict_tables(rows: tuple[pd.DataFrame, pd.Series], tmp_path: Path) -> None:
    """The columns of a store are the model's; words on them are refused, they were said when it was made."""
    frame, label = rows
    coremargin.ingest(frame, tmp_path / "rows.zarr", labels=label.to_numpy(), **SMALL)
    stored = MarginCoresetClassifier(loss="hinge").fit(tmp_path / "rows.zarr")
    expected = MarginCoresetClassifier(loss="hinge", columns=SMALL).fit(frame, label)
    assert stored.feature_names_in_.tolist() == frame.columns.tolist()
    np.testing.assert_array_equal(stored.predict(frame[frame.columns[::-1]]), expected.predict(frame))
    with pytest.raises(UsageError, match="columns: a store has its own"):
        expected.fit(tmp_path / "rows.zarr")


def test_a_column_is_no_label_of_files_that_are_predicted(rows: tuple[pd.DataFrame, pd.Series], tmp_path: Path) -> None:
    """Where the model's labels had no column, the last one of a file is not taken for it when it is a feature."""
    frame, label = rows
    machine = MarginCoresetClassifier(loss="hinge", columns=SMALL).fit(frame, label)
    frame.assign(more=1)[["more", *frame.columns]].to_csv(tmp_path / "more.csv", index=False)
    with pytest.raises(DataError, match=r"other columns than those of the model: 'more' is not known;"):
        machine.predict(tmp_path / "more.csv")

"""``partial_fit`` on tables: the first batch says what columns become, as the first ingest of a store does."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import coremargin
from coremargin.errors import BadRow, DataError, LabelError, UsageError
from coremargin.estimators import MarginCoresetClassifier
from table_kit import SMALL, WORDS, mixed, small

if TYPE_CHECKING:
    import pandas as pd


@pytest.fixture
def rows(rng: np.random.Generator) -> tuple[pd.DataFrame, pd.Series]:
    """A table with numbers, categories, dates and gaps, and labels."""
    return small(rng)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "words"), [("hinge", WORDS), ("squared_hinge", {**WORDS, "text": None, "drop": "note"}), ("hinge", SMALL)]
)
def test_batches_are_a_store_that_grows(
    loss: str, words: dict[str, Any], rng: np.random.Generator, tmp_path: Path
) -> None:
    """The certificate is about the store that ingest makes of the first batch and appends the others to."""
    frame, label = small(rng) if words is SMALL else mixed(rng)
    frame.loc[350, "job"] = "pilot"  # whom the first batch does not know
    machine = MarginCoresetClassifier(loss=loss, columns=words).partial_fit(frame[:250], label[:250])
    names = machine.get_feature_names_out().tolist()
    turned = frame[frame.columns[::-1]]
    machine.partial_fit(turned[250:300], label[250:300]).partial_fit(frame[300:], label[300:])
    assert machine.get_feature_names_out().tolist() == names
    assert machine.feature_names_in_.tolist() == frame.columns.tolist()
    kept = frame.drop(columns="note") if "drop" in words else frame
    said = {name: value for name, value in words.items() if name != "drop" and value is not None}
    coremargin.ingest(kept[:250], tmp_path / "rows.zarr", labels=label[:250].to_numpy(), **said)
    coremargin.ingest(kept[250:], tmp_path / "rows.zarr", labels=label[250:].to_numpy(), append=True)
    machine.model_.save(tmp_path / "rows.model")
    assert coremargin.verify(tmp_path / "rows.model", tmp_path / "rows.zarr").ok
    np.testing.assert_array_equal(machine.predict(frame), machine.predict(tmp_path / "rows.zarr"))


@pytest.mark.slow
def test_labels_and_weights_of_batches_may_be_columns(rows: tuple[pd.DataFrame, pd.Series]) -> None:
    """By name in every batch."""
    frame, label = rows
    weights = 1.0 + np.arange(400) % 2
    whole = frame.assign(answer=label, weight=weights)
    named, beside = (MarginCoresetClassifier(columns=SMALL) for _ in range(2))
    for part in (slice(250), slice(250, 400)):
        named.partial_fit(whole[part], "answer", sample_weight="weight")
        beside.partial_fit(frame[part], label[part], sample_weight=weights[part])
    np.testing.assert_array_equal(named.coef_, beside.coef_)
    np.testing.assert_array_equal(named.predict(whole), beside.predict(frame))


def test_batches_go_on_from_a_fit_on_a_table(rows: tuple[pd.DataFrame, pd.Series]) -> None:
    """With its columns; the certificate is about all rows."""
    frame, label = rows
    machine = MarginCoresetClassifier(columns=SMALL).fit(frame[:300], label[:300])
    columns = machine.model_.columns
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.partial_fit(frame[300:], label[300:])
    assert machine.model_.rows == 400
    assert machine.model_.columns == columns
    assert machine.score(frame, label) > 0.8


def test_what_does_not_fit_the_first_batch_is_refused(rows: tuple[pd.DataFrame, pd.Series]) -> None:
    """Other columns, arrays, gaps where there were none, labels that nobody announced; all stays as it was."""
    frame, label = rows
    full = frame[frame["age"].notna() & frame["job"].notna()]
    machine = MarginCoresetClassifier(columns={**SMALL, "missing": None, "unknown": "refuse"})
    machine.partial_fit(full, label[full.index])
    before, five = machine.coef_, label[:5]
    with pytest.raises(DataError, match=r"those of the first batch: 'age' is missing \(is it 'Age' here\?\)"):
        machine.partial_fit(full[:5].rename(columns={"age": "Age"}), five)
    with pytest.raises(UsageError, match="X: expected a table with the columns of the first batch, got ndarray"):
        machine.partial_fit(np.ones((5, 4)), five)
    with pytest.raises(BadRow, match="row 1, column 'age': found no value, expected one"):
        machine.partial_fit(full[:5].assign(age=[1.0, np.nan, 2.0, 3.0, 4.0]), five)
    with pytest.raises(BadRow, match="row 0, column 'job': found 'pilot'"):
        machine.partial_fit(full[:5].assign(job="pilot"), five)
    with pytest.raises(LabelError, match="row 2: expected labels among .*, got 'maybe'"):
        machine.partial_fit(full[:5], ["yes", "no", "maybe", "no", "no"])
    with pytest.raises(LabelError, match="row 2: found no label"):
        machine.partial_fit(full[:5], ["yes", "no", None, "no", "no"])
    with pytest.raises(UsageError, match="expected labels of the rows, or the name of the column"):
        machine.partial_fit(full[:5])
    assert machine.coef_ is before
    with pytest.raises(UsageError, match=r"columns: expected \{.*\} as for the first batch, found \{\}"):
        machine.set_params(columns={}).partial_fit(full[:5], five)


def test_batches_are_tables_in_memory_and_of_one_kind(rows: tuple[pd.DataFrame, pd.Series], tmp_path: Path) -> None:
    """Files and iterators are to be given piece by piece, and words do not follow numbers."""
    frame, label = rows
    machine = MarginCoresetClassifier(columns=SMALL)
    for given in (iter([frame]), [frame], [tmp_path / "rows.csv"], str(tmp_path / "rows.csv")):
        with pytest.raises(
            UsageError, match="partial_fit: expected rows in memory, got .*; give its blocks one by one"
        ):
            clone(machine).partial_fit(given, label)
    numbers = MarginCoresetClassifier().partial_fit(frame[["age"]].fillna(0.0), label)
    with pytest.raises(UsageError, match="X: expected numbers as in the first batch, got a table with columns that"):
        numbers.partial_fit(frame, label)

"""Names of features that come from beside the rows: a vocabulary of sparse text, names of an array's columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import coremargin
from coremargin.data.ingest import ingest
from coremargin.data.store import Store
from coremargin.errors import CoremarginError, UsageError


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A vocabulary of three words and rows.svm, which goes by it."""
    (tmp_path / "words.txt").write_text("cat\ndog\nne pas\n")
    (tmp_path / "rows.svm").write_text("1 1:1 3:2\n0 2:1\n1 3:1\n0 1:2 2:2\n")
    return tmp_path / "words.txt"


def test_a_vocabulary_names_the_features_of_sparse_text(words: Path, tmp_path: Path) -> None:
    """Names go from a file into the store and its models, whose coefficients have them."""
    ingest(tmp_path / "rows.svm", tmp_path / "rows.zarr", names=words)
    columns = Store.open(tmp_path / "rows.zarr").columns
    assert columns is not None
    assert columns.names == ("cat", "dog", "ne pas")
    model = coremargin.train(tmp_path / "rows.zarr", loss="squared_hinge")
    assert model.feature_names == ("cat", "dog", "ne pas")
    ingest(tmp_path / "rows.svm", tmp_path / "rows.zarr", append=True)
    assert Store.open(tmp_path / "rows.zarr").rows == 8


def test_names_of_an_array(tmp_path: Path) -> None:
    """A list names the columns of an array."""
    ingest(np.eye(2), tmp_path / "rows.zarr", labels=[0, 1], names=["a", "b"])
    columns = Store.open(tmp_path / "rows.zarr").columns
    assert columns is not None
    assert list(columns.features) == ["a", "b"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a"], "found 1 names, expected 2, one for each feature of array"),
        (["a", "a"], "names 1 and 2 are both 'a'"),
        (["a", ""], "name 2: found 0 characters"),
        (["a", "b" * 1001], "name 2: found 1,001 characters, expected 1 to 1,000"),
    ],
)
def test_names_that_do_not_fit_are_refused(tmp_path: Path, names: list[str], message: str) -> None:
    """Each feature has one name of its own."""
    with pytest.raises(CoremarginError) as caught:
        ingest(np.eye(2), tmp_path / "rows.zarr", labels=[0, 1], names=names)
    assert message in str(caught.value)
    assert not (tmp_path / "rows.zarr").exists()


def test_names_are_for_what_has_none(words: Path, tmp_path: Path) -> None:
    """A table has names of its own, a store that is there too."""
    (tmp_path / "rows.csv").write_text("a,b,c,label\n1,2,3,0\n4,5,6,1\n")
    with pytest.raises(CoremarginError, match="its columns have names: leave --names out"):
        ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", names=words)
    ingest(tmp_path / "rows.svm", tmp_path / "rows.zarr", names=words)
    with pytest.raises(CoremarginError, match="--names cannot be combined with --append"):
        ingest(tmp_path / "rows.svm", tmp_path / "rows.zarr", names=words, append=True)


def test_a_store_keeps_what_it_is_to_say_about_itself(tmp_path: Path) -> None:
    """Rows that are appended leave it as it is, its content has the same digest, and what is no JSON is refused."""
    X, y = np.arange(4.0).reshape(2, 2), np.arange(2)
    ingest(X, tmp_path / "a.zarr", labels=y)
    ingest(X, tmp_path / "b.zarr", labels=y, about={"from": ["a", 1]})
    assert Store.open(tmp_path / "b.zarr").digest == Store.open(tmp_path / "a.zarr").digest
    ingest(X, tmp_path / "b.zarr", labels=y, append=True)
    assert Store.open(tmp_path / "b.zarr").about == {"from": ["a", 1]}
    with pytest.raises(UsageError, match="about: expected what JSON can hold"):
        ingest(X, tmp_path / "c.zarr", labels=y, about={"from": {1, 2}})

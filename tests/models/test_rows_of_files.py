"""Files that a model is asked about: messages and results name them, not where their rows lie meanwhile; weights."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np
import pytest
from sklearn.metrics import accuracy_score

import coremargin
from coremargin.data.opened import open_source
from coremargin.data.store import Store
from coremargin.errors import BadRow, DataError, LabelError, UsageError
from coremargin.models.evaluate import evaluate
from coremargin.models.predict import predict

if TYPE_CHECKING:
    from click.testing import Result

ROWS = "x,w,label\n1,2,a\n2,1,a\n7,1,b\n8,3,b\n2.5,4,b\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of x, and in the folder test.csv, one of whose five rows lies on the wrong side."""
    (tmp_path / "rows.csv").write_text("x,label\n1,a\n2,a\n7,b\n8,b\n")
    (tmp_path / "test.csv").write_text(ROWS)
    coremargin.ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", dtype="float64")
    coremargin.train(tmp_path / "rows.zarr", out=tmp_path / "m", scaling="rownorm", loss="hinge", C=1.0, epsilon=0.1)
    return tmp_path / "m"


Ask = Callable[[Path, str], Any]


def evaluated(model: Path, name: str) -> Any:
    """Ask for metrics."""
    return evaluate(model, model.with_name(name), drop=["w"])


def predicted(model: Path, name: str) -> Any:
    """Ask for predictions."""
    return predict(model, model.with_name(name), model.with_name("out.csv"), drop=["w"], overwrite=True)


@pytest.mark.parametrize("ask", [evaluated, predicted])
@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (("8,3", "1e-200,3"), BadRow, "test.csv, row 3: "),
        (("8,3", "nan,3"), BadRow, "test.csv, line 5, column 'x': "),
        (("x,w", "z,w"), DataError, "test.csv: other columns than those of the model: 'x' is missing"),
        (
            ("8,3,b", "8,3,c"),
            LabelError,
            "test.csv: has rows of class 'c', which the model does not know, the first is row 3",
        ),
        ((",b", ","), LabelError, "test.csv, line 4: found no label"),
    ],
)
def test_messages_name_the_file(
    model: Path, ask: Ask, change: tuple[str, str], error: type[Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file as it was given, with line or row, and no place where rows lie for the moment."""
    monkeypatch.chdir(model.parent)
    model.with_name("test.csv").write_text(ROWS.replace(*change))
    if ask is predicted and error is LabelError:  # nobody asks for labels there
        assert ask(Path("m"), "test.csv").rows == 5
        return
    with pytest.raises(error) as found:
        ask(Path("m"), "test.csv")
    assert str(found.value).startswith(said)
    assert tempfile.gettempdir() not in str(found.value).replace(str(model.parent), "")


def test_results_name_the_files(model: Path, run_cli: Callable[..., Result]) -> None:
    """Metrics, predictions and their JSON say which rows they are about; so do predictions in Zarr."""
    test = model.with_name("test.csv")
    assert evaluated(model, "test.csv").source == predicted(model, "test.csv").source == str(test)
    found = json.loads(run_cli("evaluate", model, test, "--drop", "w", "--json").stdout)
    assert found["source"] == str(test)
    out = model.with_name("p.zarr")
    assert json.loads(run_cli("predict", model, test, out, "--drop", "w", "--json").stdout)["source"] == str(test)
    assert json.loads((out / "zarr.json").read_text())["attributes"]["source"]["name"] == "test.csv"
    model.with_name("test2.csv").write_text(ROWS)
    assert evaluated(model, "test*.csv").source == f"2 files ({test}, ...)"
    assert evaluate(model, model.with_name("rows.zarr")).source == str(model.with_name("rows.zarr"))


def test_a_name_for_messages_goes_where_the_store_goes(model: Path) -> None:
    """Opened elsewhere by its handle, a store is called as it was here; its path is not its name."""
    path = model.with_name("rows.zarr")
    store = Store.open(path, name="rows.csv")
    twin = open_source(cloudpickle.loads(cloudpickle.dumps(store.handle())))
    assert (twin.name, twin.digest) == ("rows.csv", store.digest)
    assert open_source(path).name == str(path)
    assert cloudpickle.loads(cloudpickle.dumps(store)).name == "rows.csv"


def test_weights_of_a_file_are_told_to_evaluate(model: Path, run_cli: Callable[..., Result]) -> None:
    """A column of a file weighs its rows as a store's weights do; a store has its own."""
    weights, truth = np.array([2.0, 1, 1, 3, 4]), np.array(list("aabbb"))
    found = json.loads(run_cli("evaluate", model, model.with_name("test.csv"), "--weights", "w", "--json").stdout)
    given = coremargin.load(model).predict([[1.0], [2.0], [7.0], [8.0], [2.5]])
    assert found["weighted"]["accuracy"] == accuracy_score(truth, given, sample_weight=weights)
    assert found["weighted"]["weight"] == 11
    assert found["accuracy"] == accuracy_score(truth, given)
    with pytest.raises(UsageError, match="--weights goes with files only"):
        evaluate(model, model.with_name("rows.zarr"), weights="w")

"""Structures of the user: certificates by enumeration, agreement with chains, refusals, predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import own_structures
import pandas as pd
import pytest
from click.testing import CliRunner
from own_structures import as_chain
from structured_kit import exact_bounds, sequences, write_sequences

import coremargin
from coremargin.cli import main
from coremargin.errors import CoremarginError, DataError, UsageError
from coremargin.models.evaluate import evaluate
from coremargin.models.predict import predict

OPTIONS: dict[str, Any] = {"loss": "hinge", "C": 0.3}


@pytest.mark.parametrize(("sparse", "memory"), [(False, None), (True, 3000)])
def test_certificates_are_those_of_enumeration(tmp_path: Path, sparse: bool, memory: int | None) -> None:
    """In memory and in passes, with weights and groups without labels; a chain of the same features agrees."""
    X, y, groups = sequences(1, examples=24)
    labels: list[Any] = [["a", "b", "c"][k] for k in y]
    for row in np.flatnonzero(groups == 7):
        labels[row] = None
    weights = np.random.default_rng(0).choice([0.0, 0.5, 1.0, 3.0], 24)[groups]
    store = write_sequences(tmp_path / "s.zarr", X, labels, groups, weights, sparse=sparse)
    given: dict[str, Any] = {"cluster": "threads", "memory": memory, "epsilon": 1e-2, **OPTIONS}
    model = coremargin.train(store, structure=own_structures.Chain, out=tmp_path / "m", **given)
    found = coremargin.verify(tmp_path / "m", store, structure=own_structures.Chain)
    assert model.status == "certified"
    value, dual = exact_bounds(*as_chain(model.record, model.numbers), X, labels, groups, weights)
    claims = model.certificate
    assert claims.upper * (1 - 1e-9) <= value <= claims.upper
    assert claims.lower <= dual <= claims.lower * (1 + 1e-9)
    assert "is assumed" in found.terms
    chain = coremargin.train(store, structure="chain", **given).certificate
    assert chain.lower <= claims.upper
    assert claims.lower <= chain.upper
    run = json.loads((tmp_path / "m" / "run.json").read_bytes())
    assert (run["scans"] > 1) == (memory is not None)


def test_single_rows_are_examples_without_groups(tmp_path: Path) -> None:
    """As of outputs; predictions are those of the scores."""
    X, y, _ = sequences(3, examples=20)
    store = write_sequences(tmp_path / "s.zarr", X, y, None)
    coremargin.train(store, structure=own_structures.Chain, out=tmp_path / "m", cluster="threads", **OPTIONS)
    assert coremargin.verify(tmp_path / "m", store, structure=own_structures.Chain).ok
    model = coremargin.load(tmp_path / "m", structure=own_structures.Chain)
    table = model.numbers["weights"][:15].reshape(5, 3)
    scores = np.column_stack([X, np.ones(len(X))]) @ table
    assert np.array_equal(model.predict(X), scores.argmax(axis=1))
    assert model.decision_function(X) == pytest.approx(scores)


def test_predictions_of_files_and_of_arrays_agree(tmp_path: Path) -> None:
    """Of groups that cross chunks; evaluation counts the same labels."""
    X, y, groups = sequences(4)
    store = write_sequences(tmp_path / "s.zarr", X, y, groups)
    given: dict[str, Any] = {"cluster": "threads", "scaling": "standard", **OPTIONS}
    trained = coremargin.train(store, structure=own_structures.Chain, out=tmp_path / "m", **given)
    assert coremargin.verify(tmp_path / "m", store, structure=own_structures.Chain).ok
    labels = trained.predict(X, groups=groups)
    result = predict(tmp_path / "m", store, tmp_path / "p.csv", structure=own_structures.Chain)
    lines = (tmp_path / "p.csv").read_text().split()[1:]
    assert [int(line.split(",")[1]) for line in lines] == labels.tolist()
    assert result.rows == len(X)
    assert evaluate(tmp_path / "m", store, structure=own_structures.Chain).accuracy == float((labels == y).mean())
    with pytest.raises(UsageError, match="--structure MODULE:NAME"):
        coremargin.load(tmp_path / "m").predict(X, groups=groups)


def test_columns_of_a_table_are_found_by_name() -> None:
    """In any order; of rows and groups, numbers that differ are refused, and so are other columns."""
    X, y, groups = sequences(0)
    table = pd.DataFrame(X, columns=list("abcd"))
    model = coremargin.train(table, y, groups=groups, structure=own_structures.Chain, **OPTIONS)
    labels = model.predict(X, groups=groups)
    assert np.array_equal(model.predict(table, groups=groups), labels)
    assert np.array_equal(model.predict(table[list("dbca")], groups=groups), labels)
    assert len(model.predict(X[:0], groups=groups[:0])) == 0
    for rows, ids in ((X[:-3], groups), (X, groups[:-3])):
        with pytest.raises(UsageError, match="groups: "):
            model.predict(rows, groups=ids)
    with pytest.raises(DataError, match="give the columns that the model was trained on"):
        model.predict(table.rename(columns={"a": "z"}), groups=groups)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("Greedy", "no maximum"),
        ("Restless", "argmax returns other labels"),
        ("Beyond", "from 0 to 2"),
        ("Endless", "finite"),
        ("Outside", "expected indices from 0 to 22"),
        ("Free", "loss: expected 0 for the true labels and"),
        ("Changing", "joint returns other values"),
        ("Failing", "loss raised KeyError"),
    ],
)
def test_wrong_structures_are_refused_before_training(tmp_path: Path, wrong: str, text: str) -> None:
    """With the name of the structure and the group."""
    X, y, groups = sequences(1)
    store = write_sequences(tmp_path / "s.zarr", X, y, groups)
    with pytest.raises(UsageError, match=text) as refusal:
        coremargin.train(store, structure=getattr(own_structures, wrong), cluster="threads", **OPTIONS)
    assert f"own_structures:{wrong}" in str(refusal.value)
    assert "group" in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"loss": None, "C": None}, "needs a loss"),
        ({"ordinal": True}, "has its loss"),
        ({"intercept": False}, "has its features"),
        ({"structure": "tree"}, "expected chain, outputs or module:Name"),
        ({"structure": "own_structures:Tree"}, "has no Tree"),
        ({"structure": "own_structures:sequences"}, "has no sequences"),
        ({"structure": dict}, "the methods size, joint, argmax and loss"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], text: str) -> None:
    """In words of Python."""
    X, y, groups = sequences(1)
    with pytest.raises(CoremarginError, match=text):
        coremargin.train(X, y, groups=groups, **{"structure": own_structures.Chain, **OPTIONS, **options})


def test_a_structure_of_another_size_is_refused(tmp_path: Path) -> None:
    """Where a model is opened."""
    X, y, groups = sequences(1)
    coremargin.train(X, y, groups=groups, structure=own_structures.Chain, out=tmp_path / "m", **OPTIONS)
    with pytest.raises(UsageError, match="another structure"):
        coremargin.load(tmp_path / "m", structure=own_structures.Outside)
    with pytest.raises(UsageError, match="leave it out"):
        coremargin.train(X, y, groups=groups, structure="chain", **OPTIONS).with_structure(own_structures.Chain)


def test_what_runs_no_code_of_the_user_is_refused(tmp_path: Path) -> None:
    """Retraining, exported files and registries; no message names an option that these lack."""
    X, y, groups = sequences(1)
    store = write_sequences(tmp_path / "s.zarr", X, y, groups)
    coremargin.train(store, structure=own_structures.Chain, out=tmp_path / "m", cluster="threads", **OPTIONS)
    model, out = str(tmp_path / "m"), str(tmp_path / "out")
    for words, text in (
        (["retrain", model, str(store), "--out", out], "a model of your own structure cannot be retrained"),
        (["export", model, out], "an exported file cannot hold it"),
        (["export", model, out, "--format", "sklearn-skops"], "an exported file cannot hold it"),
        (["registry", "add", str(tmp_path / "r"), model], "cannot hold it"),
    ):
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 2
        assert text in done.output
        assert "--structure" not in done.output
    with pytest.raises(UsageError, match="coremargin.train"):
        coremargin.retrain(model, store, out=out)
    with pytest.raises(UsageError, match="an ONNX graph cannot hold it"):
        coremargin.load(model, structure=own_structures.Chain).to_onnx()

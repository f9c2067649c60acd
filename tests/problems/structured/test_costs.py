"""Costs of wrong labels: tables, taxonomies and numbers, read and refused; what they change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structured_kit import exact_bounds, sequences, write_sequences

import coremargin
from coremargin.errors import CoremarginError, DataError, LabelError, SpecError
from coremargin.maths.structures.costs import tree_costs
from coremargin.verify import verify

TABLE = "true,a,b,c\nb,2,0,1\na,0,1,5\nc,1,1,0\n"
TREE = "a,letters\nb,letters\nc,others\nletters,root\nothers,root\n"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Rows with labels a, b and c."""
    X, y, groups = sequences(1, examples=20)
    return write_sequences(tmp_path / "s.zarr", X, [["a", "b", "c"][k] for k in y], groups)


@pytest.mark.parametrize("structure", ["chain", "outputs"])
def test_costs_are_part_of_the_proof(store: Path, tmp_path: Path, structure: str) -> None:
    """Of a table and of a tree, by enumeration; a job with other costs does not take the model for its own."""
    X, y, groups = sequences(1, examples=20)
    labels: list[Any] = [["a", "b", "c"][k] for k in y]
    for name, content, expected in (
        ("costs", TABLE, [[0, 1, 5], [2, 0, 1], [1, 1, 0]]),
        ("taxonomy", TREE, [[0, 1, 2], [1, 0, 2], [2, 2, 0]]),
    ):
        (tmp_path / "file.csv").write_text(content)
        options: dict[str, Any] = {"structure": structure, "loss": "hinge", "C": 0.3, name: tmp_path / "file.csv"}
        model = coremargin.train(store, out=tmp_path / name, cluster="threads", **options)
        assert model.status == "certified"
        np.testing.assert_array_equal(model.numbers["costs"], expected)
        assert verify(tmp_path / name, store).ok
        each = groups if structure == "chain" else np.arange(len(y))
        value, dual = exact_bounds(model.record, model.numbers, X, labels, each, np.ones(len(y)))
        assert model.certificate.lower <= dual <= value <= model.certificate.upper


def test_numbers_cost_their_differences() -> None:
    """Labels 1, 2 and 4; texts are refused."""
    X, y, _ = sequences(2, examples=20)
    model = coremargin.train(X, np.array([1, 2, 4])[y], structure="outputs", loss="hinge", ordinal=True)
    np.testing.assert_array_equal(model.numbers["costs"], [[0, 1, 3], [1, 0, 2], [3, 2, 0]])
    with pytest.raises(LabelError, match="ordinal: expected labels that are numbers, found 'x0'"):
        coremargin.train(X, [f"x{k}" for k in y], structure="outputs", loss="hinge", ordinal=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "found no line"),
        ("true,a,b\na,0,1\nb,1,0\n", "lack 'c'"),
        ("true,a,b,c\na,0,1,1\nb,1,0,1\n", "lack 'c'"),
        ("true,a,b,c\na,0,1\n", "line 2: expected 3 costs"),
        ("true,a,b,c\na,0,1,x\n", "line 2: expected numbers"),
        ("true,a,b,c\na,0,1,nan\nb,1,0,1\nc,1,1,0\n", "found nan"),
        ("true,a,b,c\na,0,1,-1\nb,1,0,1\nc,1,1,0\n", "found -1"),
        ("true,a,b,c\na,3,1,1\nb,1,0,1\nc,1,1,0\n", "0 for the true label, found 3"),
        ("true,a,b,c\na,0,0,0\nb,0,0,0\nc,0,0,0\n", "expected costs above 0"),
        ("true,a,b,c\na,0,1,1\na,0,1,1\n", "line 3: 'a' has a line already"),
        ("true,a,a,c\na,0,1,1\n", "line 1: expected different labels"),
    ],
)
def test_tables_that_are_none_are_refused(store: Path, tmp_path: Path, content: str, message: str) -> None:
    """With file, line, and what was expected."""
    (tmp_path / "costs.csv").write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        coremargin.train(store, structure="chain", loss="hinge", costs=tmp_path / "costs.csv", cluster="threads")
    assert "costs.csv" in str(caught.value)


def test_trees_that_are_none_are_refused(store: Path, tmp_path: Path) -> None:
    """Circles, two roots, missing labels, lines of three cells; and two options about costs."""
    for content, message in (
        ("a,r\nb,r\n", "no line has 'c'"),
        ("a,r\nb,r\nc,q\n", "no common root"),
        ("a,r\nb,r\nc,q\nq,c\n", "is above itself"),
        ("a,r,s\n", "line 1: expected a node and the node above it"),
        ("a,r\na,s\n", "line 2: 'a' has a node above it already"),
    ):
        (tmp_path / "tree.csv").write_text(content)
        with pytest.raises(DataError, match=message):
            coremargin.train(
                store, structure="outputs", loss="hinge", taxonomy=tmp_path / "tree.csv", cluster="threads"
            )
    with pytest.raises(SpecError, match="cannot be combined"):
        coremargin.train(store, structure="outputs", loss="hinge", taxonomy=tmp_path / "tree.csv", ordinal=True)
    with pytest.raises(CoremarginError, match=r"none\.csv"):
        coremargin.train(store, structure="outputs", loss="hinge", costs=tmp_path / "none.csv", out=tmp_path / "m")


def test_a_label_may_lie_above_others() -> None:
    """Half of the edges between two nodes, whatever their depth."""
    costs = tree_costs(["a", "b", "r"], {"a": "b", "b": "r"})
    np.testing.assert_array_equal(costs, [[0, 0.5, 1], [0.5, 0, 0.5], [1, 0.5, 0]])

"""What ``info`` and ``show`` say of the columns that rows came from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import coremargin
from coremargin.formats.column_kinds import Categories, Dates, Hashed, Lists, Numbers, Texts
from coremargin.formats.columns import ColumnsRecord
from coremargin.report.columns import column_lines, columns_json

if TYPE_CHECKING:
    from click.testing import Result

RunCli = Callable[..., "Result"]


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store of a table with columns of several kinds and a gap, and a model of it."""
    folder = tmp_path_factory.mktemp("columns")
    rows = [f"{age},{job},1.5,{label}" for age, job, label in ((20, "a", 0), ("", "b", 0), (50, "a", 1), (60, "b", 1))]
    (folder / "rows.csv").write_text("\n".join(["age,job,w,label", *rows]) + "\n")
    coremargin.ingest(folder / "rows.csv", folder / "s.zarr", weights="w", categorical="job", missing="median")
    coremargin.train(folder / "s.zarr", out=folder / "m", loss="hinge")
    return folder / "s.zarr", folder / "m"


def test_info_and_show_list_the_columns(run_cli: RunCli, people: tuple[Path, Path]) -> None:
    """Name, kind, number of features, what stands for a gap; where labels and weights came from."""
    for command, path in zip(("info", "show"), people, strict=True):
        lines = run_cli(command, path).stdout.splitlines()[-5:]
        assert lines[0].split() == ["column", "holds", "features"]
        assert lines[1].split() == ["age", "numbers", "1", "missing:", "50"]
        assert lines[2].split()[:4] == ["job", "categories", "2", "'a',"]
        assert [line.split() for line in lines[3:]] == [["label", "labels"], ["w", "weights"]]
        found = json.loads(run_cli(command, path, "--json").stdout)
        assert found["columns"][0] == {"features": 1, "kind": "number", "name": "age", "fill": 50.0}
        assert (found["label_column"], found["weights_column"], found["columns_named"]) == ("label", "w", True)


def test_rows_without_columns_have_no_table(run_cli: RunCli, tmp_path: Path) -> None:
    """Of an array nothing is listed, and JSON says null."""
    coremargin.ingest(np.eye(2), tmp_path / "s.zarr", labels=[0, 1])
    assert "column  " not in run_cli("info", tmp_path / "s.zarr").stdout
    assert json.loads(run_cli("info", tmp_path / "s.zarr", "--json").stdout)["columns"] is None


def test_every_kind_of_column_is_told() -> None:
    """Each kind says in a few words what it became; long values are cut, and what is not printable is spelled out."""
    record = ColumnsRecord(
        columns=[
            Numbers(name="n", fill=0.5, indicator=True), Numbers(name="b", boolean=True), Lists(name="l", length=3),
            Categories(name="c", values=["a", "b" * 30, "\x1b", "d", "e", "f"], other=True, missing=True),
            Categories(name="r", values=["a"], refuse=True, fill="a"), Hashed(name="h", buckets=1024, missing=True),
            Dates(name="d", format="%d/%m/%Y", time=True, fill=0.0), Dates(name="e", fill=1e300),
            Texts(name="t", buckets=2, ngrams=2, rows=1, frequencies=[1, 1]), Texts(name="u", buckets=2),
        ]
    )  # fmt: skip
    told = {line.split()[0]: " ".join(line.split()[1:]) for line in column_lines(record)[2:]}
    values = f"'a', '{'b' * 23}\u2026', '\\x1b', 'd'"
    assert told == {
        "n": "numbers 2 missing: 0.5; a feature for missing values",
        "b": "numbers 1 true or false",
        "l": "lists of numbers 3",
        "c": f"categories 8 {values} and 2 more; a feature for other values; a feature for missing values",
        "r": "categories 1 'a'; other values are refused; missing: 'a'",
        "h": "categories, hashed 1,025 a feature for missing values",
        "d": "dates 12 %d/%m/%Y with times; missing: 1970-01-01 00:00",
        "e": "dates 10 ISO 8601; missing: 1e+300 s",
        "t": "text 2 words and n-grams of up to 2; tf-idf weights",
        "u": "text 2 words",
    }


def test_of_many_columns_the_first_are_listed() -> None:
    """Twenty lines, how many more there are, then the labels; JSON has all."""
    record = ColumnsRecord(columns=[Numbers(name=f"c{k}") for k in range(1200)], label="y")
    lines = column_lines(record)
    assert [line.split()[0] for line in lines[2:22]] == [f"c{k}" for k in range(20)]
    assert lines[22:] == ["  ... and 1,180 more; --json has all", "  y       labels"]
    assert len(columns_json(record)["columns"]) == 1200

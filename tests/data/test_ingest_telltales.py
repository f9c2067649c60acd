"""Columns that give the labels away, or number the rows, are named whatever the source; others are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_array

import coremargin
from coremargin.data.ingest import ingest
from coremargin.errors import ColumnsUnclear, DataWarning

if TYPE_CHECKING:
    from click.testing import Result

ROWS = 300
RNG = np.random.default_rng(8)
LABELS = RNG.choice(["p", "q", "s"], ROWS)
CODES = np.unique(LABELS, return_inverse=True)[1]
FRAME = pd.DataFrame({
    "a": RNG.normal(size=ROWS),
    "code": CODES * 3 - 1,
    "word": [f"is {one}" for one in LABELS],
    "is_p": (LABELS == "p").astype(int),
    "nearly": np.where(np.arange(ROWS) == 250, 7, CODES),
    "constant": 1,
    "id": np.arange(ROWS) + 5,
    "few": RNG.integers(0, 3, ROWS),
    "label": LABELS,
})  # fmt: skip


def named(warnings: tuple[str, ...]) -> list[str]:
    """The columns that are named, in order."""
    return [text.split("'")[1] for text in warnings]


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame", "arrow", "batches"])
def test_copies_of_the_label_are_named(tmp_path: Path, kind: str) -> None:
    """Copies as numbers and words, and indicators; neither what differs in one row nor what is constant."""
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    pq.write_table(pa.Table.from_pandas(FRAME, preserve_index=False), tmp_path / "rows.parquet")
    sources: dict[str, Any] = {
        "csv": tmp_path / "rows.csv",
        "parquet": tmp_path / "rows.parquet",
        "frame": FRAME,
        "arrow": pa.Table.from_pandas(FRAME, preserve_index=False),
        "batches": [FRAME[:100], FRAME[100:]],
    }
    report = ingest(sources[kind], tmp_path / "rows.zarr", label="label", categorical="word")
    assert named(report.warnings) == ["code", "word", "is_p", "id"]
    assert "'code' has another value for each class" in report.warnings[0]
    assert "'is_p' has one value throughout each class" in report.warnings[2]
    assert "'id' counts the rows (5, 6, ...)" in report.warnings[3]


def test_sorted_labels_hide_nothing(tmp_path: Path) -> None:
    """Where classes come one after the other, a column is judged by all of them."""
    frame = FRAME.sort_values("label").drop(columns=["word", "id"])
    report = ingest(frame, tmp_path / "rows.zarr", label="label", chunk_bytes=4096)
    assert named(report.warnings) == ["code", "is_p"]


@pytest.mark.parametrize("sparse", [False, True])
def test_arrays_go_by_number(tmp_path: Path, sparse: bool) -> None:
    """Arrays and sparse matrices with labels beside them."""
    X = np.column_stack([FRAME["few"], CODES, FRAME["a"]])
    report = ingest(csr_array(X) if sparse else X, tmp_path / "rows.zarr", labels=LABELS)
    assert named(report.warnings) == ["1"]


def test_no_command_is_suggested_that_trains_on_a_copy(tmp_path: Path) -> None:
    """A column of words that are one for each class is to be left out; others may be categories."""
    words = FRAME[["word", "label"]].assign(city=RNG.choice(["u", "v"], ROWS), n=FRAME["a"])
    words[["n", "city", "word", "label"]].to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(ColumnsUnclear, match="one for each class, as a copy of the label has") as caught:
        ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr")
    assert caught.value.options == ("--categorical", "city", "--drop", "word")


def test_few_rows_say_nothing(tmp_path: Path) -> None:
    """In a handful of rows any column may look like a copy."""
    report = ingest(FRAME[:6], tmp_path / "rows.zarr", label="label", categorical="word")
    assert report.warnings == ()


def test_labels_that_are_no_classes_are_named(tmp_path: Path) -> None:
    """Coordinates called y, and names of rows, are different in nearly every row."""
    frame = pd.DataFrame(
        {"x": np.arange(40) % 7, "y": np.random.default_rng(0).normal(size=40), "kind": list("ab" * 20)}
    )
    report = ingest(frame.drop(columns="kind"), tmp_path / "rows.zarr")
    assert report.warnings[0].startswith("the labels from column 'y' are 40 different ones in 40 rows")
    ids = tmp_path / "ids.txt"
    ids.write_text("".join(f"{row},{row % 2}\n" for row in range(40)))
    report = ingest(frame[["x"]], tmp_path / "ids.zarr", labels=ids)
    assert report.warnings[0].startswith(f"the labels from {ids} are 40 different ones")
    report = ingest(frame[["x", "kind"]], tmp_path / "kind.zarr", label="kind")
    assert not any("different ones" in warning for warning in report.warnings)


def test_warnings_stand_where_people_look(tmp_path: Path, run_cli: Callable[..., Result]) -> None:
    """In the report of ``ingest``, in its JSON, in what ``train`` prints, quiet or not, and as warnings of Python."""
    path = tmp_path / "rows.csv"
    FRAME.loc[FRAME["label"] != "s", ["a", "code", "label"]].to_csv(path, index=False)
    said = "warning: column 'code' has another value for each class"
    assert said in run_cli("ingest", path, tmp_path / "one.zarr").stdout
    assert '"warnings": ["column \'code\' has' in run_cli("ingest", path, tmp_path / "two.zarr", "--json").stdout
    assert said in run_cli("train", path, "--out", tmp_path / "a.model", "--loss", "hinge", "--time-limit", "60").stdout
    quiet = run_cli("train", path, "--out", tmp_path / "b.model", "--loss", "hinge", "--json")
    assert said in quiet.stderr
    assert said not in quiet.stdout
    with pytest.warns(DataWarning, match="column 'code' has another value for each class"):
        coremargin.train(path, loss="hinge", columns={})

"""Predictions as tables in text, and how the name of an output says its format."""

from __future__ import annotations

import csv
import json
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from coremargin.data.arrays import ArraySource
from coremargin.errors import UsageError
from coremargin.models import predict as predict_module
from coremargin.models.predict import FORMATS, open_predictions, predict
from coremargin.models.predictions.common import Subject
from model_kit import plane

if TYPE_CHECKING:
    from coremargin.models.model import Model

KEYS = ["row", "label", "code", "decision"]


def model_of(classes: tuple[Any, Any]) -> Model:
    """The plane between -1 and 1 of the first feature."""
    return plane(np.array([1.0, 0.0]), 0.0, classes)


#: Sides by the first feature; decision values of many digits, of an exponent, and next to zero.
ROWS = np.array([[0.1, 0], [-1 / 3, 0], [1e300, 0], [-5e-324, 0], [2.0, 0]])
CLASSES = [("no", "yes"), (3, 2**63), (False, True), (0.1, 1e300), ('a "b", c', "two\nlines\r"), ("", " zero\0\u2028")]


@pytest.mark.parametrize("classes", CLASSES)
def test_csv_is_read_back_to_the_bit(tmp_path: Path, classes: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A header and a line a row: any CSV reader has labels as they are, and decision values to the bit."""
    monkeypatch.setattr(predict_module, "_BATCH_ROWS", 2)
    model = model_of(classes)
    predict(model, ArraySource(ROWS, chunk_rows=1), tmp_path / "p.csv")
    with (tmp_path / "p.csv").open(encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)
    assert header == KEYS
    assert [int(line[0]) for line in lines] == list(range(5))
    assert [line[1] for line in lines] == [str(label) for label in model.predict(ROWS).tolist()]
    assert [int(line[2]) for line in lines] == [1, 0, 1, 0, 1]
    assert [float(line[3]) for line in lines] == model.decision_function(ROWS).tolist() == ROWS[:, 0].tolist()


@pytest.mark.parametrize("classes", CLASSES)
def test_jsonl_is_read_back_to_the_bit(tmp_path: Path, classes: tuple[Any, Any]) -> None:
    """A JSON object a row, with labels of their kind and decision values to the bit."""
    model = model_of(classes)
    predict(model, ArraySource(ROWS, chunk_rows=2), tmp_path / "p.JSONL")
    found = [json.loads(line) for line in (tmp_path / "p.JSONL").read_text(encoding="utf-8").split("\n")[:-1]]
    assert [list(row) for row in found] == [KEYS] * 5
    expected = zip(model.predict(ROWS).tolist(), [1, 0, 1, 0, 1], ROWS[:, 0].tolist(), strict=True)
    assert [tuple(row.values()) for row in found] == [(row, *values) for row, values in enumerate(expected)]
    assert {type(row["label"]) for row in found} == {type(classes[0])}


@pytest.mark.parametrize("name", ["p.txt", "p.csv.gz", "p.v2", "p.xlsx"])
def test_other_endings_are_refused(tmp_path: Path, name: str) -> None:
    """A name with another ending is refused with the four that there are, before any row or folder."""
    with pytest.raises(UsageError, match=r"NAME.parquet, NAME.csv, NAME.jsonl, NAME.zarr, or a name without.*found"):
        predict(model_of(("a", "b")), ArraySource(ROWS), tmp_path / "folder" / name)
    assert list(tmp_path.iterdir()) == []


def test_a_name_without_ending_is_a_zarr_group(tmp_path: Path) -> None:
    """What has no ending, or .zarr, is a folder; the other formats are files."""
    pytest.importorskip("pyarrow")
    for ending in FORMATS:
        predict(model_of(("a", "b")), ArraySource(ROWS), tmp_path / f"p{ending}")
        assert (tmp_path / f"p{ending}").is_dir() == (ending in ("", ".zarr"))


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("p.csv", b""), ("p.csv", b"row,label,code\n0,a,0\n"), ("p.csv", b"row,label,code,decision,mine\n"),
        ("p.csv", b"row,label,code,decision"), ("p.csv", b"row,label,code,decision\r\n0,a,0,1.0\r\n"),
        ("p.jsonl", b""), ("p.jsonl", b"[]\n"), ("p.jsonl", b"{" * 100_000), ("p.jsonl", b'{"row": 0}\n'),
        ("p.jsonl", b'{"row": 0, "label": "a", "code": 0, "decision": 1.0, "mine": 1}\n'), ("p.jsonl", b"\xff\n"),
        ("p.jsonl", b'{"label": "a", "row": 0, "code": 0, "decision": 1.0}\n'),
    ],
)  # fmt: skip
def test_text_of_somebody_else_is_not_replaced(tmp_path: Path, name: str, theirs: bytes) -> None:
    """Only a file that begins as ours do is replaced by --overwrite; any other stays as it is."""
    out = tmp_path / name
    out.write_bytes(theirs)
    with pytest.raises(UsageError, match="expected a file of predictions or nothing, found something else: other data"):
        predict(model_of(("a", "b")), ArraySource(ROWS), out, overwrite=True)
    assert out.read_bytes() == theirs
    out.unlink()
    predict(model_of(("a", "b")), ArraySource(ROWS), out)
    predict(model_of(("c", "d")), ArraySource(ROWS), out, overwrite=True)
    assert "c" in out.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["p.csv", "p.jsonl"])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, name: str) -> None:
    """Ten times the rows take no more memory to write."""

    def peak(batches: int) -> int:
        codes, decisions = np.zeros(5000, np.int32), np.linspace(0, 1, 5000)
        tracemalloc.start()
        about = Subject(model_of(("a", "b")), ArraySource(ROWS))
        with open_predictions(tmp_path / f"{batches}{name}", about, overwrite=False) as sink:
            for _ in range(batches):
                sink.write(codes, decisions)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(1)
    assert peak(40) < 1.5 * peak(4)

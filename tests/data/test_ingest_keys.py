"""Keys from a column of a table: the same from every kind of table, each row's own, or refused with its place."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from coremargin.data.amend import remove_rows
from coremargin.data.check import check_store
from coremargin.data.corrections import read_corrections
from coremargin.data.ingest import ingest
from coremargin.data.sources.base import AscendingNumbers
from coremargin.data.store import Store
from coremargin.errors import BadRow, DataError, UsageError
from coremargin.learn.api import train
from coremargin.models.evaluate import evaluate
from coremargin.models.registry import load
from keys_kit import found

Refused = Callable[..., str]
Text = Callable[[str, str | bytes], Path]

KEYS = ["17", "A-1", "3.0", "007", "-4", "Ärger", "1e3", "0"]
ASKED = [17, "A-1", 3, "007", -4, "Ärger", "1e3", 0.0]
ROWS = [(0.5 * number, 1.0 - number, "ab"[number % 2]) for number in range(8)]


def frame(keys: Any = KEYS) -> pd.DataFrame:
    """A table with keys between its other columns."""
    return pd.DataFrame({
        "x": [x for x, _, _ in ROWS], "order": keys, "z": [z for _, z, _ in ROWS], "label": [y for *_, y in ROWS],
    })  # fmt: skip


def table(keys: Any = KEYS) -> pa.Table:
    """The same as one of Arrow."""
    return pa.Table.from_pandas(frame(keys), preserve_index=False)


def csv(tmp_path: Path, content: pd.DataFrame | None = None, name: str = "t.csv", **options: Any) -> Path:
    """The same as a file."""
    (frame() if content is None else content).to_csv(tmp_path / name, index=False, **options)
    return tmp_path / name


def written(tmp_path: Path, kind: str) -> Any:
    """The table as a source of some kind."""
    path = csv(tmp_path)
    if kind == "Parquet":
        parquet.write_table(table(), tmp_path / "t.parquet", row_group_size=3)
        return tmp_path / "t.parquet"
    if kind == "blank lines":
        path.write_text(path.read_text().replace("\n", "\n\n"))
    if kind == "padded":
        path.write_text(path.read_text().replace(",", " , "))
    if kind == "tabs":
        csv(tmp_path, sep="\t")
    return {
        "pandas": frame(), "Arrow": table(),
        "categories": frame().astype({"order": "category"}), "batches": [frame()[:3], frame()[3:3], frame()[3:]],
        "iterator": iter([frame()[:3], frame()[3:]]), "function": lambda: iter([table()]),
    }.get(kind, path)  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    ["CSV", "blank lines", "padded", "tabs", "Parquet", "pandas", "Arrow", "categories", "batches",
     "iterator", "function"],
)  # fmt: skip
@pytest.mark.parametrize("words", [{}, {"missing": "mean"}], ids=["numbers", "looked at"])
def test_every_kind_of_table(tmp_path: Path, kind: str, words: dict[str, Any]) -> None:
    """A column of keys is no feature, and each key finds its row, whatever the table is and however it is read."""
    report = ingest(written(tmp_path, kind), tmp_path / "s.zarr", label="label", key="order", **words)
    store = Store.open(tmp_path / "s.zarr")
    assert (report.features, report.key_from) == (2, "order")
    assert store.columns is not None
    assert (store.columns.names, store.columns.key, store.columns.label) == (("x", "z"), "order", "label")
    assert found(store, ASKED) == list(range(8))
    assert found(store, ["7", "1000", "x"]) == [-1] * 3
    assert store.rows_at(np.arange(8))[0].tolist() == [[x, z] for x, z, _ in ROWS]
    assert check_store(store.path).whole


@pytest.mark.parametrize(
    "keys",
    [
        np.arange(8, dtype=np.uint8), np.arange(8, dtype=np.int64), np.arange(8.0),
        [Decimal(number) for number in range(8)], [f"{number}.0" for number in range(8)],
    ],
)  # fmt: skip
def test_whole_numbers_of_every_type(tmp_path: Path, keys: Any) -> None:
    """Whole numbers are the same keys whatever type a table has for them."""
    ingest(frame(keys), tmp_path / "s.zarr", key="order")
    assert found(Store.open(tmp_path / "s.zarr"), [*range(8), 8]) == [*range(8), -1]


def test_large_numbers_keep_their_digits(tmp_path: Path) -> None:
    """Keys that differ in the last digit of 64 bits are two, from integers and from text alike."""
    keys = [2**63 - 1 - number for number in range(8)]
    for name, source in (("a", frame(keys)), ("b", csv(tmp_path, frame(keys)))):
        ingest(source, tmp_path / f"{name}.zarr", key="order")
        assert found(Store.open(tmp_path / f"{name}.zarr"), keys) == list(range(8))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([*KEYS[:6], None, "8"], "DataFrame, row 6, column 'order': found no key, expected one for every row"),
        ([*KEYS[:6], "  ", "8"], "DataFrame, row 6, column 'order': found no key"),
        (
            [*map(float, range(7)), 0.5],
            "DataFrame, row 7, column 'order': found 0.5, expected a whole number or a text",
        ),
        ([*map(float, range(7)), 1e300], "DataFrame, row 7, column 'order': found 1e.300, expected a whole number"),
        ([*map(float, range(7)), np.inf], "DataFrame, row 7, column 'order': found inf, expected a whole number"),
        ([*map(float, range(7)), np.nan], "DataFrame, row 7, column 'order': found no key"),
        ([*KEYS[:7], "17.0"], "DataFrame, row 7, column 'order': found the key of DataFrame, row 0, expected one"),
        ([Decimal("0.5")] * 8, "DataFrame, row 0, column 'order': found Decimal"),
    ],
)
def test_keys_that_are_none(tmp_path: Path, refused: Refused, keys: Any, message: str) -> None:
    """No key, no whole number, one that another row has: refused with row and column, in a frame and in text alike."""
    assert re.search(message, refused(frame(keys), BadRow, label="label", key="order"))


@pytest.mark.slow
def test_keys_of_text_that_are_none(refused: Refused, text: Text) -> None:
    """In a text both lines are told, also across blank lines, batches and files; what stands for nothing is no key."""
    head = "order,x,label\n"
    for line in ("na", "", '""', "NaN", "?"):
        place = "t.csv, line 3, column 'order': found no key, expected one for every row"
        assert place in refused(text("t.csv", f"{head}1,1,a\n{line},2,b\n"), key="order")
        words = {"categorical": "q", "key": "order", "label": "label"}
        assert place in refused(text("t.csv", f"order,x,q,label\n1,1,u,a\n{line},2,v,b\n"), **words)
    twice = refused(text("t.csv", f"{head}1,1,a\n\n\n2,2,b\n+1.00,3,b\n"), key="order")
    assert twice.startswith("t.csv, line 6, column 'order': found the key of t.csv, line 2, expected one of its own")
    files = [text("a.csv", f"{head}1,1,a\n\n2,2,b\n"), text("b.csv", "x,label,order\n1,a,3\n1,a,2.0\n")]
    assert "b.csv, line 3, column 'order': found the key of a.csv, line 4" in refused(files, key="order")
    many = "".join(f"{number},{number % 7},{'ab'[number % 2]}\n" for number in range(300_000))
    assert "line 300002, column 'order': found the key of t.csv, line 9" in refused(
        text("t.csv", f"{head}{many}7,0,a\n"), key="order"
    )
    only = refused(text("t.csv", f"{head}1,1,a\n2,2,b\n3,2,b\n4,2,a\n2,3,b\n"), key="order", only="b")
    assert only.startswith("t.csv, line 6, column 'order': found the key of t.csv, line 3")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "x1"}, "no column named 'x1'"),
        ({"key": "z", "label": "z"}, "column 'z' is dropped, or is the label or the weight: choose one"),
        ({"key": "order", "drop": "order"}, "column 'order' is dropped, or is the label or the weight"),
        ({"key": "order", "weights": "order"}, "column 'order' is dropped, or is the label or the weight"),
        ({"key": "order", "categorical": "order"}, "column 'order' is no feature"),
    ],
)
def test_columns_that_cannot_be_keys(refused: Refused, options: dict[str, Any], message: str) -> None:
    """One that is not there, or is something else."""
    assert message in refused(frame(), UsageError, **{"label": "label", **options})


@pytest.mark.parametrize("name", ["row", "label", "weight"])
def test_names_that_mean_something_else(refused: Refused, name: str) -> None:
    """Tables of corrections have columns row, label and weight: none of these can be the key."""
    message = refused(frame().rename(columns={"order": name, "label": "y"}), UsageError, label="y", key=name)
    assert f"column {name!r} cannot be the key" in message


@pytest.mark.parametrize(
    "keys",
    [[True, False] * 4, pd.date_range("2026-01-01", periods=8), [[1]] * 8, [b"a"] * 8],
    ids=["booleans", "dates", "lists", "bytes"],
)
def test_types_that_are_no_keys(refused: Refused, keys: Any) -> None:
    """What is neither number nor text is refused by its type."""
    message = refused(frame(keys), UsageError, label="label", key="order")
    assert "column 'order': found type" in message
    assert "expected whole numbers or texts as the rows' keys; convert it" in message


@pytest.mark.parametrize("kind", ["array", "npy", "svmlight", "sparse", "batches"])
def test_sources_without_columns(tmp_path: Path, text: Text, refused: Refused, kind: str) -> None:
    """Arrays and sparse text have nothing but features: a key is refused, with the reason."""
    import scipy.sparse

    array = np.ones((4, 2))
    np.save(tmp_path / "a.npy", array)
    sources = {
        "array": array, "npy": tmp_path / "a.npy", "svmlight": text("a.svm", "1 1:2\n2 1:3\n"),
        "sparse": scipy.sparse.csr_array(array), "batches": [array, array],
    }  # fmt: skip
    options = {} if kind == "svmlight" else {"unlabelled": True}
    message = refused(sources[kind], UsageError, key="order", **options)
    assert "which has no columns but features: leave it out" in message


def test_appends_find_the_keys(tmp_path: Path, text: Text) -> None:
    """By the store's name of the column, whatever the order; without it, with one of the store's keys, they are
    refused, and another name may be said.
    """  # fmt: skip
    path = tmp_path / "s.zarr"
    ingest(csv(tmp_path), path, key="order")
    ingest(text("b.csv", "label,order,z,x\na,B-1,1,2\nb,18,3,4\n"), path, append=True)
    ingest(pd.DataFrame({"order": [19], "x": [1.0], "z": [2.0], "label": ["a"]}), path, append=True)
    ingest(text("c.csv", "label,number,z,x\na,20,1,2\n"), path, append=True, key="number")
    store = Store.open(path)
    assert found(store, [*ASKED, "B-1", 18, 19, 20]) == list(range(12))
    assert store.rows_at(np.array([8]))[0].tolist() == [[2.0, 1.0]]
    for content, kind, message in (
        ("label,z,x\na,1,2\n", DataError, "found no column 'order', which holds the keys: the columns are"),
        (
            "label,order,z,x\na,21,1,2\nb,18.0,3,4\n",
            BadRow,
            r"line 3, column 'order': found the key of row 9 of .*s.zarr",
        ),
        ("label,order,z,x\na,21,1,2\nb,,3,4\n", BadRow, "line 3, column 'order': found no key"),
    ):
        with pytest.raises(kind, match=message):
            ingest(text("d.csv", content), path, append=True)
    assert Store.open(path).digest == store.digest
    ingest(csv(tmp_path), tmp_path / "p.zarr", drop="order")
    with pytest.raises(UsageError, match="its rows have no keys: leave --key out"):
        ingest(csv(tmp_path), tmp_path / "p.zarr", append=True, key="order")
    assert check_store(path).whole


@pytest.mark.parametrize("at", [0, 1, 3])
def test_columns_without_names(tmp_path: Path, at: int) -> None:
    """Keys lie in a column that has a number only: appends find them there, predictions set it aside."""
    rng = np.random.default_rng(at)
    x = rng.normal(size=(60, 2))
    table = pd.DataFrame({"x": x[:, 0], "z": x[:, 1], "label": np.where(x[:, 0] > 0, "u", "v")})
    table.insert(at, "order", np.arange(60))
    full = csv(tmp_path, table[:40], "a.csv", header=False)
    label = list(table).index("label")
    ingest(full, tmp_path / "s.zarr", key=at, label=label, header=False)
    ingest(csv(tmp_path, table[40:], "b.csv", header=False), tmp_path / "s.zarr", append=True)
    store = Store.open(tmp_path / "s.zarr")
    assert found(store, range(60)) == list(range(60))
    np.testing.assert_allclose(store.rows_at(np.arange(60))[0], x, rtol=1e-6)
    (tmp_path / "gone.csv").write_text("key\n7\n59\n")
    assert remove_rows(store.path, keys=read_corrections(tmp_path / "gone.csv", store, None).keys).removed == 2
    train(store, out=tmp_path / "m")
    assert evaluate(tmp_path / "m", full).accuracy == 1.0


def test_models_need_no_keys(tmp_path: Path) -> None:
    """Rows are predicted and evaluated with the column of keys and without; stores are made with a model's columns."""
    x = np.random.default_rng(3).normal(size=(60, 2))
    table = pd.DataFrame({"order": np.arange(60), "x": x[:, 0], "z": x[:, 1], "y": np.where(x[:, 0] > 0, "u", "v")})
    ingest(table, tmp_path / "s.zarr", key="order")
    train(tmp_path / "s.zarr", out=tmp_path / "m")
    model = load(tmp_path / "m")
    assert model.columns is not None
    assert model.columns.key == "order"
    features = table[["z", "x"]]
    expected = model.decision_function(features)
    for given in (table, table.drop(columns="y"), table.drop(columns="order")):
        np.testing.assert_array_equal(model.decision_function(given), expected)
    for name, given in (("a", table), ("b", table.drop(columns="order"))):
        assert evaluate(tmp_path / "m", csv(tmp_path, given, f"{name}.csv")).accuracy == 1.0
        ingest(tmp_path / f"{name}.csv", tmp_path / f"{name}.zarr", columns=model.columns, columns_of="the model")
        made = Store.open(tmp_path / f"{name}.zarr")
        assert made.columns is not None
        assert made.columns.key is None
        assert evaluate(model, made).accuracy == 1.0
    ingest(tmp_path / "a.csv", tmp_path / "c.zarr", columns=model.columns, key="order")
    assert found(Store.open(tmp_path / "c.zarr"), [7]) == [7]


MEASURE = """
import os, sys, time
import numpy as np, pyarrow as pa
from coremargin.data.ingest import ingest
from coremargin.data.amend import remove_rows
from coremargin.engine.task import high_water_bytes
import pyarrow.compute, pyarrow.ipc

def batches(rows):
    for start in range(0, rows, 50_000):
        numbers = np.arange(start, start + 50_000)
        yield pa.table({"order": numbers * 7, "x": numbers % 5, "label": numbers % 2})

start, before = high_water_bytes(os.getpid()), time.process_time()
ingest(batches(int(sys.argv[1])), sys.argv[2], label="label", key="order")
spent = time.process_time() - before
remove_rows(sys.argv[2], keys=range(0, 7_000_000, 700))
print(spent, time.process_time() - before - spent, high_water_bytes(os.getpid()) - start)
"""


@pytest.mark.slow
def test_millions_of_keys(tmp_path: Path) -> None:
    """A million keys come within seconds of one core, ten thousand of them are found in a moment, and twice
    as many need no more memory than what batches differ by.
    """  # fmt: skip

    def measured(rows: int) -> list[float]:
        command = [sys.executable, "-c", MEASURE, str(rows), str(tmp_path / f"{rows}.zarr")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [float(word) for word in done.stdout.split()]

    seconds, looked, _ = measured(1_000_000)
    assert seconds < 10
    assert looked < 2
    peaks = [measured(rows)[2] for rows in (5_000_000, 10_000_000)]
    assert peaks[1] < peaks[0] + 50 * 2**20


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 1.0])
def test_ascending_numbers(share: float) -> None:
    """Numbers of lines are those of a list, at every place, in a bit each."""
    there = np.random.default_rng(1).random(20_000) < share
    numbers, expected = AscendingNumbers(7, there), (np.flatnonzero(there) + 7).tolist()
    assert len(numbers) == len(expected)
    assert list(numbers) == expected
    assert [numbers[at] for at in range(0, len(expected), 17)] == expected[::17]
    assert numbers[-3:] == expected[-3:]
    with pytest.raises(IndexError):
        numbers[len(expected)]

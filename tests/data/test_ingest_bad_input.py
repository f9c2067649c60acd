"""Bad input ends with a message that names the place, what was found, what was expected and what to do."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coremargin.data.ingest import ingest
from coremargin.data.store import Store
from coremargin.errors import (
    BadRow,
    ColumnsUnclear,
    CoremarginError,
    DataError,
    LabelError,
    NoRows,
    OutputError,
    StoreError,
    UsageError,
)

Refused = Callable[..., str]


Text = Callable[[str, "str | bytes"], Path]

NUMBER = (
    "expected a number, as the values before it are; correct the value, or say what becomes of the column with --drop "
    "or --categorical"
)
FIELDS = "expected 3 as in the first line; correct the line, or say --delimiter"
FEED = "a line feed after every row; convert the line ends first"
OPEN = "a quote that is not closed, expected its end before the end of the file; correct the line"
GAP = (
    "found no value, expected one; 1 of 2 are missing: fill them in, leave the column out with --drop {}, or say "
    "--missing median"
)
WHOLE = "expected whole numbers up to 2^53, which float64 holds; correct the line"
FINITE = "expected a finite number; remove the row or fill in the value first"

CSV: dict[str, tuple[str | bytes, str]] = {
    "a text among numbers": (
        "age,income,label\n1,2,0\n3,many,1\n",
        f"rows.csv, line 3, column 'income': found 'many', {NUMBER} income",
    ),
    "a text among numbers, no header": ("1,2,0\n\n3,4x,1\n", f"rows.csv, line 3, column 1: found '4x', {NUMBER} 1"),
    "an underscore in a number": ("1,2,0\n1_0,2,1\n", f"rows.csv, line 2, column 0: found '1_0', {NUMBER} 0"),
    "an empty field": ("1,2,0\n3,,1\n", f"rows.csv, line 2, column 1: {GAP.format(1)}"),
    "a line too short": ("1,2,0\n3,1\n5,6,1\n", f"rows.csv, line 2: found 2 fields, {FIELDS}"),
    "a line too long": ("a,b,label\n1,2,0\n3,4,5,1\n", f"rows.csv, line 3: found 4 fields, {FIELDS}"),
    "NaN": ("a,b,label\n1,2,0\n\n3,nan,1\n", f"rows.csv, line 4, column 'b': {GAP.format('b')}"),
    "infinity": ("1,2,0\n-inf,4,1\n", f"rows.csv, line 2, column 0: found infinity, {FINITE}"),
    "too large for float32": (
        "1,2,0\n3,4e38,1\n",
        "rows.csv, line 2, column 1: found 4e+38, too large for float32; scale the column or use --dtype float64",
    ),
    "a short line behind a quoted field over three lines": (
        '1,2,"a\n\nb"\n3,c\n',
        f"rows.csv, line 4: found 2 fields, {FIELDS}",
    ),
    "a quote that the file does not close": ('1,2,b\n3,4,"a\n', f"rows.csv, line 2: found {OPEN}"),
    "a quote that is not closed behind an inch": ('1,5",b\n3,5","a', f"rows.csv, line 2: found {OPEN}"),
    "a number with an open quote": ('1,2,b\n"3,a,b""', f"rows.csv, line 2: found {OPEN}"),
    "line ends of another age": (
        "1,2,0\n3,4,1\r5,6,1\n",
        "rows.csv, line 2: found a carriage return inside of the line, expected " + FEED,
    ),
    "a quote that never ends": ('1,2,a\n"3,4,' + "b" * 200_000, f"rows.csv, line 2: found {OPEN}"),
    "not UTF-8": (
        b"1,2,a\n3,4,b\xe9\n",
        "rows.csv, line 2: found byte 0xe9, expected UTF-8 text; convert the file first",
    ),
}


@pytest.mark.parametrize(("content", "message"), CSV.values(), ids=CSV)
def test_a_bad_line_of_csv_is_named(refused: Refused, text: Text, content: str | bytes, message: str) -> None:
    """A line that cannot be read is named with file, line and column."""
    kind = ColumnsUnclear if "found no value" in message or NUMBER in message else BadRow
    assert refused(text("rows.csv", content), kind) == message


SVMLIGHT = {
    "a value that is no number": (
        "1 1:2\n-1 1:3 2:x\n",
        "rows.svm, line 2: found '2:x', expected index:value with a whole index and a number; correct the line",
    ),
    "an index that is no number": (
        "# made by hand\n1 1:2\n-1 a:3\n",
        "rows.svm, line 3: found 'a:3', expected index:value with a whole index and a number; correct the line",
    ),
    "a value without index": (
        "1 1:2 7\n",
        "rows.svm, line 1: found '7', expected index:value with a whole index and a number; correct the line",
    ),
    "slips that would cancel out": (
        "1 1:2:3 7\n-1 1:2\n",
        "rows.svm, line 1: found '1:2:3', expected index:value with a whole index and a number; correct the line",
    ),
    "a negative index": (
        "1 -1:2\n",
        "rows.svm, line 1: found '-1:2', expected index:value with a whole index and a number; correct the line",
    ),
    "no label": ("1 1:2\n1:3 2:4\n", "rows.svm, line 2: found '1:3' first, expected a label; correct the line"),
    "several labels": (
        "1 1:2\n1,3 1:3\n",
        "rows.svm, line 2: found '1,3' first, expected one label; correct the line",
    ),
    "a whole number that float64 does not hold": (
        "1 1:2\n\n-1 1:3 2:9007199254740993\n",
        f"rows.svm, line 3: found '9007199254740993', {WHOLE}",
    ),
    "an index twice": (
        "1 1:2\n\n-1 2:1 1:3 2:4\n",
        "rows.svm, line 3: index 2 occurs twice, expected once; correct the line",
    ),
    "NaN": (
        "1 1:2\n-1 1:3 2:nan\n",
        f"rows.svm, line 2, index 2: found NaN, {FINITE}",
    ),
}


@pytest.mark.parametrize(("content", "message"), SVMLIGHT.values(), ids=SVMLIGHT)
def test_a_bad_line_of_svmlight_is_named(refused: Refused, text: Text, content: str, message: str) -> None:
    """A line that is not SVMlight is named with file and line; nothing is shifted silently."""
    assert refused(text("rows.svm", content)) == message


def test_an_index_beyond_the_features_is_named(refused: Refused, text: Text) -> None:
    """An index outside of the features that were said, or that the store has, is refused by line."""
    path = text("rows.svm", "1 1:2\n-1 5:3\n")
    expected = "rows.svm, line 2: found index 5, expected 1 to 3; say --features or --zero-based / --one-based as"
    assert refused(path, features=3).startswith(expected)
    assert "line 1: found index 1, expected 0 to 0" in refused(path, features=1, zero_based=True)
    assert "line 1: found index 0, expected 1 to 4" in refused(text("b.svm", "1 0:1 4:1\n"), zero_based=False)


def test_bad_values_in_arrays_are_named(refused: Refused, rng: np.random.Generator) -> None:
    """A NaN or infinity in an array is named by its row and feature, also far into it."""
    X, y = rng.standard_normal((300_000, 5)), np.arange(300_000) % 2
    X[290_001, 3] = np.nan
    expected = "array, row 290001, feature 3: found NaN, expected a finite number"
    assert refused(X, labels=y).startswith(expected)
    X[12, 4] = -np.inf
    assert refused(X, labels=y).startswith("array, row 12, feature 4: found infinity")
    X[7, 0] = 1e39
    assert "row 7, feature 0: found 1e+39, too large for float32" in refused(X, labels=y)


def test_bad_values_in_npy_and_parquet_are_named(refused: Refused, tmp_path: Path) -> None:
    """NaN and null are named by file, row and column."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    np.save(tmp_path / "X.npy", np.array([[1.0, 2.0], [np.nan, 3.0]]))
    assert refused(tmp_path / "X.npy", labels=[0, 1]).startswith("X.npy, row 1, feature 0: found NaN")
    parquet.write_table(pa.table({"a": [1.0, None], "b": [1.0, 2.0], "label": [0, 1]}), tmp_path / "a.parquet")
    message = refused(tmp_path / "a.parquet", ColumnsUnclear)
    assert message == f"a.parquet, row 1, column 'a': {GAP.format('a')}"
    parquet.write_table(pa.table({"a": [[1.0, 2.0], [1.0]], "label": [0, 1]}), tmp_path / "b.parquet")
    assert refused(tmp_path / "b.parquet").startswith("b.parquet, row 1, column 'a': found 1 values, expected 2")
    parquet.write_table(pa.table({"a": [1.0, 2.0], "note": ["x", "y"], "label": [0, 1]}), tmp_path / "c.parquet")
    assert "column 'note': words ('x', 'y', ...): 2 different ones in 2 rows; say --categorical note" in refused(
        tmp_path / "c.parquet", ColumnsUnclear
    )
    parquet.write_table(pa.table({"a": [1.0, 2.0], "label": ["x", None]}), tmp_path / "d.parquet")
    assert refused(tmp_path / "d.parquet", LabelError).startswith("d.parquet, row 1: found no label")


def test_rows_and_labels_of_different_length_are_both_counted(refused: Refused, text: Text, tmp_path: Path) -> None:
    """X and y of different length are refused with both lengths, whichever is shorter and wherever they come from."""
    X = np.ones((5, 2))
    assert refused(X, DataError, labels=[0, 1, 0]) == (
        "array holds 5 rows, labels holds 3 labels: expected as many; check both"
    )
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", np.arange(7) % 2)
    assert refused(tmp_path / "X.npy", DataError) == (
        "X.npy holds 5 rows, y.npy holds 7 labels: expected as many; check both"
    )
    rows = text("rows.csv", "1,2\n3,4\n5,6\n")
    for count in (1, 2, 4, 9):
        labels = text("y.txt", "0\n" * count)
        expected = f"rows.csv holds 3 rows, y.txt holds {count} labels: expected as many; check both"
        assert refused(rows, DataError, labels=labels) == expected


def test_missing_labels_are_named(refused: Refused, text: Text, tmp_path: Path) -> None:
    """A row without label is named; no labels at all are refused with what to say."""
    for missing in ("", "NA", "nan", "?"):
        message = refused(text("rows.csv", f"a,b,label\n1,2,x\n3,4,{missing}\n"), LabelError)
        assert message.startswith("rows.csv, line 3: found no label, expected one for every row; fill it in")
    message = refused(np.ones((3, 2)), LabelError, labels=np.array([1.0, np.nan, 0.0]))
    assert message.startswith("array, row 1: found no label")
    assert refused(np.ones((3, 2)), LabelError, labels=[1, None, 0]).startswith("array, row 1: found no label")
    assert "labels are missing" in refused(np.ones((3, 2)), LabelError)
    np.save(tmp_path / "X.npy", np.ones((3, 2)))
    assert refused(tmp_path / "X.npy", LabelError).startswith(
        "X.npy: labels are missing: expected them in --labels FILE, or in y.npy next to X.npy"
    )


def test_labels_of_two_kinds_are_named(refused: Refused, text: Text) -> None:
    """A text among numeric labels is refused by line, a number that looks like a text label too."""
    message = refused(text("rows.csv", "1,2,0\n3,4,1\n5,6,spam\n"), LabelError)
    assert message.startswith("rows.csv, line 3: found the label 'spam', expected one of the same kind as 0;")
    for labels in ([1, "1", 1], ["a", 0, 1], [0, True, 0]):
        assert "expected one of the same kind as" in refused(np.ones((3, 2)), LabelError, labels=labels)


def test_a_measurement_is_no_label(refused: Refused, text: Text) -> None:
    """A column with thousands of different values is refused as a label, with a hint at the right option."""
    content = "".join(f"{k % 2},{k}.5\n" for k in range(5_000))
    message = refused(text("rows.csv", content), LabelError)
    assert message.startswith("rows.csv, line 4097: more than 4096 different labels (0.5, 1.5, ")
    assert "--label" in message


def test_nothing_to_write_is_refused(refused: Refused, text: Text) -> None:
    """Empty files, headers without rows, no columns beside the label and empty arrays are data errors."""
    assert refused(text("a.csv", ""), DataError) == "a.csv: the file is empty: expected rows"
    assert "only blank lines" in refused(text("b.csv", "\n\n"), DataError)
    assert "no rows after the header line 'a,b,label'" in refused(text("c.csv", "a,b,label\n"), NoRows)
    assert "d.csv: zero features: expected columns besides the label, found none; check --delimiter" in refused(
        text("d.csv", "0\n1\n"), DataError
    )
    assert "e.svm: no rows" in refused(text("e.svm", "# nothing\n"), NoRows)
    assert "f.svm: zero features" in refused(text("f.svm", "1\n-1\n"), DataError)
    assert "zero features" in refused(np.ones((3, 0)), DataError, labels=[0, 1, 0])
    assert "no rows" in refused(np.ones((0, 3)), NoRows, labels=[])


def test_damaged_files_are_refused(refused: Refused, text: Text, tmp_path: Path) -> None:
    """A file that breaks off, compressed or not, is refused by name."""
    whole = gzip.compress("".join(f"{k},{k % 3},{k % 2}\n" for k in range(9_999)).encode())
    assert "a.csv.gz: cannot be read to its end" in refused(text("a.csv.gz", whole[: len(whole) // 2]), DataError)
    np.save(tmp_path / "X.npy", np.ones((100, 3)))
    cut = text("X.npy", (tmp_path / "X.npy").read_bytes()[:-8])
    assert "X.npy: not a whole .npy file: found 2,520 bytes" in refused(cut, DataError, labels=np.ones(100))
    assert "b.parquet: not a whole Parquet file" in refused(text("b.parquet", b"PAR1 and no more"), DataError)


def test_pickles_are_refused(refused: Refused, tmp_path: Path) -> None:
    """Object arrays in .npy files are refused without being unpickled, as rows and as labels."""
    np.save(tmp_path / "X.npy", np.array([{}, {}], dtype=object), allow_pickle=True)
    assert "X.npy: holds Python objects, which are never unpickled" in refused(
        tmp_path / "X.npy", UsageError, labels=[0, 1]
    )
    assert "never unpickled" in refused(np.ones((2, 1)), UsageError, labels=tmp_path / "X.npy")


def test_arrays_that_are_no_tables_are_refused(refused: Refused) -> None:
    """Vectors, cubes, complex numbers and texts are refused with their shape or dtype."""
    assert "shape (3,): expected two dimensions" in refused(np.ones(3), UsageError, labels=[0, 1, 0])
    assert "shape (3, 1, 2)" in refused(np.ones((3, 1, 2)), UsageError, labels=[0, 1, 0])
    assert "dtype complex128: expected real numbers" in refused(np.ones((3, 2), complex), UsageError, labels=[0, 1, 0])
    assert "dtype <U1" in refused(np.array([["a"], ["b"]]), UsageError, labels=[0, 1])
    assert "labels: shape (3, 2): expected one label per row" in refused(
        np.ones((3, 2)), UsageError, labels=np.ones((3, 2))
    )


OPTIONS = {
    "an unknown column": ({"label": "kind"}, "rows.csv: no column named 'kind': the columns are 'a', 'b', 'target'"),
    "a column number too large": ({"label": 3}, "rows.csv: no column 3: there are 3, numbered from 0"),
    "dropping the label": ({"label": "b", "drop": ["b"]}, "column 'b' is dropped and is the label: choose one"),
    "an option of another format": ({"features": 3}, "--features does not apply to rows.csv, a delimited text"),
    "a long delimiter": ({"delimiter": "::"}, "--delimiter '::': expected one character, or tab or space"),
    "an unknown format": ({"format": "xls"}, "unknown format 'xls': expected one of npy, npz, csv, parquet, svmlight"),
    "an unknown dtype": ({"dtype": "float8"}, "dtype 'float8': expected one of float16, bfloat16, int8"),
    "labels twice": ({"label": "a", "labels": [0, 1]}, "--labels cannot be combined with --label or --unlabelled"),
    "labels and none": ({"unlabelled": True, "only": ["0"]}, "--unlabelled cannot be combined with --label or --only"),
    "append and overwrite": ({"append": True, "overwrite": True}, "--append cannot be combined with --overwrite"),
    "no label to keep": ({"only": []}, "--only names no label"),
}


@pytest.mark.parametrize(("options", "message"), OPTIONS.values(), ids=OPTIONS)
def test_options_that_do_not_fit_are_refused(
    refused: Refused, text: Text, options: dict[str, Any], message: str
) -> None:
    """An option that does not exist, does not apply or contradicts another is a usage error that says so."""
    assert message in refused(text("rows.csv", "a,b,target\n1,2,0\n3,4,1\n"), UsageError, **options)


def test_labels_that_nobody_has_are_refused(refused: Refused, text: Text) -> None:
    """A label named by `only` that no row has ends the ingest, with the labels that there are."""
    path = text("rows.csv", "1,2,0\n3,4,1\n")
    assert refused(path, LabelError, only=["0", "7"]) == (
        "rows.csv: no row has the label '7' named by --only: expected one of 0, 1"
    )


def test_sources_that_are_not_there_are_refused(refused: Refused, text: Text, tmp_path: Path) -> None:
    """Missing files, folders, patterns without match and unknown contents are usage errors."""
    assert refused(tmp_path / "no.csv", UsageError) == "no.csv: expected a readable file: No such file or directory"
    assert "no file matches this pattern" in refused(str(tmp_path / "*.csv"), UsageError)
    os.mkfifo(tmp_path / "pipe.csv")
    assert "pipe.csv: is no regular file, but rows are read more than once" in refused(
        tmp_path / "pipe.csv", UsageError
    )
    (tmp_path / "folder").mkdir()
    assert "folder: found no file with rows, expected at least one" in refused(tmp_path / "folder", DataError)
    assert "cannot tell the format from name or content" in refused(text("what", "hello\n"), UsageError)


def test_a_store_in_the_way_is_kept(tmp_path: Path) -> None:
    """Without --append or --overwrite an existing store is refused; a failed overwrite leaves it as it was."""
    ingest(np.ones((3, 2)), tmp_path / "rows.zarr", labels=[0, 1, 0])
    digest = Store.open(tmp_path / "rows.zarr").digest
    with pytest.raises(UsageError, match="exists already: say --append to add rows, or --overwrite"):
        ingest(np.ones((3, 2)), tmp_path / "rows.zarr", labels=[0, 1, 0])
    with pytest.raises(BadRow):
        ingest(np.full((3, 2), np.nan), tmp_path / "rows.zarr", labels=[0, 1, 0], overwrite=True)
    assert Store.open(tmp_path / "rows.zarr").digest == digest


def test_an_append_that_does_not_fit_leaves_the_store(tmp_path: Path) -> None:
    """Another number of features, another precision, other settings or a bad row change nothing in the store."""
    path = tmp_path / "rows.zarr"
    ingest(np.ones((3, 2)), path, labels=["a", "b", "a"])
    digest = Store.open(path).digest
    bad: list[tuple[type[CoremarginError], str, Any, dict[str, Any]]] = [
        (DataError, "array: found 3 features, expected 2 as in .*rows.zarr", np.ones((2, 3)), {}),
        (UsageError, "holds float32, found --dtype float64", np.ones((2, 2)), {"dtype": "float64"}),
        (UsageError, "compression and chunk size are fixed", np.ones((2, 2)), {"compression": "lz4"}),
        (BadRow, "row 1, feature 0: found NaN", np.array([[1.0, 1.0], [np.nan, 1.0]]), {}),
        (LabelError, "found the label 1, expected one of the same kind as 'a'", np.ones((2, 2)), {"labels": [1, 0]}),
    ]
    for kind, message, rows, options in bad:
        with pytest.raises(kind, match=message):
            ingest(rows, path, append=True, **{"labels": ["a", "b"], **options})
        assert Store.open(path).digest == digest
    with pytest.raises(StoreError, match="expected a store, found nothing there"):
        ingest(np.ones((2, 2)), tmp_path / "new.zarr", labels=[0, 1], append=True)


@pytest.mark.parametrize("reason", ["No space left on device", "Read-only file system"])
def test_a_disk_that_takes_no_more_is_an_output_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """A full or read-only disk ends with an error that says so, and leaves nothing behind."""
    import errno

    number = {os.strerror(code): code for code in errno.errorcode}[reason]

    def fail(*_: Any) -> None:
        raise OSError(number, reason)

    monkeypatch.setattr("coremargin.data.files.os.fsync", fail)
    with pytest.raises(OutputError, match="the disk is full|the file system is read-only"):
        ingest(np.ones((3, 2)), tmp_path / "rows.zarr", labels=[0, 1, 0])
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == []

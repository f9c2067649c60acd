"""Two different labels never become one class without a word: they stay two, or are refused with file and row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coremargin.data.arrays import ArraySource
from coremargin.data.ingest import ingest
from coremargin.data.labels import LONGEST_LABEL
from coremargin.data.store import Store
from coremargin.errors import BadRow, LabelError
from coremargin.formats.limits import MOST_CLASSES

Refused = Callable[..., str]
Text = Callable[[str, str | bytes], Path]
X = np.eye(2)


def column(*labels: Any) -> np.ndarray:
    """Labels as an array of objects."""
    array = np.empty(len(labels), dtype=object)
    array[:] = labels
    return array


APART: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "NULs at the end": (column("a", "a\0"), ("a", "a\0")),
    "NULs at the end of bytes": (column(b"a\0", b"a"), ("a\0", "a")),
    "spaces around": (np.array(["a", " a"]), ("a", " a")),
    "upper case": (["a", "A"], ("a", "A")),
    "accents composed in two ways": (["\u00e9", "e\u0301"], ("\u00e9", "e\u0301")),
    "neighbours beyond float64": ([2**53, 2**53 + 1], (2**53, 2**53 + 1)),
    "large whole numbers of both signs": (column(2**63 + 1, -1), (2**63 + 1, -1)),
    "the largest unsigned": (np.array([2**64 - 1, 2**64 - 2], dtype="u8"), (2**64 - 1, 2**64 - 2)),
    "neighbouring floats": ([0.1, np.nextafter(0.1, 1)], (0.1, float(np.nextafter(0.1, 1)))),
}


@pytest.mark.parametrize(("labels", "classes"), APART.values(), ids=APART)
def test_labels_stay_apart(tmp_path: Path, labels: Any, classes: tuple[Any, ...]) -> None:
    """Labels that NumPy or Python may take for one are two classes, exactly as they were given."""
    ingest(X, tmp_path / "rows.zarr", labels=labels)
    store = Store.open(tmp_path / "rows.zarr")
    assert store.classes == classes
    assert store.read(0)[1].tolist() == [0, 1]


REFUSED: dict[str, tuple[Any, str]] = {
    "bytes that are not UTF-8": (
        np.array([b"\xff", b"\xfe"]),
        "labels, row 0: found the label b'\\xff', expected UTF-8",
    ),
    "such bytes as objects": (
        column(b"a", b"\xfe"),
        "labels, row 1: found the label b'\\xfe', expected UTF-8, as all text",
    ),
    "a text and its bytes": (
        column("a", b"a"),
        "labels, row 1: found the label 'a' as text and as bytes, expected one",
    ),
    "half a character": (["a", "\ud800"], "labels, row 1: found the label '\\ud800', expected valid Unicode"),
    "no character at all": (
        np.array([0x41, 0x110000], dtype="<u4").view("<U1"),
        "row 1: found the character 0x110000 in",
    ),
    "more than 64 bits": (
        column(1, 2**64),
        "labels, row 1: found a label that is a whole number of 20 digits, expected",
    ),
    "ten thousand digits": (column(1, 10**10_000), "row 1: found a label that is a whole number of 10001 digits"),
    "infinity": (np.array([1.0, np.inf]), "labels, row 1: found inf, expected a label: a text, a finite number or"),
    "a text without end": (["a", "b" * 1001], "... of 1,001 characters, expected at most 1,000; is this column a text"),
    "lists": (column([1], [2]), "labels, row 0: found a list, expected a label"),
    "arrays": (column(np.zeros(2), np.ones(2)), "labels, row 0: found a ndarray, expected a label"),
    "times": (
        np.array([1, 2], dtype="M8[ns]"),
        "labels, row 0: found labels of dtype datetime64[ns], expected integers",
    ),
    "long floats": (np.array([1, 2], dtype="g"), "labels, row 0: found labels of dtype "),
    "fields": (
        np.zeros(2, dtype=[("a", "i4")]),
        "labels, row 0: found labels of dtype [('a', '<i4')], expected integers",
    ),
}


@pytest.mark.parametrize(("labels", "message"), REFUSED.values(), ids=REFUSED)
def test_labels_that_cannot_be_told_apart_are_refused(refused: Refused, labels: Any, message: str) -> None:
    """Labels that would lose what makes them different, or that no store can list, are refused by row."""
    assert message in refused(X, LabelError, labels=labels)


TEXTS = {
    "white space": (
        "spam\nham\n spam\n",
        "line 3: found the labels 'spam' and ' spam', which differ in white space only",
    ),
    "another space": ("spam\nspam\u00a0\n", "line 2: found the labels 'spam' and 'spam\\xa0', which differ in white"),
    "digits that float64 drops": (
        "0.1\n0.10000000000000000001\n",
        "line 2: found the labels '0.1' and '0.10000000000000000001', which are one number in float64; write",
    ),
    "next to a whole number": (
        "1\n1.00000000000000000001\n",
        "line 2: found the label '1.00000000000000000001', which float64",
    ),
    "too small": (
        "0\n1e-400\n",
        "line 2: found the label '1e-400', which float64 does not tell from 0; round it first",
    ),
    "too large": ("0\n1e400\n", "line 2: found the label '1e400', expected a number in the range of float64"),
    "5,000 digits": ("0\n" + "9" * 5000 + "\n", "9'... (5,000 characters), expected a number in the range of float64"),
}


@pytest.mark.parametrize(("content", "message"), TEXTS.values(), ids=TEXTS)
def test_texts_that_would_be_one_label_are_refused(refused: Refused, text: Text, content: str, message: str) -> None:
    """In files of labels, CSV and SVMlight alike, two spellings of different things are not one class."""
    rows = content.count("\n")
    assert message in refused(np.ones((rows, 1)), LabelError, labels=text("y.txt", content))
    table = "".join(f"{k},{line}\n" for k, line in enumerate(content.splitlines()))
    assert message in refused(text("rows.csv", table), LabelError)
    if not content.startswith("spam"):
        lines = "".join(f"{line} 1:2\n" for line in content.splitlines())
        assert message in refused(text("rows.svm", lines), LabelError)


def test_numbers_are_read_to_the_last_digit(tmp_path: Path, text: Text) -> None:
    """Whole numbers beyond float64 are two labels from every kind of text; other spellings of a number are one."""
    large = [2**53, 2**53 + 1]
    for name, content in (
        ("a.csv", f"1,{large[0]}\n2,{large[1]}.0\n"),
        ("b.svm", f"{large[0]} 1:1\n+{large[1]} 1:2\n"),
    ):
        ingest(text(name, content), tmp_path / f"{name}.zarr")
        assert Store.open(tmp_path / f"{name}.zarr").classes == tuple(large)
    spellings = ["0.5", ".5", "0.50", "+5e-1", "1", "1.0", "+1"]
    ingest(np.ones((7, 1)), tmp_path / "c.zarr", labels=text("y.txt", "\n".join(spellings) + "\n"))
    assert Store.open(tmp_path / "c.zarr").classes == (0.5, 1)


def test_the_longest_labels_fit_into_a_store(tmp_path: Path) -> None:
    """A store opens again that lists as many labels as there may be, as long as may be, in the widest letters."""
    labels = [f"{k:04}" + "\U0001f600" * (LONGEST_LABEL - 4) for k in range(MOST_CLASSES)]
    ingest(np.ones((MOST_CLASSES, 1)), tmp_path / "rows.zarr", labels=labels)
    assert Store.open(tmp_path / "rows.zarr").classes == tuple(labels)


def test_quotes_alone_belong_to_the_label(tmp_path: Path, text: Text) -> None:
    """In a file of labels quotes around a line are syntax, a single one is part of the label."""
    ingest(np.ones((4, 1)), tmp_path / "rows.zarr", labels=text("y.txt", 'a\n"a"\n"a\n"say ""a"""\n'))
    store = Store.open(tmp_path / "rows.zarr")
    assert [store.classes[code] for code in store.read(0)[1]] == ["a", "a", '"a', 'say "a"']


def test_text_behind_a_quoted_field_is_refused(refused: Refused, tmp_path: Path, text: Text) -> None:
    """In CSV "a"b is neither a nor ab; quotes that are well placed, doubled or inside of a field are what they were."""
    for content in ('1,"a"b\n2,ab\n', '"1"2,a\n3,b\n', '1,""a\n2,a\n', '"1";"a"b\n2;a\n', '"1" "a"b\n2 a\n'):
        message = refused(text("rows.csv", content), header=False)
        assert message.startswith(
            "rows.csv, line 1: found text behind the closing quote of a field, expected the delim"
        )
    good = {'1,"a""b"': 'a"b', '"2","x,""y"",z"': 'x,"y",z', "3,5'10\"": "5'10\"", '4,a"b"c': 'a"b"c'}
    ingest(text("rows.csv", "\n".join(good)), tmp_path / "rows.zarr")
    assert Store.open(tmp_path / "rows.zarr").classes == tuple(good.values())


def test_arrays_in_memory_keep_labels_apart(tmp_path: Path) -> None:
    """Training from arrays takes and refuses the same labels as a store does."""
    assert ArraySource(X, [2**63 + 1, -1]).classes == (2**63 + 1, -1)
    for labels in (np.array([b"\xff", b"\xfe"]), column("a", b"a"), column(1, 10**10_000), ["a", "\ud800"]):
        with pytest.raises(LabelError, match="row [01]: found "):
            ArraySource(X, labels)
    with pytest.raises(LabelError, match="some labels are masked"):
        ArraySource(X, np.ma.array([0, 1], mask=[True, False]))


@pytest.mark.parametrize("name", ["label", "word"])
def test_what_parquet_calls_text_must_be_text(refused: Refused, tmp_path: Path, name: str) -> None:
    """A column of texts that are not UTF-8, which Parquet does not check, is refused by row."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    ends, letters = np.array([0, 1, 2], dtype="i4").tobytes(), b"a\xff"
    bad = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(ends), pa.py_buffer(letters)])
    pq.write_table(pa.table({"a": [1.0, 2.0], "label": [0, 1]} | {name: bad}), tmp_path / "a.parquet")
    message = refused(tmp_path / "a.parquet", BadRow)
    assert message == f"a.parquet, row 1, column {name!r}: found a text that is not UTF-8; correct the file"
